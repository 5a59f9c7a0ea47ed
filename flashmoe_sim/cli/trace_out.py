"""Writing the trace that a `sim trace` command made, and reporting it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashmoe_sim.cli.common import echo, message, print_json
from flashmoe_sim.io.errors import Malformed
from flashmoe_sim.options import option, option_field

if TYPE_CHECKING:
    from flashmoe_sim.trace.chunk import LongTrace
    from flashmoe_sim.trace.routing import RoutingTrace

NAMES = {".parquet": "parquet", ".jsonl": "jsonl", ".jsonl.gz": "jsonl", ".jsonl.zst": "jsonl"}


@dataclass(frozen=True, kw_only=True)
class TraceFile:
    """The file to write; an existing one is refused before anything is read."""

    out: Path = field(metadata=option("FILE", "The file to write."))
    to: str | None = option_field(None, "", "Format; default: from OUT's name.", choices=("parquet", "jsonl"))
    force: bool = option_field(False, "", "Overwrite existing files.")

    def __post_init__(self) -> None:
        from flashmoe_sim.io.whole import refuse_existing

        if not self.format:
            raise Malformed(f"{self.out}: the name gives no format; end it in {', '.join(NAMES)}, or give --to")
        refuse_existing(self.out, force=self.force)

    @property
    def format(self) -> str:
        """The given format, else the one of the file's name; empty if the name gives none."""
        return self.to or next((name for suffix, name in NAMES.items() if self.out.name.endswith(suffix)), "")

    @property
    def name(self) -> str:
        """The name of the file without its end."""
        suffix = max((one for one in NAMES if self.out.name.endswith(one)), key=len, default="")
        return self.out.name.removesuffix(suffix)

    def write(self, trace: RoutingTrace) -> dict[str, Any]:
        """Write it, with progress, and say what was written."""
        from flashmoe_sim.cli.progress import working
        from flashmoe_sim.trace.store import write_store
        from flashmoe_sim.trace.write_jsonl import lost_in_jsonl, write_jsonl

        out, as_store = self.out, self.format == "parquet"
        with working(f"writing {out.name}") as progress:
            (write_store if as_store else write_jsonl)(trace, out, force=self.force, progress=progress)
        lost = () if as_store else lost_in_jsonl(trace)
        sizes = {"calls": trace.calls, "refs": trace.refs, "tokens": trace.tokens, "bytes": out.stat().st_size}
        return {"out": str(out), "format": self.format, **sizes, "not_kept": list(lost)}

    def write_long(self, trace: LongTrace) -> dict[str, Any]:
        """Write a store while the trace is read, and say what was written."""
        from flashmoe_sim.trace.store import write_chunks

        written = write_chunks(trace, self.out, force=self.force)._asdict()
        return {"out": str(self.out), "format": "parquet", **written, "bytes": self.out.stat().st_size, "not_kept": []}

    def say(self, notes: Iterable[str]) -> None:
        """Print notes on the new trace."""
        for note in notes:
            message(f"{self.out}: {note}")


@dataclass(frozen=True, kw_only=True)
class SecondTraceFile(TraceFile):
    """The file to write, named after the one that is read."""

    out: Path = field(metadata=option("OUT", "", positional=True))


def report_written(written: dict[str, Any], *, as_json: bool) -> None:
    if written["not_kept"]:
        message(f"{written['out']}: the runtime's layout has no place for {', '.join(written['not_kept'])}")
    if as_json:
        print_json(written)
        return
    echo(f"{written['out']}: {written['calls']:,} calls, {written['refs']:,} references, {written['bytes']:,} bytes")
