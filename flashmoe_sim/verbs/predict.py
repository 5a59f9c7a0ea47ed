"""`sim predict`: seconds if only hit rates are known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.errors import Conflict, Incomplete, OutOfRange
from flashmoe_sim.io.sections import UNKNOWN, Column, Item, Section, brief_interval, decimals, percent, speed, table
from flashmoe_sim.options import MEASURED, MODEL, Several, option_field
from flashmoe_sim.question import IO_SPLIT, MACHINE, ConditionOptions
from flashmoe_sim.verbs.base import Verb

EQUAL = 1.001  # times a speed, which is printed alike

if TYPE_CHECKING:
    from flashmoe_sim.geometry.model import ModelGeometry
    from flashmoe_sim.machines.machine import Machine, OneMachine
    from flashmoe_sim.policies.bank import OneBank
    from flashmoe_sim.timeline.assemble import Conditions
    from flashmoe_sim.timeline.from_rates import RatePrediction, Unfit
    from flashmoe_sim.timeline.rates import Rate
    from flashmoe_sim.verbs.given import Model


@dataclass(frozen=True, eq=False)
class RatePredictions:
    """A prediction for each hit rate, or why there is none. notes: what the user should know."""

    geometry: ModelGeometry
    machine: Machine
    conditions: Conditions
    rows: list[RatePrediction | Unfit]
    notes: tuple[str, ...] = ()

    @property
    def unmoved(self) -> str:
        """That speeds do not depend on the hit rate, with the reason; empty if they do."""
        speeds = [row["tok_s"] for row in map(_row, self.rows) if row.get("tok_s") is not None]
        rates = {_hits(row) for row in map(_row, self.rows)}
        if len(speeds) < 2 or len(rates) < 2 or max(speeds) > EQUAL * min(speeds):
            return ""
        name = self.conditions.execution.name
        return (
            f"no hit rate changes the speed: under {name} every expert is computed where it is, and all are in memory"
        )


@dataclass(frozen=True, kw_only=True)
class Predict(ConditionOptions, Verb[RatePredictions]):
    """Predict how fast a model decodes from hit rates alone, like `sim predict`.

    docs/guides/more.md explains.

    >>> found = predict(hit_rate=[0.6, 0.9], model="qwen3.5-35b-a3b", machine="m5-max-128", top_k=4)
    >>> found["tok_s"].is_sorted()
    True

    Give one of hit rates and a table, a model and a machine. `bank` and `top_k` apply to every row without its own. A
    row of a table whose bank does not fit the machine has the reason in `does_not_fit` instead of a speed.
    Raises BadInput for a table that cannot be read, and if no row fits the machine.
    """

    help: ClassVar[str] = """Predict how fast a model decodes on a machine, from published hit rates.

    No trace is needed: a synthetic workload misses as often. If the table has a measured speed, the signed error
    follows it. Misses are read like in the patched runtime (split-install) unless --execution says otherwise. A table
    is CSV, with commas, semicolons or tabs, or markdown; a row says if it does not fit the machine.

    \b
    Example:  sim predict --model qwen3.5-35b-a3b:ud-iq2_m --machine m5-max-128 \\
                  --hit-rate 58.8%,72.8% --topk 4 --bank 32
    """

    hit_rate: str | float | Iterable[float] | None = option_field(
        None, "R,R", "Hit rates of the bank: 0.588, or 58.8%."
    )
    table: str | Path | None = option_field(
        None,
        "FILE",
        "A published table with a column misses_per_call, hit_pct or hit_rate, and optionally bank, topk and tok_s.",
    )
    model: Model | None = field(default=None, metadata=MODEL)
    machine: OneMachine | None = field(default=None, metadata=MACHINE)
    measured: Several = field(default=(), metadata=MEASURED)
    bank: OneBank | None = option_field(
        None, "N", "Slots of each layer (64), bytes of all banks (8GiB), or a share (12.5%); default: no memory."
    )
    top_k: int | None = option_field(
        None, "K", "Experts per token; default: the model's top-k.", flag="--topk", least=1
    )
    io_split: int = field(default=4, metadata=IO_SPLIT)

    def run(self) -> RatePredictions:
        """Predict each hit rate, or each row of the table."""
        from flashmoe_sim.geometry.load import load_model
        from flashmoe_sim.geometry.model import ModelGeometry
        from flashmoe_sim.policies.bank import parse_bank
        from flashmoe_sim.sweep.plan import plan_conditions, plan_setup
        from flashmoe_sim.timeline.from_rates import predict_rates
        from flashmoe_sim.timeline.rates import percent_or_share
        from flashmoe_sim.verbs.given import learnt_machine

        if (self.hit_rate is None) == (self.table is None):
            raise Conflict("predict: give either hit rates (--hit-rate 0.588,0.728) or a table (--table FILE)")
        if self.model is None or self.machine is None:
            missing = "--model, see `sim model list`" if self.model is None else "--machine, see `sim machine list`"
            raise Incomplete(f"predict: seconds need a model and a machine; give {missing}")
        if self.top_k is not None and self.top_k < 1:
            raise OutOfRange(f"predict: {self.top_k} experts a token; expected at least 1")
        # The policy does not matter: misses are read in parallel unless another execution model is named.
        setup = plan_setup("1" if self.bank is None else self.bank, io_split=self.io_split)
        rates = self._rates()
        geometry = self.model if isinstance(self.model, ModelGeometry) else load_model(self.model)
        conditions = plan_conditions(setup, self, geometry)
        machine = learnt_machine(self.machine, self.measured, model=geometry)
        rows = predict_rates(
            rates,
            geometry,
            machine,
            conditions,
            bank=None if self.bank is None else parse_bank(str(self.bank)),
            top_k=self.top_k,
            io_split=self.io_split,
        )
        return RatePredictions(geometry, machine, conditions, rows, tuple(filter(None, [percent_or_share(rates)])))

    def _rates(self) -> list[Rate]:
        from flashmoe_sim.timeline.rates import parse_hit_rates, read_rates

        if self.table is not None:
            return read_rates(self.table)
        assert self.hit_rate is not None
        if isinstance(self.hit_rate, str):
            return parse_hit_rates(self.hit_rate)
        several = [self.hit_rate] if isinstance(self.hit_rate, int | float) else self.hit_rate
        return parse_hit_rates(",".join(map(str, several)))

    def document(self, found: RatePredictions) -> dict[str, Any]:
        """What `--json` prints."""
        from flashmoe_sim.timeline.from_rates import RatePrediction

        rows = [
            row.as_row()
            | {"ms_per_token_by_part": row.timing.part_ms_per_token if isinstance(row, RatePrediction) else None}
            for row in found.rows
        ]
        where = {"model": found.geometry.name, "machine": found.machine.name}
        timed_as = {"execution": found.conditions.execution.name}
        notes = [*filter(None, (found.unmoved,)), *found.machine.notes]
        return {**where, **timed_as, "rows": rows, "notes": notes}

    def finish(self, found: RatePredictions) -> list[str]:
        """What is odd about the table."""
        return [f"{self.table}: {note}" for note in found.notes]

    def sections(self, found: RatePredictions) -> list[Section]:
        """A row for each hit rate; lines of a table have their number if several have the same bank and top-k."""
        rows = [_row(row) for row in found.rows]
        columns: list[Column] = [
            ("bank", "right", lambda row: row["bank"] or UNKNOWN),
            ("top-k", "right", lambda row: str(row["top_k"])),
            ("hit %", "right", _hits),
            ("misses/call", "right", lambda row: decimals(row["misses_per_call"])),
            ("page cache %", "right", lambda row: percent(row.get("page_cache_share"))),
            ("tok/s", "right", lambda row: speed(row.get("tok_s"))),
            (
                "90%",
                "right",
                lambda row: "does not fit" if row["does_not_fit"] else brief_interval(row["tok_s_lo"], row["tok_s_hi"]),
            ),
        ]
        if self.table is not None and len({(row["bank"], row["top_k"]) for row in rows}) < len(rows):
            columns.insert(0, ("line", "right", lambda row: row["rate"].where.rpartition(" ")[2]))
        if any(row["measured_tok_s"] is not None for row in rows):
            columns += [("measured", "right", lambda row: _measured(row["rate"])), ("error", "right", _error)]
        machine = found.machine
        caption = "page cache: its share of the misses if all experts outside the bank are alike"
        title = f"{found.geometry.name} on {machine.name}: {machine.title}; {found.conditions.execution.name}"
        made = table(
            columns, rows, title=title, caption="; ".join(filter(None, (caption, found.unmoved, *machine.notes)))
        )
        why = [Item(f"does not fit: {row['does_not_fit']}", 2) for row in rows if row["does_not_fit"] is not None]
        return [Section("", (made, *why))]


def _row(row: RatePrediction | Unfit) -> dict[str, Any]:
    return row.as_row() | {"rate": row.rate}


def _hits(row: dict[str, Any]) -> str:
    return percent(row["hit_rate"] if row["hit_rate"] is not None else 1 - row["misses_per_call"] / row["top_k"])


def _measured(rate: Rate) -> str:
    if rate.measured_tok_s is None:
        return UNKNOWN
    return f"{rate.tok_s:g}" if rate.tok_s is not None else f"{rate.tok_s_lo:g}-{rate.tok_s_hi:g}"


def _error(row: dict[str, Any]) -> str:
    return UNKNOWN if row.get("error") is None else f"{row['error']:+.1%}"
