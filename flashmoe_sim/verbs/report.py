"""`sim report`: one page with everything, to send to a colleague."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashmoe_sim.options import MODEL, MemoryOptions, option
from flashmoe_sim.question import CONTRACT, RULES

if TYPE_CHECKING:
    from flashmoe_sim.machines.machine import OneMachine
    from flashmoe_sim.policies.bank import OneBank
    from flashmoe_sim.report.material import Material, Progress
    from flashmoe_sim.residency.workload import Workload
    from flashmoe_sim.verbs.given import Model


@dataclass(frozen=True, kw_only=True)
class Report(MemoryOptions):
    """Gather what a page shows of the rows of a sweep, or of traces that are swept for it.

    Raises BadInput whenever a sweep does, for traces of several models on one machine, and for a machine without a
    model.
    """

    sources: tuple[str, ...] = field(kw_only=False, metadata=option("RESULTS|TRACE...", "", positional=True))
    model: Model | None = field(default=None, metadata=MODEL)
    machine: OneMachine | None = field(
        default=None,
        metadata=option("X", "Say how fast it runs, and what to run, on this machine: a name, a file, or parts."),
    )
    bank: OneBank | None = field(
        default=None, metadata=option("SIZES", "Sizes as for `sim sweep`; default: 16 sizes up to all experts.")
    )
    policy: str = field(default="lru", metadata=RULES)
    contract: str = field(default="protected", metadata=CONTRACT)
    measured: str | Path | None = field(
        default=None,
        metadata=option("FILE", "A table with measured speeds to compare with, as for `sim predict --table`."),
    )

    def gather(
        self, rows: Sequence[dict[str, Any]], workloads: Sequence[Workload], progress: Progress | None = None
    ) -> Material:
        """The material of the page, from the rows and traces that `sources` name."""
        from flashmoe_sim.report.material import gather
        from flashmoe_sim.verbs.given import machine_of

        return gather(
            rows=rows,
            workloads=workloads,
            machine=None if self.machine is None else machine_of(self.machine),
            bank=self.bank,
            policy=self.policy,
            contract=self.contract,
            measured=self.measured,
            memory=self,
            progress=progress,
        )
