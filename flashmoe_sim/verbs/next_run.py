"""`sim machine next`: what to measure next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from flashmoe_sim.options import MEASURED, MODEL, MemoryOptions, Several, option, option_field

if TYPE_CHECKING:
    from flashmoe_sim.machines.machine import OneMachine
    from flashmoe_sim.systems.resolve import OneSystem
    from flashmoe_sim.tune.next_run import Next
    from flashmoe_sim.verbs.given import Model, Trace


@dataclass(frozen=True, kw_only=True)
class NextRun(MemoryOptions):
    """Say which run would narrow the answer of `sim recommend` most, like `sim machine next`.

    Raises BadInput for unknown words, and if nothing can run.
    """

    trace: Trace | None = field(default=None, kw_only=False, metadata=option("[TRACE]", "", positional=True))
    model: Model | None = field(default=None, metadata=MODEL)
    machine: OneMachine = field(metadata=option("X", "This machine: a name from `sim machine list`, a file, or parts."))
    systems: OneSystem | Iterable[OneSystem] = option_field(
        "all", "S,S", "Only runs of these systems; see `sim system list`.", flag="--system"
    )
    measured: Several = field(default=(), metadata=MEASURED)

    def run(self, progress: Callable[[int, int], None] | None = None) -> Next:
        """Search each system's best setting, and say what measuring it would tell."""
        from flashmoe_sim.systems.fits import nothing_runs
        from flashmoe_sim.systems.resolve import resolve
        from flashmoe_sim.tune.next_run import next_runs
        from flashmoe_sim.tune.search import search
        from flashmoe_sim.verbs.given import learnt_machine, workload_and_model

        workload, model = workload_and_model(self.trace, self.model)
        machine = learnt_machine(self.machine, self.measured, workload=workload, model=model)
        on = resolve(workload=workload, model=model, machine=machine, systems=self.systems, memory=self)
        assert on.workload is not None
        tried = search(on.workload, on.case, on.systems, borrowed=bool(on.borrowed), progress=progress)
        best = [one.best for one in tried.systems]
        found = next_runs(best, on.case)
        if found is None:
            raise nothing_runs(on.case, [(one.system, one.why_not) for one in best])
        return replace(found, notes=on.notes)
