"""From the arguments of `sim predict`, as words or objects, to predictions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine, OneMachine
from flashmoe_sim.policies.bank import Bank, OneBank, parse_bank
from flashmoe_sim.question import AskedConditions
from flashmoe_sim.sweep.plan import plan_conditions, plan_setup
from flashmoe_sim.timeline.assemble import Conditions, DoesNotFit
from flashmoe_sim.timeline.from_rates import Predicted, predict
from flashmoe_sim.timeline.rates import Rate, parse_hit_rates, percent_or_share, read_rates

HitRates = str | float | Iterable[float]


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


@dataclass(frozen=True, eq=False)
class Predictions:
    """The arguments, and a prediction for each rate, or why there is none. notes: what the user should know."""

    geometry: ModelGeometry
    machine: Machine
    conditions: Conditions
    rows: list[Predicted | Unfit]
    notes: tuple[str, ...] = ()


def predict_as_told(
    *,
    hit_rate: HitRates | None,
    table: str | Path | None,
    model: str | Path | ModelGeometry | None,
    machine: OneMachine | None,
    bank: OneBank | None = None,
    top_k: int | None = None,
    io_split: int = 4,
    **conditions: Unpack[AskedConditions],
) -> Predictions:
    """Predict each hit rate, or each row of a table; conditions: the arguments of `plan_conditions`.

    A row of a table that does not fit the machine becomes Unfit, unless no row fits.
    Raises BadInput if neither or both are given, without a model or machine, and if any of them is invalid.
    """
    if (hit_rate is None) == (table is None):
        raise BadInput("predict: give either hit rates (--hit-rate 0.588,0.728) or a table (--table FILE)")
    if model is None or machine is None:
        missing = "--model, see `sim model list`" if model is None else "--machine, see `sim machine list`"
        raise BadInput(f"predict: seconds need a model and a machine; give {missing}")
    if top_k is not None and top_k < 1:
        raise BadInput(f"predict: {top_k} experts a token; expected at least 1")
    # The policy does not matter: misses are read in parallel unless another execution model is named.
    setup = plan_setup("1" if bank is None else bank, io_split=io_split)
    rates = read_rates(table) if table is not None else _hit_rates(hit_rate)
    geometry = model if isinstance(model, ModelGeometry) else load_model(model)
    told = plan_conditions(setup, geometry, **conditions)
    runs_on = machine if isinstance(machine, Machine) else load_machine(machine)
    of_all: Bank | None = None if bank is None else parse_bank(str(bank))
    rows: list[Predicted | Unfit] = []
    unfit: DoesNotFit | None = None
    for rate in rates:
        try:
            rows += predict([rate], geometry, runs_on, told, bank=of_all, top_k=top_k, io_split=io_split)
        except DoesNotFit as error:
            unfit = unfit or error
            asked = replace(rate, bank=rate.bank or of_all, top_k=rate.top_k or top_k or geometry.top_k)
            rows.append(Unfit(asked, error.said))
    if unfit is not None and not any(isinstance(row, Predicted) for row in rows):
        raise unfit
    return Predictions(geometry, runs_on, told, rows, tuple(filter(None, [percent_or_share(rates)])))


def _hit_rates(given: HitRates | None) -> list[Rate]:
    if isinstance(given, str):
        return parse_hit_rates(given)
    several = [given] if isinstance(given, int | float) else list(given or ())
    return parse_hit_rates(",".join(map(str, several)))
