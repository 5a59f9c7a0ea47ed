"""`sim ceilings`: how fast could it run at best on this machine?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.sections import Column, Section, interval, percent, speed, table
from flashmoe_sim.io.sizes import three
from flashmoe_sim.options import MEASURED, MODEL, Several, option, option_field
from flashmoe_sim.question import ConditionOptions, SetupOptions, bank_text
from flashmoe_sim.verbs.base import Progress, Verb

if TYPE_CHECKING:
    from flashmoe_sim.ceilings.speed import SpeedCeilings
    from flashmoe_sim.machines.machine import OneMachine
    from flashmoe_sim.verbs.given import Model, Trace


@dataclass(frozen=True, kw_only=True)
class Ceilings(SetupOptions, ConditionOptions, Verb["SpeedCeilings"]):
    """Say how fast a run could be on a machine, like `sim ceilings`; docs/background/ceilings.md explains.

    >>> found = ceilings("python-256", machine="vm-2core", bank=64, dense="2GiB")
    >>> found.verdict.kind
    'compute'
    >>> [row.name for row in found.rows][:3]
    ['this', 'stock', 'all-hit']

    Raises BadInput for an impossible combination, and for a bank that does not fit the trace or the machine.
    """

    reads: ClassVar[bool] = True
    shown: ClassVar[tuple[str, ...]] = ("bank", "policy", "contract", "model", "machine", "context")
    help: ClassVar[str] = """Show how fast TRACE could decode at best on a machine, and what limits it.

    TRACE is a file, - for stdin, or a name from `sim trace catalog`. docs/background/ceilings.md explains each ceiling.

    \b
    Example:  sim ceilings gpt-oss-120b --bank 32 --machine m3-max-48
    """

    trace: Trace = field(kw_only=False, metadata=option("TRACE", "", positional=True))
    machine: OneMachine = field(metadata=option("X", "A name from `sim machine list`, a file, parts, or this."))
    model: Model | None = field(default=None, metadata=MODEL)
    measured: Several = field(default=(), metadata=MEASURED)
    lookahead: int = option_field(16, "W", "Steps that the row lookahead-W looks ahead.", least=0, most=2**31 - 1)

    def run(self, progress: Progress | None = None) -> SpeedCeilings:
        """Compute every ceiling, and what limits the run."""
        from flashmoe_sim.ceilings.speed import ceilings
        from flashmoe_sim.verbs.given import task_of

        task = task_of(self)
        assert task.machine is not None
        assert task.conditions is not None
        return ceilings(
            task.workload, task.setup, task.machine, task.conditions, lookahead=self.lookahead, progress=progress
        )

    def document(self, found: SpeedCeilings) -> dict[str, Any]:
        """What `--json` prints."""
        from flashmoe_sim.verbs.given import task_of

        return {"identity": task_of(self).identity(), "ceilings": found.to_dict()}

    def sections(self, found: SpeedCeilings) -> list[Section]:
        """A row for each ceiling, and the verdict."""
        from flashmoe_sim.io.sizes import size
        from flashmoe_sim.sweep.plan import plan

        columns: list[Column] = [
            ("", "left", lambda row: row.name),
            ("hit %", "right", lambda row: percent(row.hit_rate)),
            ("reads/tok", "right", lambda row: f"{row.reads_per_token:.1f}"),
            ("read/tok", "right", lambda row: size(row.bytes_per_token)),
            ("tok/s", "right", lambda row: speed(row.tok_s)),
            ("90%", "right", lambda row: interval(row.tok_s_lo, row.tok_s_hi)),
            ("ms/tok", "right", lambda row: three(row.ms_per_token)),
        ]
        setup, _ = plan(self)
        ahead = "" if found.prefetch == "none" else f", prefetch {found.prefetch}"
        title = (
            f"{found.trace} on {found.machine}: {found.policy}, {bank_text(setup)}, contract "
            f"{found.contract}{ahead}, {found.execution}"
        )
        notes = [f"bandwidth limit: {found.floor.resource.replace('_', ' ')}", *found.notes]
        rows = table(columns, found.rows, title=title, caption="\n".join(notes), dispensable=("reads/tok", "ms/tok"))
        return [Section("", (rows, found.verdict.text))]
