"""Decode speed against the bank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashmoe_sim.ceilings.speed import Ceilings
from flashmoe_sim.report.figures.style import Chart

if TYPE_CHECKING:
    import polars


def speeds(rows: polars.DataFrame, *, ceilings: Ceilings | None = None) -> Chart:
    """Decode speed against the bank with its 90 % interval, a line for each policy and predictor.

    rows: schema.RESULT_COLUMNS of one trace and one machine. Read are policy, contract, prefetch, bank, bank_slots,
        bank_bytes, tok_s, tok_s_lo, tok_s_hi and resident_bytes; rows without a speed are left out.
    ceilings: all-hit, oracle-prefetch, min and the bandwidth floor of one bank, as rules.
    Raises BadInput if no row has a speed, and for several traces or machines.
    """
    raise NotImplementedError
