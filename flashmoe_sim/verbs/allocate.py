"""`sim allocate`: slots by layer in the memory of a bank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flashmoe_sim.options import MODEL, option
from flashmoe_sim.question import MACHINE, BankOptions, ConditionOptions

if TYPE_CHECKING:
    from flashmoe_sim.machines.machine import OneMachine
    from flashmoe_sim.tune.layers import LayerBanks
    from flashmoe_sim.verbs.given import Model, Trace


@dataclass(frozen=True, kw_only=True)
class Allocate(ConditionOptions, BankOptions):
    """Distribute a bank's memory over the layers so that the fewest bytes are missed, like `sim allocate`.

    >>> best = allocate("python-256", bank=64)
    >>> sum(best.asked_misses), sum(best.misses)
    (10834, 10688)
    >>> replay("python-256", bank=best.bank)["misses"].item()
    10688

    The slots are chosen for this trace; `held_out` is what slots chosen on its first half avoid in its second half.
    With a machine, `speed` has both banks in seconds. docs/background/why.md explains.
    Raises BadInput for a policy whose layers depend on each other, and for a bank that does not fit.
    """

    trace: Trace = field(kw_only=False, metadata=option("TRACE", "", positional=True))
    least: int | None = field(
        default=None, metadata=option("N", "Fewest slots of a layer; default: the experts per token.", least=1)
    )
    machine: OneMachine | None = field(default=None, metadata=MACHINE)
    model: Model | None = field(default=None, metadata=MODEL)

    def run(self, progress: Callable[[int, int], None] | None = None) -> LayerBanks:
        """Choose the slots of each layer."""
        from flashmoe_sim.tune.layers import allocate
        from flashmoe_sim.verbs.given import task_of

        task = task_of(self)
        return allocate(
            task.workload,
            task.setup,
            least=self.least,
            machine=task.machine,
            conditions=task.conditions,
            progress=progress,
        )
