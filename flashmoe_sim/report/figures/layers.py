"""Which layers miss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashmoe_sim.report.figures.style import Chart

if TYPE_CHECKING:
    import polars


def misses_by_layer(rows: polars.DataFrame) -> Chart:
    """A heat map of the share of each layer's requests that miss, by layer and bank.

    rows: schema.LAYER_COLUMNS of one trace and policy, as `replay(..., by="layer")` returns them, of one or several banks.
        Read are trace, policy, bank, layer, requests, misses and misses_per_token; others may be missing.
    Raises BadInput without rows, and for several traces or policies.
    """
    raise NotImplementedError
