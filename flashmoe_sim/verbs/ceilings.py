"""`sim ceilings`: how fast could it run at best on this machine?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flashmoe_sim.options import MODEL, option
from flashmoe_sim.question import ConditionOptions, SetupOptions

if TYPE_CHECKING:
    from flashmoe_sim.ceilings.speed import SpeedCeilings
    from flashmoe_sim.machines.machine import OneMachine
    from flashmoe_sim.verbs.given import Model, Trace


@dataclass(frozen=True, kw_only=True)
class Ceilings(SetupOptions, ConditionOptions):
    """Say how fast a run could be on a machine, like `sim ceilings`; docs/background/ceilings.md explains.

    >>> found = ceilings("python-256", machine="vm-2core", bank=64, dense="2GiB")
    >>> found.verdict.kind
    'compute'
    >>> [row.name for row in found.rows][:3]
    ['this', 'stock', 'all-hit']

    Raises BadInput for an impossible combination, and for a bank that does not fit the trace or the machine.
    """

    trace: Trace = field(kw_only=False, metadata=option("TRACE", "", positional=True))
    machine: OneMachine = field(metadata=option("X", "A name from `sim machine list`, a file, or parts."))
    model: Model | None = field(default=None, metadata=MODEL)
    lookahead: int = field(
        default=16, metadata=option("W", "Steps that the row lookahead-W looks ahead.", least=0, most=2**31 - 1)
    )

    def run(self, progress: Callable[[int, int], None] | None = None) -> SpeedCeilings:
        """Compute every ceiling, and what limits the run."""
        from flashmoe_sim.ceilings.speed import ceilings
        from flashmoe_sim.verbs.given import task_of

        task = task_of(self)
        assert task.machine is not None
        assert task.conditions is not None
        return ceilings(
            task.workload, task.setup, task.machine, task.conditions, lookahead=self.lookahead, progress=progress
        )
