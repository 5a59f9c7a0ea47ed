"""Reading a trace, whose format is detected from its content."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

from flashmoe_sim.io.errors import Missing, unknown_name
from flashmoe_sim.trace.bundled import BundledTrace, find_trace
from flashmoe_sim.trace.check import check_trace
from flashmoe_sim.trace.formats import FORMATS, find_format
from flashmoe_sim.trace.long_traces import Chunk, LongTrace, OnDisk, cut_up, unpack
from flashmoe_sim.trace.requests import DEFAULTS, Hints, ReadOptions
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.source import Reading, reading

# Opens what shows progress over the bytes of a file, and takes the size of each part when it is read.
Shown: TypeAlias = Callable[[Path], AbstractContextManager[Callable[[int], None]]]
RUN, TRACES_OF_RUN = "run.json", ("trace.jsonl.gz", "trace.jsonl")


def load_trace(
    path: str | Path,
    *,
    lenient: bool = False,
    format: str | None = None,
    shown: Shown | None = None,
    hints: Hints | None = None,
) -> RoutingTrace:
    """Read a trace of any known format, plain or compressed with gzip or zstd.

    path: a file, a pipe (read until its writer ends), `-` for stdin, the folder of a recorded run, or a name from the
        catalogue of bundled traces.
    lenient: skip malformed lines and count them in the notes; read cut-off compressed data up to the cut.
    format: a name in FORMATS, if the content alone should not decide.
    shown: shows how the reading of a file goes on, while it is read.
    hints: what the file does not record itself, for formats that accept hints.
    Raises BadInput for a file that is missing, empty, of an unknown format, or malformed.
    """
    if format is not None and format not in FORMATS:
        raise unknown_name("trace format", format, FORMATS)
    folder = run_folder(path)
    path, bundled = find_trace(path if folder is None else _trace_of(folder))
    with nullcontext() if shown is None else shown(path) as progress, reading(path, lenient=lenient) as how:
        chosen = FORMATS[format] if format else find_format(path)
        options = ReadOptions(lenient=lenient, progress=progress and how.in_file(progress), hints=hints or Hints())
        trace = chosen.read(path, options)
    check_trace(trace, where=str(path))
    return _named(trace, folder, bundled, how)


@contextmanager
def open_long(path: str | Path, options: ReadOptions = DEFAULTS) -> Iterator[LongTrace]:
    """Read a trace in chunks; within the block, it can be read any number of times. path: as for `load_trace`.

    A format without `read_chunks` is read as one chunk, in the memory of the whole trace. Raises what `load_trace`
    raises; for a call's content only when it is read.
    """
    folder = run_folder(path)
    path, bundled = find_trace(path if folder is None else _trace_of(folder))
    with reading(path, lenient=options.lenient) as how:
        chosen = find_format(path)
        options = replace(options, progress=options.progress and how.in_file(options.progress))
        if chosen.read_chunks is None:
            whole = chosen.read(path, options)
            check_trace(whole, where=str(path))
            long = cut_up(whole, [])
        else:
            long = chosen.read_chunks(path, options)
            check_trace(long.head, where=str(path))
        yield LongTrace(_named(long.head, folder, bundled, how), partial(_checked, long, str(path)))


def load_on_disk(path: str | Path, *, lenient: bool = False, hints: Hints | None = None) -> OnDisk:
    """Read a trace into temporary files, for one larger than memory. Arguments are as for `load_trace`.

    Raises what `open_long` and `unpack` raise.
    """
    with open_long(path, ReadOptions(lenient=lenient, hints=hints or Hints())) as long:
        return unpack(long)


def _checked(long: LongTrace, where: str) -> Iterator[Chunk]:
    for chunk in long.read():
        check_trace(chunk, where=where)
        yield chunk


AnyTrace = TypeVar("AnyTrace", bound=RoutingTrace)


def _named(trace: AnyTrace, folder: Path | None, bundled: BundledTrace | None, how: Reading) -> AnyTrace:
    """The trace with what its file's place says about it, and how it was read."""
    if how.cut_off:
        trace = replace(trace, notes=(*trace.notes, "its compressed data is cut off: read up to the cut"))
    if folder is not None:
        return replace(trace, name=folder.resolve().name)
    if bundled is None:
        return trace
    if bundled.dense_bytes is not None:
        trace = replace(trace, dense_bytes=dict.fromkeys(trace.layers, bundled.dense_bytes // len(trace.layers)))
    return replace(trace, name=bundled.name)


def run_folder(path: str | Path) -> Path | None:
    """The path if it is the folder of a recorded run."""
    folder = Path(path)
    try:
        return folder if (folder / RUN).is_file() else None
    except (OSError, ValueError):
        return None


def _trace_of(folder: Path) -> Path:
    """The trace of a recorded run. Raises BadInput for a run without one."""
    for name in TRACES_OF_RUN:
        if (folder / name).is_file():
            return folder / name
    raise Missing(
        f"{folder}: a run without {TRACES_OF_RUN[0]}, which only slot-bank and resident-slot-bank record; "
        "give the folder of such a run"
    )
