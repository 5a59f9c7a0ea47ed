"""`sim replay`: one trace, one bank, one policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from flashmoe_sim.options import MODEL, option, option_field
from flashmoe_sim.question import MACHINE, ConditionOptions, SetupOptions

if TYPE_CHECKING:
    import polars

    from flashmoe_sim.machines.machine import OneMachine
    from flashmoe_sim.residency.counts import Counts
    from flashmoe_sim.residency.replay import Replay as Replayed
    from flashmoe_sim.sweep.task import Task
    from flashmoe_sim.timeline.timed import Timed
    from flashmoe_sim.verbs.given import Model, Trace

By: TypeAlias = Literal["trace", "layer", "step", "request"]


@dataclass(frozen=True, eq=False)
class Counted:
    """The counts of a replay, and its seconds if it was timed on a machine.

    replayed: with a machine, the replay that is timed; also for rows of steps and requests.
    """

    task: Task
    counts: Counts
    replayed: Replayed | None = None
    timed: Timed | None = None

    def time(self, *, record: bool = False) -> Counted:
        """The same with its seconds; without a machine there are none.

        record: also keep the timeline of every resource.
        """
        from flashmoe_sim.timeline.timed import time_replay

        task = self.task
        if task.machine is None:
            return self
        assert task.conditions is not None
        assert self.replayed is not None
        return replace(
            self,
            timed=time_replay(task.workload, self.replayed, task.machine, task.conditions, record=record),
        )

    @cached_property
    def seconds(self) -> dict[str, Any]:
        """The columns of schema.TIMING, if it was timed."""
        from flashmoe_sim.sweep.row import seconds

        return {} if self.timed is None else seconds(self.task, self.timed)

    def table(self, by: By = "trace") -> polars.DataFrame:
        """One row of docs/reference/columns.md, or one for every layer, step or request.

        Raises BadInput for requests if the trace does not record them.
        """
        from flashmoe_sim.schema import LAYER_COLUMNS, frame
        from flashmoe_sim.sweep.row import result_row
        from flashmoe_sim.sweep.task import Task

        if by == "layer":
            who = Task(self.task.workload, self.task.setup).identity()
            return frame([who | row for row in self.counts.by_layer()], LAYER_COLUMNS)
        if by != "trace":
            from flashmoe_sim.residency.by_step import by_request, by_step

            assert self.replayed is not None
            who = Task(self.task.workload, self.task.setup).identity()
            return (by_step if by == "step" else by_request)(self.task.workload.trace, self.replayed, who)
        return frame([result_row(self.task, self.counts, best=None, timing=self.seconds)])


@dataclass(frozen=True, kw_only=True)
class Replay(SetupOptions, ConditionOptions):
    """Replay a trace against one bank: one row of docs/reference/columns.md, or one for every layer, step or request.

    >>> replay("python-256", bank=64, policy="lru", contract="protected")["hits"].item()
    37414
    >>> replay("python-256", bank=64, by="layer").select("layer", "misses").row(0)
    (0, 1353)

    `contract="runtime"` reproduces the patched runtime with its slot aliasing (column `aliased_refs`). With a machine,
    the row also has the speed on it.
    Raises BadInput for an impossible combination, and for a bank that does not fit the trace or the machine.
    """

    trace: Trace = field(kw_only=False, metadata=option("TRACE", "", positional=True))
    machine: OneMachine | None = field(default=None, metadata=MACHINE)
    model: Model | None = field(default=None, metadata=MODEL)
    by: By = option_field("trace", "", "trace: one row; layer, step or request: a row for every one.", in_python=True)

    def count(self, progress: Callable[[int, int], None] | None = None) -> Counted:
        """Replay the trace, without seconds."""
        from flashmoe_sim.residency.many import count
        from flashmoe_sim.residency.replay import replay
        from flashmoe_sim.verbs.given import task_of

        task = task_of(self)
        if task.machine is None and self.by in ("trace", "layer"):
            return Counted(task, count(task.workload, task.setup, progress=progress))
        replayed = replay(task.workload, task.setup, record=True, progress=progress)
        return Counted(task, replayed.counts, replayed)

    def run(self, progress: Callable[[int, int], None] | None = None) -> Counted:
        """Replay the trace, and time it if there is a machine; rows of layers, steps and requests have no seconds."""
        counted = self.count(progress)
        return counted.time() if self.by == "trace" else counted
