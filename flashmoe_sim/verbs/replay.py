"""`sim replay`: one trace, one bank, one policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from flashmoe_sim.io.errors import Conflict, Incomplete, Unsupported
from flashmoe_sim.io.sections import Column, Section, Table, count, pairs, percent, table
from flashmoe_sim.io.sizes import size, three
from flashmoe_sim.options import FORCE, MODEL, option, option_field
from flashmoe_sim.question import IN_CHUNKS, MACHINE, MINOR, ConditionOptions, SetupOptions, bank_text, slots_hint
from flashmoe_sim.verbs.base import Progress, Verb

if TYPE_CHECKING:
    import polars

    from flashmoe_sim.machines.machine import Machine, OneMachine
    from flashmoe_sim.residency.counts import Counts
    from flashmoe_sim.residency.replay import Replayed
    from flashmoe_sim.residency.workload import Setup
    from flashmoe_sim.sweep.task import Task
    from flashmoe_sim.timeline.from_replay import Timed
    from flashmoe_sim.trace.routing import RoutingTrace
    from flashmoe_sim.verbs.given import Model, Trace

LAYER_ROWS = 16
LEAST_SHARE = 0.0005
BOTTLENECKS = {
    "compute": "computing: layers, experts, finding slots",
    "upload": "uploads and installs",
    "read": "reads",
    "cpu": "misses computed on the CPU",
    "none": "nothing",
}
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
        from flashmoe_sim.timeline.from_replay import time_replay

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
        from flashmoe_sim.sweep.task import seconds

        return {} if self.timed is None else seconds(self.task, self.timed)

    def table(self, by: By = "trace") -> polars.DataFrame:
        """One row of docs/reference/columns.md, or one for every layer, step or request.

        Raises BadInput for requests if the trace does not record them.
        """
        from flashmoe_sim.schema import LAYER_COLUMNS, frame
        from flashmoe_sim.sweep.task import Task, row_of

        if by == "layer":
            who = Task(self.task.workload, self.task.setup).identity()
            return frame([who | row for row in self.counts.by_layer()], LAYER_COLUMNS)
        if by != "trace":
            from flashmoe_sim.residency.by_step import by_request, by_step

            assert self.replayed is not None
            who = Task(self.task.workload, self.task.setup).identity()
            return (by_step if by == "step" else by_request)(self.task.workload.trace, self.replayed, who)
        return frame([row_of(self.task, self.counts.total() | (self.seconds or {}))])


@dataclass(frozen=True, kw_only=True)
class Replay(SetupOptions, ConditionOptions, Verb[Counted]):
    """Replay a trace against one bank: one row of docs/reference/columns.md, or one for every layer, step or request.

    >>> replay("python-256", bank=64, policy="lru", contract="protected")["hits"].item()
    37414
    >>> replay("python-256", bank=64, by="layer").select("layer", "misses").row(0)
    (0, 1353)

    `contract="runtime"` reproduces the patched runtime with its slot aliasing (column `aliased_refs`). With a machine,
    the row also has the speed on it.
    Raises BadInput for an impossible combination, and for a bank that does not fit the trace or the machine.
    """

    reads: ClassVar[bool] = True
    shown: ClassVar[tuple[str, ...]] = ("bank", "policy", "contract", "prefetch", "model", "machine")
    help: ClassVar[str] = """Replay TRACE against one bank and count hits, misses and evictions exactly.

    --machine adds the decode speed and where the time goes.

    TRACE is a file, or a name from `sim trace catalog`.

    \b
    Examples:  sim replay python-256 --bank 64 --policy lru
               sim replay gpt-oss-120b --bank 32 --machine m3-max-48
    """

    trace: Trace = field(kw_only=False, metadata=option("TRACE", "", positional=True))
    minor: str | None = field(default=None, metadata=MINOR)
    machine: OneMachine | None = field(default=None, metadata=MACHINE)
    model: Model | None = field(default=None, metadata=MODEL)
    by: By = option_field("trace", "", "trace: one row; layer, step or request: a row for every one.", in_python=True)
    timeline: Path | None = option_field(
        None, "FILE", "Write a timeline of every resource, for ui.perfetto.dev.", on_command_line=True
    )
    force: bool = field(default=False, metadata=FORCE)
    all_layers: bool = option_field(False, "", "A row for every layer, not only for the worst.", on_command_line=True)
    in_chunks: bool = field(default=False, metadata=IN_CHUNKS)

    def check(self) -> None:
        """Raise BadInput for options that do not belong together, and for a timeline that exists."""
        from flashmoe_sim.io.whole import refuse_existing
        from flashmoe_sim.residency.workload import why_not_on_disk
        from flashmoe_sim.sweep.plan import plan

        if self.in_chunks:
            if self.machine is not None or self.timeline is not None:
                raise Conflict(
                    "--in-chunks only counts; leave out --machine and --timeline, or replay the trace in memory"
                )
            if reason := why_not_on_disk(plan(self)[0]):
                raise Unsupported(reason)
        if self.machine is None and self.timeline is not None:
            raise Incomplete("--timeline shows the seconds of a machine; give --machine, see `sim machine list`")
        if self.timeline is not None:
            refuse_existing(self.timeline, force=self.force)

    def run(self, progress: Progress | None = None) -> Counted:
        """Replay the trace, and time it if there is a machine; rows of layers, steps and requests have no seconds."""
        counted = self._count(progress)
        return counted.time(record=self.timeline is not None) if self.by == "trace" else counted

    def _count(self, progress: Progress | None = None) -> Counted:
        """Replay the trace, without seconds."""
        from flashmoe_sim.residency.many import count
        from flashmoe_sim.residency.replay import replay
        from flashmoe_sim.verbs.given import task_of

        task = task_of(self)
        if task.machine is None and self.by in ("trace", "layer"):
            return Counted(task, count(task.workload, task.setup, progress=progress))
        replayed = replay(task.workload, task.setup, record=True, progress=progress)
        return Counted(task, replayed.counts, replayed)

    def document(self, found: Counted) -> dict[str, Any]:
        """What `--json` prints."""
        task, counts, timing = found.task, found.counts, None
        if found.timed is not None and task.machine is not None:
            timing = found.timed.as_json() | found.seconds | {"notes": list(task.machine.notes)}
        return {"identity": task.identity(), "counts": counts.total(), "layers": counts.by_layer(), "timing": timing}

    def finish(self, found: Counted) -> Iterator[str]:
        """Write the timeline, and say whether experts of one call shared a slot."""
        total = found.counts.total()
        if aliased := total["aliased_refs"]:
            yield (
                f"slot aliasing: {aliased:,} of {total['requests']:,} requests ({aliased / total['requests']:.1%}) "
                "lost their slot to another expert of the same call, and the runtime computes them with that expert's "
                "weights; --contract protected avoids it"
            )
        if self.timeline is not None and found.timed is not None:
            from flashmoe_sim.timeline.perfetto import write_perfetto

            of_layers = found.task.workload.trace.layers
            write_perfetto(found.timed.timeline, found.timed.work, self.timeline, layers=of_layers, force=self.force)
            yield f"wrote {self.timeline}; open it in ui.perfetto.dev"

    def sections(self, found: Counted) -> list[Section]:
        """The counts, the seconds on a machine, and the layers."""
        task, parts = found.task, []
        if found.timed is not None and task.machine is not None:
            parts.append(_timing(found.timed, task.machine, found.seconds))
        total = _total(task.workload.trace, task.setup, found.counts.total())
        return [Section("", (total, *parts, _layers(found.counts.by_layer(), all_layers=self.all_layers)))]


def _total(trace: RoutingTrace, setup: Setup, total: dict[str, Any]) -> Table:
    rows = [
        ("routed calls", f"{total['calls']:,}"),
        ("references", f"{total['refs']:,}"),
        ("requests", f"{total['requests']:,}"),
        ("hits", f"{total['hits']:,}  ({total['hit_rate']:.1%})"),
        ("misses", f"{total['misses']:,}"),
        ("  cold installs", f"{total['cold_installs']:,}"),
        ("  evictions", f"{total['evictions']:,}"),
        ("  served without install", f"{total['bypassed']:,}"),
        ("calls without a miss", f"{total['full_hit_calls']:,}  ({total['full_hit_rate']:.1%})"),
        ("aliased references", f"{total['aliased_refs']:,}"),
    ]
    hints = [slots_hint(trace, setup.contract)]
    if (rule := setup.policy.minor_rule) is not None:
        rows.insert(8, ("  of minor experts", f"{total['minor_misses']:,}"))
        cost = {"drop": "neither read nor computed", "substitute": "a resident is computed", "half": "half the bytes"}
        costs = f"minor experts that miss: {cost[rule.kind]}; what that does to the text is not known"
        hints.append(rule.why_none(trace.top_k) or costs)
    if total["misses_per_token"] is not None:
        rows.append(("misses per token", f"{total['misses_per_token']:.2f}"))
    if total["bytes_read"] is not None:
        rows.append(("bytes the misses read", f"{size(total['bytes_read'])} in {total['read_ops']:,} reads"))
        if total["bytes_per_token"] is not None:
            rows.append(("bytes per token", size(total["bytes_per_token"])))
        rows.append(("memory of the banks", size(total["resident_bytes"])))
    useful, issued = total["prefetch_useful"], total["prefetch_issued"]
    if setup.prefetch.name != "none":
        rows.append(("prefetched", f"{issued:,} of {total['prefetch_requests']:,} asked for; {useful:,} used"))
    elif issued:
        rows.append(("loaded between steps", f"{issued:,}; {useful:,} of them used"))
    title = f"{trace.name}: {setup.policy.spec}, {bank_text(setup)}, contract {setup.contract}"
    return pairs(rows, title=title, caption="\n".join(filter(None, hints)))


def _layers(layers: list[dict[str, Any]], *, all_layers: bool) -> Table:
    shown = layers
    if len(layers) > LAYER_ROWS and not all_layers:
        shown = sorted(layers, key=lambda row: (-row["misses"], row["layer"]))[:LAYER_ROWS]
    columns: list[Column] = [
        ("layer", "right", lambda row: str(row["layer"])),
        ("calls", "right", lambda row: count(row["calls"])),
        ("requests", "right", lambda row: count(row["requests"])),
        ("hit %", "right", lambda row: percent(row["hit_rate"])),
        ("misses", "right", lambda row: count(row["misses"])),
        ("cold", "right", lambda row: count(row["cold_installs"])),
        ("evicted", "right", lambda row: count(row["evictions"])),
        ("aliased", "right", lambda row: count(row["aliased_refs"])),
        ("read", "right", lambda row: size(row["bytes_read"])),
    ]
    left_out = len(layers) - len(shown)
    caption = f"the {len(shown)} layers with most misses; --all-layers shows all {len(layers)}" if left_out else ""
    return table(columns, shown, caption=caption, dispensable=("aliased", "calls", "cold"))


def _speed(tok_s: float | None, lo: float | None = None, hi: float | None = None) -> str:
    """`8.1 tok/s (7.6 to 8.7)`."""
    if tok_s is None:
        return "-"
    interval = "" if lo is None or hi is None else f" ({three(lo)} to {three(hi)})"
    return f"{three(tok_s)} tok/s{interval}"


def _timing(timed: Timed, machine: Machine, seconds: dict[str, Any]) -> Table:
    """Speed, steps, and where a token's time goes."""
    from flashmoe_sim.timeline.names import PART_WORDS

    timing = timed.timing
    rows = [("decode", _speed(timing.tok_s, timed.tok_s_lo, timed.tok_s_hi))]
    if timing.warm_up_tok_s is not None:
        rows.append(("  while the bank fills", _speed(timing.warm_up_tok_s)))
        rows.append(("  then", _speed(timing.steady_tok_s)))
    if timing.prompt_tok_s is not None:
        rows.append(("prompt", _speed(timing.prompt_tok_s)))
    steps = [ms for ms in (timing.step_ms_p50, timing.step_ms_p95, timing.step_ms_p99) if ms is not None]
    if steps:
        rows.append(("a step, P50 / P95 / P99", " / ".join(map(three, steps)) + " ms"))
    per_token = sum(timing.part_ms_per_token.values())
    if timing.part_ms_per_token:
        rows.append(("a token", f"{three(per_token)} ms"))
    for name, ms in timing.part_ms_per_token.items():
        if ms > LEAST_SHARE * per_token:
            rows.append((f"  {PART_WORDS[name]}", f"{three(ms)} ms  ({ms / per_token:.0%})"))
    rows.append(("what holds it back most", BOTTLENECKS[seconds["bottleneck"]]))
    rows.append(("read from storage", size(timed.storage_bytes)))
    rows.append(("read from the page cache", size(timed.page_cache_bytes)))
    title = f"on {machine.name}: {machine.title}; {seconds['execution']}"
    caption = "in brackets the 90% interval: the machine, the luck of the trace, and the spread between runs"
    return pairs(rows, title=title, caption="; ".join((caption, *machine.notes)))
