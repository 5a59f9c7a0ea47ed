"""Predictions against measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashmoe_sim.report.figures.style import Chart

if TYPE_CHECKING:
    import polars


def predicted_measured(rows: polars.DataFrame) -> Chart:
    """Predicted against measured decode speed with 90 % intervals, the diagonal, and a band of a factor of 2.

    rows: columns measured_tok_s and tok_s; if there, tok_s_lo and tok_s_hi (the interval), source (what a point is
        called) and group (its colour), as schema.PREDICTED has them but for group. Rows without either speed are left out.
    Raises BadInput if no row has both speeds, or a column is missing.
    """
    raise NotImplementedError
