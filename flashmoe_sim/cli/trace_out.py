"""Writing the trace that a `sim trace` command made, and reporting it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.common import echo, force_option, message, print_json
from flashmoe_sim.io.errors import BadInput

if TYPE_CHECKING:
    from flashmoe_sim.trace.chunk import LongTrace
    from flashmoe_sim.trace.routing import RoutingTrace

NAMES = {".parquet": "parquet", ".jsonl": "jsonl", ".jsonl.gz": "jsonl", ".jsonl.zst": "jsonl"}

out_option = click.option(
    "--out", required=True, type=click.Path(path_type=Path), metavar="FILE", help="The file to write."
)
out_argument = click.argument("out", type=click.Path(path_type=Path))
to_option = click.option("--to", type=click.Choice(["parquet", "jsonl"]), help="Format; default: from OUT's name.")


def format_of(out: Path, to: str | None) -> str:
    """The format to write: the given one, else from OUT's name."""
    chosen = to or next((name for suffix, name in NAMES.items() if out.name.endswith(suffix)), None)
    if chosen is None:
        raise BadInput(f"{out}: the name gives no format; end it in {', '.join(NAMES)}, or give --to")
    return chosen


class TraceWriter:
    """Writes a trace to `out`; refuses an existing file before anything is read."""

    def __init__(self, out: Path, to: str | None, *, force: bool) -> None:
        from flashmoe_sim.io.whole import refuse_existing

        self.out, self.format, self.force = out, format_of(out, to), force
        refuse_existing(out, force=force)

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

    def say(self, notes: Iterable[str]) -> None:
        """Print notes on the new trace."""
        for note in notes:
            message(f"{self.out}: {note}")


def writes_trace(out: Callable[[Any], Any] = out_option) -> Callable[[Any], Any]:
    """OUT with its options; the function gets `writer`."""

    def decorated(function: Callable[..., None]) -> Any:
        @wraps(function)
        def with_writer(*, out: Path, to: str | None, force: bool, **given: Any) -> None:
            function(writer=TraceWriter(out, to, force=force), **given)

        command: Any = with_writer
        for add in (force_option, to_option, out):
            command = add(command)
        return command

    return decorated


def write_long(trace: LongTrace, out: Path, *, force: bool) -> dict[str, Any]:
    """Write a store while the trace is read, and report it."""
    from flashmoe_sim.trace.store import write_chunks

    written = write_chunks(trace, out, force=force)
    return {"out": str(out), "format": "parquet", **written._asdict(), "bytes": out.stat().st_size, "not_kept": []}


def report_written(written: dict[str, Any], *, as_json: bool) -> None:
    if written["not_kept"]:
        message(f"{written['out']}: the runtime's layout has no place for {', '.join(written['not_kept'])}")
    if as_json:
        print_json(written)
        return
    echo(f"{written['out']}: {written['calls']:,} calls, {written['refs']:,} references, {written['bytes']:,} bytes")
