"""Measured speeds of rows beside what is predicted for them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flashmoe_sim.field.asked import AskedRow, Traces, asked_of, observation_of
from flashmoe_sim.field.rows import FieldRow
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.belief import SD_90
from flashmoe_sim.measured.causes import FEWEST, Cause, Ran, explained

TAIL = 0.05  # of the likely speeds: a measured one beyond is outside of the 90%


@dataclass(frozen=True)
class Beside:
    """A measured decode speed beside the predicted one, in tokens a second.

    below: the share of the predicted draws that are slower than the measured speed. causes: of a speed outside the 90%
    interval, the likeliest first. why_not: why there is no prediction or no comparison.
    """

    row: FieldRow
    tok_s: float | None = None
    lo: float | None = None
    hi: float | None = None
    below: float | None = None
    causes: tuple[Cause, ...] = ()
    why_not: str = ""

    @property
    def outside(self) -> bool:
        """Whether the measured speed is outside of the interval."""
        return self.below is not None and not TAIL <= self.below <= 1 - TAIL


def beside(row: FieldRow, traces: Traces) -> Beside:
    """A row's measured speed beside the predicted one."""
    try:
        asked = asked_of(row, traces)
        found = asked.answer()
    except BadInput as error:
        return Beside(row, why_not=str(error).removeprefix(f"{row.where}: "))
    if found.tok_s is None or found.draws is None:
        return Beside(row, why_not=found.why_not)
    lo, hi = found.tok_s_lo, found.tok_s_hi
    if row.decode_tok_s is None:
        return Beside(row, found.tok_s, lo, hi, why_not="no decode_tok_s to compare")
    below = float(np.mean(found.draws < row.decode_tok_s))
    made = Beside(row, found.tok_s, lo, hi, below)
    if not made.outside or lo is None or hi is None:
        return made
    return Beside(row, found.tok_s, lo, hi, below, _causes(asked, found.tok_s, math.log(hi / lo) / (2 * SD_90)))


def _causes(asked: AskedRow, tok_s: float, sd: float) -> tuple[Cause, ...]:
    ran = Ran(asked.system, asked.case, observation_of(asked), depth=asked.case.depth)
    return tuple(explained(ran, (math.log(tok_s), sd))[:FEWEST])
