"""`sim trace merge`: several traces as one workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from flashmoe_sim.io.errors import Conflict, Incomplete
from flashmoe_sim.options import option, option_field
from flashmoe_sim.verbs.base import Progress, Stages, stage
from flashmoe_sim.verbs.trace_file import TraceFile, WrittenTrace

if TYPE_CHECKING:
    from flashmoe_sim.trace.routing import RoutingTrace
    from flashmoe_sim.verbs.given import Load

IN_STEP = (
    "one recording is there several times, and its copies run in step: they share every expert, which separate "
    "requests do not; give other recordings, --arrivals, or --how union with --stagger"
)


@dataclass(frozen=True, kw_only=True)
class Merge(TraceFile):
    """Write several traces of one model as one workload.

    Raises BadInput for options that do not belong together, and for traces that do not.
    """

    reads: ClassVar[bool] = True
    help: ClassVar[str] = """Write several traces of one model as one workload.

    --concurrency is a server under load. Its requests are the sequences of the traces, in order; each step decodes the
    next token of all running requests, in one call per layer, which requests the union of their experts.

    --how union decodes the traces together from the first step to the last. TRACE may be given more than once;
    --stagger then keeps the copies from requesting the same experts. A trace drops out at its end: to avoid that,
    concat it with itself first, or cut the others.

    \b
    Examples:  sim trace merge python-256 prose-256 cpp-256 --concurrency 2 \\
               --out served.parquet
               sim trace merge python-256 prose-256 --how union --out two.parquet
    """

    traces: tuple[str, ...] = field(kw_only=False, metadata=option("TRACE...", "", positional=True))
    concurrency: int | None = option_field(
        None, "C", "Batch as a server does: at most C requests at once; another starts when one ends.", least=1
    )
    prefill_chunk: int | None = option_field(
        None,
        "N",
        "With --concurrency: the most prompt tokens in a step, over all requests; default: prompts as recorded.",
        least=1,
    )
    arrivals: Path | None = option_field(
        None,
        "FILE",
        "With --concurrency: when each request arrives, in seconds, one per line; default: all wait at the start.",
    )
    step_ms: float | None = option_field(None, "MS", "With --arrivals: the time of a step.", above=0)
    how: str | None = option_field(
        None,
        "",
        "union: step i of all is one step; concat: one after another; interleave: --every steps of each in turn.",
        choices=("union", "concat", "interleave"),
    )
    stagger: int | None = option_field(
        None,
        "STEPS",
        "With union: begin each TRACE this many steps further on than the one before, and wrap around at its end.",
        least=0,
    )
    every: int | None = option_field(None, "STEPS", "With interleave: steps per turn.", least=1)

    def __post_init__(self) -> None:
        how = self.how
        if (how is None) == (self.concurrency is None):
            raise Conflict("give --concurrency for a server's batches, or --how union, concat or interleave")
        given = "--concurrency" if how is None else f"--how {how}"
        if how is not None and (self.prefill_chunk or self.arrivals or self.step_ms):
            raise Conflict(f"--prefill-chunk, --arrivals and --step-ms belong to --concurrency, not {given}")
        if (self.arrivals is None) != (self.step_ms is None):
            raise Incomplete("--arrivals needs --step-ms" if self.arrivals else "--step-ms belongs to --arrivals")
        if how is not None and len(self.traces) < 2:
            raise Incomplete("one trace only; give at least two to merge")
        if self.stagger is not None and how != "union":
            raise Conflict(f"--stagger belongs to --how union, not {given}")
        if (self.every is None) == (how == "interleave"):
            raise Conflict(
                "--how interleave needs --every" if self.every is None else f"--every does not belong to {given}"
            )

    def run(self, stages: Stages | None = None, load: Load | None = None) -> WrittenTrace:
        """Read each trace once, merge them in their order, and write the result."""
        from flashmoe_sim.trace.load import load_trace
        from flashmoe_sim.trace.merge import notes_of

        read = {name: (load or load_trace)(name) for name in dict.fromkeys(self.traces)}
        if len({trace.name for trace in read.values()}) < len(read):
            read = {name: trace.with_(name=name) for name, trace in read.items()}
        parts = [read[name] for name in self.traces]
        merged = self._merged(parts, stage(stages, "merging"))
        known = notes_of(parts)
        return WrittenTrace(self.write(merged, stages), [note for note in merged.notes if note not in known])

    def _merged(self, parts: Sequence[RoutingTrace], progress: Progress | None) -> RoutingTrace:
        from flashmoe_sim.trace.batching import batched, read_arrivals
        from flashmoe_sim.trace.merge import concat, interleave, union

        if self.concurrency is not None:
            if len(parts) == 1 and (parts[0].sequence is None or len(set(parts[0].sequence.tolist())) == 1):
                raise Incomplete(
                    f"{self.traces[0]}: a single request; give a trace of several sequences, or more traces"
                )
            found = batched(
                parts,
                concurrency=self.concurrency,
                prefill_chunk=self.prefill_chunk,
                arrivals_s=None if self.arrivals is None else read_arrivals(self.arrivals),
                step_s=(self.step_ms or 0) / 1000,
                progress=progress,
            )
            in_step = self.arrivals is None and len({part.content_id for part in parts}) < len(parts)
            return found.with_(notes=(*found.notes, IN_STEP)) if in_step else found
        if self.how == "union":
            return union(parts, stagger=self.stagger or 0, progress=progress)
        if self.every is not None:
            return interleave(parts, every=self.every, progress=progress)
        return concat(parts, progress=progress)
