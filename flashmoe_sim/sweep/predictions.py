"""Predictions from hit rates, also of those whose bank does not fit the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.timeline.assemble import Conditions, DoesNotFit
from flashmoe_sim.timeline.from_rates import RatePrediction, predict
from flashmoe_sim.timeline.rates import Rate


@dataclass(frozen=True)
class Unfit:
    """A row of a table whose bank does not fit the machine, and the reason."""

    rate: Rate
    reason: str

    def as_row(self) -> dict[str, Any]:
        """schema.PREDICTED, as far as it is known."""
        rate = self.rate
        return {
            "bank": None if rate.bank is None else str(rate.bank),
            "top_k": rate.top_k,
            "hit_rate": rate.hit_rate,
            "misses_per_call": rate.misses_per_call,
            "measured_tok_s": rate.measured_tok_s,
            "measured_tok_s_lo": rate.tok_s_lo,
            "measured_tok_s_hi": rate.tok_s_hi,
            "does_not_fit": self.reason,
        }


def predict_rates(
    rates: Sequence[Rate],
    geometry: ModelGeometry,
    machine: Machine,
    conditions: Conditions,
    *,
    bank: Bank | None = None,
    top_k: int | None = None,
    io_split: int = 4,
) -> list[RatePrediction | Unfit]:
    """Predict each rate; bank and top_k are of rates without their own.

    Raises DoesNotFit if no bank fits the machine.
    """
    rows: list[RatePrediction | Unfit] = []
    unfit: DoesNotFit | None = None
    for rate in rates:
        try:
            rows += predict([rate], geometry, machine, conditions, bank=bank, top_k=top_k, io_split=io_split)
        except DoesNotFit as error:
            unfit = unfit or error
            resolved = replace(rate, bank=rate.bank or bank, top_k=rate.top_k or top_k or geometry.top_k)
            rows.append(Unfit(resolved, error.message))
    if unfit is not None and not any(isinstance(row, RatePrediction) for row in rows):
        raise unfit
    return rows
