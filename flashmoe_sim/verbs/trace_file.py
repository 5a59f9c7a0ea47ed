"""`sim trace convert`, `cut` and `speculate`, and what all verbs that make a trace share: the file that they write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.errors import Incomplete, Malformed, OutOfRange
from flashmoe_sim.io.numbers import parse_numbers
from flashmoe_sim.io.sections import Section, Verbatim
from flashmoe_sim.options import FORCE, option, option_field
from flashmoe_sim.verbs.base import Stages, Verb, stage

if TYPE_CHECKING:
    from flashmoe_sim.trace.chunk import LongTrace
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
