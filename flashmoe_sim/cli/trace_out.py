"""Writing the trace that a `sim trace` command made, and reporting it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.common import echo, message, print_json
from flashmoe_sim.io.errors import BadInput

if TYPE_CHECKING:
    from flashmoe_sim.trace.chunk import LongTrace
    from flashmoe_sim.trace.routing import RoutingTrace

NAMES = {".parquet": "parquet", ".jsonl": "jsonl", ".jsonl.gz": "jsonl", ".jsonl.zst": "jsonl"}

to_option = click.option("--to", type=click.Choice(["parquet", "jsonl"]), help="Format; default: from OUT's name.")


def format_of(out: Path, to: str | None) -> str:
    """The format to write: the given one, else from OUT's name."""
    chosen = to or next((name for suffix, name in NAMES.items() if out.name.endswith(suffix)), None)
    if chosen is None:
        raise BadInput(f"{out}: the name gives no format; end it in {', '.join(NAMES)}, or give --to")
    return chosen


def trace_writer(out: Path, to: str | None, *, force: bool) -> Callable[[RoutingTrace], dict[str, Any]]:
    """Writes a trace to `out` and reports it; refuses an existing file before anything is read."""
    from flashmoe_sim.cli.progress import working
    from flashmoe_sim.io.whole import refuse_existing
    from flashmoe_sim.trace.store import write_store
    from flashmoe_sim.trace.write_jsonl import lost_in_jsonl, write_jsonl

    chosen = format_of(out, to)
    refuse_existing(out, force=force)

    def write(trace: RoutingTrace) -> dict[str, Any]:
        with working(f"writing {out.name}") as progress:
            (write_store if chosen == "parquet" else write_jsonl)(trace, out, force=force, progress=progress)
        lost = lost_in_jsonl(trace) if chosen == "jsonl" else ()
        sizes = {"calls": trace.calls, "refs": trace.refs, "tokens": trace.tokens, "bytes": out.stat().st_size}
        return {"out": str(out), "format": chosen, **sizes, "not_kept": list(lost)}

    return write


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
