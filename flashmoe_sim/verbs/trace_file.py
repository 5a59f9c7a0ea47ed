"""`sim trace convert`, `cut`, `merge` and `speculate`, and what all verbs that make a trace share: their file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.errors import Conflict, Incomplete, Malformed, OutOfRange
from flashmoe_sim.io.sections import Section, Verbatim
from flashmoe_sim.io.sizes import parse_numbers
from flashmoe_sim.options import FORCE, option, option_field
from flashmoe_sim.verbs.base import Progress, Stages, Verb, stage

if TYPE_CHECKING:
    from flashmoe_sim.trace.long_traces import LongTrace
    from flashmoe_sim.trace.routing import RoutingTrace
    from flashmoe_sim.verbs.given import Load, LoadLong


NAMES = {".parquet": "parquet", ".jsonl": "jsonl", ".jsonl.gz": "jsonl", ".jsonl.zst": "jsonl"}


@dataclass(frozen=True, eq=False)
class WrittenTrace:
    """What was written, for `--json`; notes: what the user should know about it."""

    document: dict[str, Any]
    notes: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class TraceFile(Verb[WrittenTrace]):
    """A verb that makes a trace, and writes it; an existing file is refused before anything is read."""

    out: Path = field(metadata=option("FILE", "The file to write.", on_command_line=True))
    to: str | None = option_field(
        None, "", "Format; default: from OUT's name.", choices=("parquet", "jsonl"), on_command_line=True
    )
    force: bool = field(default=False, metadata=FORCE)

    def check(self) -> None:
        """Raise BadInput for a file that exists, and for a name that gives no format."""
        from flashmoe_sim.io.whole import refuse_existing

        if not self.format:
            raise Malformed(f"{self.out}: the name gives no format; end it in {', '.join(NAMES)}, or give --to")
        refuse_existing(self.out, force=self.force)

    @property
    def suffix(self) -> str:
        """The end of the file's name that gives a format; empty if none does."""
        return max((one for one in NAMES if self.out.name.endswith(one)), key=len, default="")

    @property
    def format(self) -> str:
        """The given format, else the one of the file's name; empty if the name gives none."""
        return self.to or NAMES.get(self.suffix, "")

    def write(self, trace: RoutingTrace, stages: Stages | None = None) -> dict[str, Any]:
        """Write it, and say what was written."""
        from flashmoe_sim.trace.store import write_store
        from flashmoe_sim.trace.write_jsonl import lost_in_jsonl, write_jsonl

        out, as_store = self.out, self.format == "parquet"
        progress = stage(stages, f"writing {out.name}")
        (write_store if as_store else write_jsonl)(trace, out, force=self.force, progress=progress)
        lost = () if as_store else lost_in_jsonl(trace)
        sizes = {"calls": trace.calls, "refs": trace.refs, "tokens": trace.tokens, "bytes": out.stat().st_size}
        return {"out": str(out), "format": self.format, **sizes, "not_kept": list(lost)}

    def write_long(self, trace: LongTrace) -> dict[str, Any]:
        """Write a store while the trace is read, and say what was written."""
        from flashmoe_sim.trace.store import write_chunks

        written = write_chunks(trace, self.out, force=self.force)._asdict()
        return {"out": str(self.out), "format": "parquet", **written, "bytes": self.out.stat().st_size, "not_kept": []}

    def finish(self, found: WrittenTrace) -> Iterator[str]:
        """What the file does not keep, and notes on the trace."""
        if lost := found.document["not_kept"]:
            yield f"{self.out}: the runtime's layout has no place for {', '.join(lost)}"
        yield from (f"{self.out}: {note}" for note in found.notes)

    def document(self, found: WrittenTrace) -> dict[str, Any]:
        """What `--json` prints."""
        return found.document

    def sections(self, found: WrittenTrace) -> list[Section]:
        """The file and its size."""
        of = found.document
        line = f"{of['out']}: {of['calls']:,} calls, {of['refs']:,} references, {of['bytes']:,} bytes"
        return [Section("", (Verbatim(line),))]


@dataclass(frozen=True, kw_only=True)
class SecondTraceFile(TraceFile):
    """A verb that writes the trace that it reads, changed, to a file named after it."""

    out: Path = field(metadata=option("OUT", "", positional=True))


@dataclass(frozen=True, kw_only=True)
class Convert(SecondTraceFile):
    """Write a trace in another format."""

    reads: ClassVar[bool] = True
    help: ClassVar[str] = """Write a trace as Parquet (keeps everything) or in the runtime's JSONL layout.

    From the runtime's JSONL or Parquet to Parquet, memory use does not grow with the length of the trace.
    """

    trace: str = field(kw_only=False, metadata=option("TRACE", "", positional=True))

    def run(
        self, stages: Stages | None = None, load: Load | None = None, load_long: LoadLong | None = None
    ) -> WrittenTrace:
        """Write it, a store while it is read."""
        from flashmoe_sim.trace.load import load_trace, open_long

        if self.format == "parquet":
            with (load_long or open_long)(self.trace) as long:
                return WrittenTrace(self.write_long(long))
        return WrittenTrace(self.write((load or load_trace)(self.trace), stages))


def _steps(text: str) -> tuple[int | None, int | None]:
    """A range of steps: A:B, A: or :B."""
    begin, colon, end = (part.strip() for part in text.partition(":"))
    if not colon or any(part and not part.isdecimal() for part in (begin, end)) or len(begin + end) > 18:
        raise Malformed(f"--steps {text!r}: expected A:B, for example 10:500, or 10: or :500")
    first, last = int(begin) if begin else None, int(end) if end else None
    if first is not None and last is not None and last <= first:
        raise OutOfRange(f"--steps {text!r}: keeps nothing; B must be greater than A")
    return first, last


@dataclass(frozen=True, kw_only=True)
class Cut(SecondTraceFile):
    """Write a trace with fewer ranks, layers or steps.

    Raises BadInput if nothing is to be cut, or nothing would be left.
    """

    reads: ClassVar[bool] = True
    help: ClassVar[str] = "Write a part of a trace: fewer ranks, layers or steps."

    trace: str = field(kw_only=False, metadata=option("TRACE", "", positional=True))
    top_k: int | None = option_field(None, "K", "Keep the first K ranks of every token.", flag="--topk")
    layers: Sequence[int] | None = option_field(
        None, "0-11,20", "Keep these layers.", parse=partial(parse_numbers, option="--layers")
    )
    steps: tuple[int | None, int | None] | None = option_field(
        None, "A:B", "Keep the steps from A up to, not including, B; either can be left out.", parse=_steps
    )

    def __post_init__(self) -> None:
        if self.top_k is None and self.layers is None and self.steps is None:
            raise Incomplete("nothing to cut; give --topk, --layers or --steps")

    def run(self, stages: Stages | None = None, load: Load | None = None) -> WrittenTrace:
        """Cut the trace, and write it."""
        from flashmoe_sim.trace.cut import cut
        from flashmoe_sim.trace.load import load_trace

        trace = (load or load_trace)(self.trace)
        part = cut(trace, top_k=self.top_k, layers=self.layers, steps=self.steps)
        return WrittenTrace(self.write(part, stages))


@dataclass(frozen=True, kw_only=True)
class Speculate(TraceFile):
    """Write a trace whose decode steps verify drafted tokens.

    Raises BadInput for a number of tokens or a probability that cannot be, and for an unknown kind of rejected token.
    """

    reads: ClassVar[bool] = True
    help: ClassVar[str] = """Write a trace as speculative decoding would route it.

    A decode step and the K drafted tokens after it become one step, whose calls request the union of their experts.
    With --accept the next step begins at the first token that was not accepted. The result's tokens are those computed,
    rejected ones included: compare total misses, which are for the same text, not misses per token.

    \b
    Example:  sim trace speculate python-256 --draft 3 --out drafted.parquet
    """

    trace: str = field(kw_only=False, metadata=option("TRACE", "", positional=True))
    draft: int = field(metadata=option("K", "Tokens drafted before each decode step."))
    accept: float = option_field(
        1.0, "P", "Probability that a drafted token is accepted, given that those before it were."
    )
    rejected: str = option_field(
        "random",
        "WHAT",
        "Experts assumed for a rejected token. random: those of a random step (pessimistic); next: those of "
        "the true token (optimistic).",
    )
    seed: int = option_field(0, "N", "Seed of the random draws.")

    def run(self, stages: Stages | None = None, load: Load | None = None) -> WrittenTrace:
        """Make the trace, and write it."""
        from flashmoe_sim.trace.load import load_trace
        from flashmoe_sim.trace.speculate import speculate

        trace = (load or load_trace)(self.trace)
        stage(stages, "speculating")
        made = speculate(trace, draft=self.draft, accept=self.accept, rejected=self.rejected, seed=self.seed)
        return WrittenTrace(self.write(made, stages), [note for note in made.notes if note not in trace.notes])


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
