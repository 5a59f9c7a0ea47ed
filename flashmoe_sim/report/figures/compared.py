"""Systems side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashmoe_sim.report.figures.style import Chart

if TYPE_CHECKING:
    import polars


def systems(table: polars.DataFrame) -> Chart:
    """Decode speed of each system with its 90 % interval, the fastest on top, coloured by what its misses wait for.

    table: schema.COMPARED, as `compare` returns it. Read are setting, why_not, tok_s, tok_s_lo, tok_s_hi, read_ms,
        upload_ms, cpu_ms, gpu_bytes, ram_bytes and hit_rate. What cannot run is listed below with the reason.
    Raises BadInput without rows.
    """
    raise NotImplementedError
