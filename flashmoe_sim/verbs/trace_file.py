"""What the verbs that make a trace share: the file that they write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashmoe_sim.io.errors import Malformed
from flashmoe_sim.io.sections import Section, Verbatim
from flashmoe_sim.options import FORCE, option, option_field
from flashmoe_sim.verbs.base import Stages, Verb, stage

if TYPE_CHECKING:
    from flashmoe_sim.trace.chunk import LongTrace
    from flashmoe_sim.trace.routing import RoutingTrace

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
