"""`sim compare`: the real systems side by side, on one machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flashmoe_sim.options import MEASURED, MODEL, MemoryOptions, Several, option, option_field

if TYPE_CHECKING:
    from flashmoe_sim.machines.machine import OneMachine
    from flashmoe_sim.systems.base import Case
    from flashmoe_sim.systems.compare import Compared
    from flashmoe_sim.systems.resolve import OneSystem
    from flashmoe_sim.verbs.given import Model, Trace


def _one_rate(text: str) -> float:
    from flashmoe_sim.timeline.rates import parse_hit_rates

    rate = parse_hit_rates(text)[0].hit_rate
    assert rate is not None
    return rate


@dataclass(frozen=True, eq=False)
class Comparison:
    """The compared systems and their case.

    notes: what the user should know about trace and machine. borrowed: the note on a trace that was made from another
    model's, or empty. hit_rate: the one that every system has instead of a trace.
    """

    case: Case
    rows: list[Compared]
    notes: tuple[str, ...]
    borrowed: str = ""
    hit_rate: float | None = None

    def likely_faster(self) -> tuple[Compared, dict[str, float]] | None:
        """`tune.pays.likely_faster` of the rows.

        None at one hit rate, with which whole layers hit as often as a cache.
        """
        from flashmoe_sim.tune.pays import likely_faster

        return likely_faster(self.rows) if self.hit_rate is None else None


@dataclass(frozen=True, kw_only=True)
class Compare(MemoryOptions):
    """Compare real systems on a machine, like `sim compare`: a row of docs/reference/columns.md for each.

    >>> table = compare("gpt-oss-120b", machine="rtx-4090", systems="placed,cpu,all-gpu", kv="2GiB")
    >>> table["system"].to_list()
    ['placed', 'cpu', 'all-gpu']
    >>> table["why_not"][2]
    'takes 60.8 GiB of the GPU, which has 23.2 for it'

    The fastest comes first; systems that cannot run come last. Without a trace, one is made for `model`, like
    bundled ones of other models, with a warning, or `hit_rate`, 0 to 1, applies to all systems. Systems may be objects.
    Raises BadInput for unknown words, and for a trace that lacks layers of its model.
    """

    trace: Trace | None = field(default=None, kw_only=False, metadata=option("[TRACE]", "", positional=True))
    model: Model | None = field(default=None, metadata=MODEL)
    machine: OneMachine = field(
        metadata=option("X", "The machine to time: a name from `sim machine list`, a file, or parts.")
    )
    systems: OneSystem | Iterable[OneSystem] = option_field(
        "all", "S,S", "Systems, with settings: slot-bank:slots=64; or engines, such as llama.cpp.", flag="--system"
    )
    measured: Several = field(default=(), metadata=MEASURED)
    best: bool = option_field(False, "", "Each system at its best setting instead of its default.")
    hit_rate: float | None = option_field(
        None, "R", "Instead of a trace: the hit rate of every system, 0.8 or 80%.", parse=_one_rate
    )

    def run(self, progress: Callable[[int, int], None] | None = None) -> Comparison:
        """Compare the systems on a trace, or on a model alone with a hit rate or a borrowed trace."""
        from flashmoe_sim.io.errors import BadInput
        from flashmoe_sim.machines.guessed import ask
        from flashmoe_sim.systems.compare import compare, with_filled, with_undrafted
        from flashmoe_sim.systems.fits import nothing_runs
        from flashmoe_sim.systems.resolve import resolve
        from flashmoe_sim.verbs.given import learnt_machine, names_no_quantization, workload_and_model

        workload, model = workload_and_model(self.trace, self.model)
        if self.hit_rate is not None and not 0 <= self.hit_rate <= 1:
            raise BadInput(f"--hit-rate {self.hit_rate:g}; expected 0 to 1")
        if workload is not None and self.hit_rate is not None:
            raise BadInput("a hit rate replaces a trace; give one of the two")
        if self.hit_rate is not None and self.best:
            raise BadInput("with one hit rate for every setting, none is best; give a trace instead")
        on = resolve(
            workload=workload,
            model=model,
            machine=learnt_machine(self.machine, self.measured, workload=workload, model=model),
            systems=self.systems,
            memory=self,
            may_borrow=self.hit_rate is None,
            any_file=names_no_quantization(self.trace, self.model),
        )
        rows = compare(
            on.workload,
            on.case,
            on.systems,
            best=self.best,
            borrowed=bool(on.borrowed),
            hit_rate=self.hit_rate,
            progress=progress,
        )
        given: dict[str, Any] = {"borrowed": bool(on.borrowed), "hit_rate": self.hit_rate}
        if self.context:
            rows = [with_filled(on.workload, on.case, row, **given) for row in rows]
        rows = [with_undrafted(on.workload, on.case, row, **given) for row in rows]
        if not any(row.tok_s for row in rows):
            raise nothing_runs(on.case, [(row.system, row.why_not) for row in rows])
        notes = (*filter(None, (ask(on.case.machine).rstrip("."),)), *on.notes)
        if known := [row.system.name for row in rows if row.hindsight and row.tok_s is not None]:
            notes = (*notes, f"{', '.join(known)}: the profile comes from this very trace, which flatters it")
        return Comparison(on.case, rows, notes, on.borrowed, self.hit_rate)
