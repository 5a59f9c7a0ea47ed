"""`sim diagnose`: is it the policy or the working set?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flashmoe_sim.options import MODEL, option
from flashmoe_sim.question import SCOPE, BankOptions

if TYPE_CHECKING:
    from flashmoe_sim.ceilings.diagnose import Diagnosis
    from flashmoe_sim.verbs.given import Model, Trace


@dataclass(frozen=True, kw_only=True)
class Diagnose(BankOptions):
    """Say whether misses are due to the policy or to the working set, like `sim diagnose`.

    docs/background/diagnosis.md explains the verdict.

    >>> diagnose("python-256", bank=64).verdict.kind
    'policy'

    Without a trace, the first of the catalogue is used.
    Raises BadInput for an impossible combination, and for a bank that does not fit the trace.
    """

    trace: Trace | None = field(default=None, kw_only=False, metadata=option("[TRACE]", "", positional=True))
    scope: str = field(default="layer", metadata=SCOPE)
    model: Model | None = field(default=None, metadata=MODEL)
    seed: int = field(default=1, metadata=option("N", "Of the random traces with which this one is compared."))

    def run(self, progress: Callable[[int, int], None] | None = None) -> Diagnosis:
        """Diagnose the trace's misses."""
        from flashmoe_sim.ceilings.diagnose import diagnose
        from flashmoe_sim.verbs.given import task_of

        task = task_of(self)
        return diagnose(task.workload, task.setup, seed=self.seed, progress=progress)
