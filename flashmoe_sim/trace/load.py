"""The table of trace formats, and reading a trace, whose format is detected from its content."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from flashmoe_sim.io.errors import BadInput, unknown_name
from flashmoe_sim.trace.bundled import BundledTrace, find_trace
from flashmoe_sim.trace.check import check_trace
from flashmoe_sim.trace.chunk import Chunk, LongTrace, cut_up
from flashmoe_sim.trace.lines import excerpt
from flashmoe_sim.trace.on_disk import OnDisk, unpack
from flashmoe_sim.trace.requests import Hints
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.source import Reading, open_bytes, reading

HEAD_BYTES = 64 << 10
RUN, TRACES_OF_RUN = "run.json", ("trace.jsonl.gz", "trace.jsonl")


class Read(Protocol):
    """Reads a whole file of one format. more: `hints`, if the format accepts them."""

    def __call__(
        self, path: Path, /, *, lenient: bool = False, progress: Callable[[int], None] | None = None, **more: Any
    ) -> RoutingTrace: ...


class ReadChunks(Protocol):
    """Reads a file of one format in chunks, with memory that does not grow with its length."""

    def __call__(
        self, path: Path, /, *, lenient: bool = False, progress: Callable[[int], None] | None = None
    ) -> LongTrace: ...


@dataclass(frozen=True)
class TraceFormat:
    """One format: its name, its description, and the module with `sniff` and `read`, imported when first needed.

    takes_hints: whether `read` accepts hints from the user about a file. The module may also have `read_chunks`.
    """

    name: str
    description: str
    module: str
    takes_hints: bool = False

    @property
    def sniff(self) -> Callable[[bytes], bool]:
        return cast(Callable[[bytes], bool], importlib.import_module(self.module).sniff)

    @property
    def read(self) -> Read:
        return cast(Read, importlib.import_module(self.module).read)

    @property
    def read_chunks(self) -> ReadChunks | None:
        return cast("ReadChunks | None", getattr(importlib.import_module(self.module), "read_chunks", None))


# Tried in this order; the format that compiles kernels is last, so that the others need not wait for it.
# To add a format: one file with `sniff` and `read`, and one line here.
FORMATS: dict[str, TraceFormat] = {
    entry.name: entry
    for entry in (
        TraceFormat("parquet", "this program's own store", "flashmoe_sim.trace.store"),
        TraceFormat("route-csv", "route CSV with residency (`# route_trace v1`)", "flashmoe_sim.trace.route_csv"),
        TraceFormat("imp-json", "imp's moe_expert_trace", "flashmoe_sim.trace.imp_json", takes_hints=True),
        TraceFormat("token-pairs", "a line of [layer, expert] pairs per token", "flashmoe_sim.trace.token_pairs"),
        TraceFormat("sglang-pt", "SGLang's recorder, per token", "flashmoe_sim.trace.sglang_pt"),
        TraceFormat("array", "arrays: .npy, .npz, .safetensors", "flashmoe_sim.trace.arrays", takes_hints=True),
        TraceFormat("served-json", "responses of vLLM and SGLang", "flashmoe_sim.trace.served_json", takes_hints=True),
        TraceFormat("grouped-pairs", "one JSON document of cache accesses", "flashmoe_sim.trace.grouped_pairs"),
        TraceFormat("step-layers", "JSON lists of steps with layers", "flashmoe_sim.trace.step_layers"),
        TraceFormat("megatron-jsonl", "Megatron-LM's routing trace", "flashmoe_sim.trace.megatron_jsonl"),
        TraceFormat("moe-trace-csv", "CSV of llama.cpp tracers", "flashmoe_sim.trace.moe_trace_csv", takes_hints=True),
        TraceFormat(
            "plain-csv", "CSV with the columns layer and expert", "flashmoe_sim.trace.plain_csv", takes_hints=True
        ),
        TraceFormat("runtime-jsonl", "the patched runtime's --moe-trace", "flashmoe_sim.trace.runtime_jsonl"),
    )
}


def load_trace(
    path: str | Path,
    *,
    lenient: bool = False,
    format: str | None = None,
    progress: Callable[[int], None] | None = None,
    hints: Hints | None = None,
) -> RoutingTrace:
    """Read a trace of any known format, plain or compressed with gzip or zstd.

    path: a file, a pipe (read until its writer ends), `-` for stdin, the folder of a recorded run, or a name from the
        catalogue of bundled traces.
    lenient: skip malformed lines and count them in the notes; read cut-off compressed data up to the cut.
    format: a name in FORMATS, if the content alone should not decide.
    progress: called after each part with its size, in bytes of the file.
    hints: what the file does not record itself, for formats that accept hints.
    Raises BadInput for a file that is missing, empty, of an unknown format, or malformed.
    """
    _check_format(format)
    folder = _run_folder(path)
    path, bundled = find_trace(path if folder is None else _trace_of(folder))
    with reading(path, lenient=lenient) as how:
        chosen = FORMATS[format] if format else find_format(path)
        more = {"hints": hints} if chosen.takes_hints else {}
        trace = chosen.read(path, lenient=lenient, progress=progress and how.in_file(progress), **more)
    check_trace(trace, where=str(path))
    return _named(trace, folder, bundled, how)


@contextmanager
def open_long(
    path: str | Path,
    *,
    lenient: bool = False,
    format: str | None = None,
    progress: Callable[[int], None] | None = None,
    hints: Hints | None = None,
) -> Iterator[LongTrace]:
    """Read a trace in chunks; within the block, it can be read any number of times. Arguments are as for `load_trace`.

    A format without `read_chunks` is read as one chunk, in the memory of the whole trace. Raises what `load_trace`
    raises; for a call's content only when it is read.
    """
    _check_format(format)
    folder = _run_folder(path)
    path, bundled = find_trace(path if folder is None else _trace_of(folder))
    with reading(path, lenient=lenient) as how:
        chosen = FORMATS[format] if format else find_format(path)
        progress = progress and how.in_file(progress)
        if chosen.read_chunks is None:
            more = {"hints": hints} if chosen.takes_hints else {}
            whole = chosen.read(path, lenient=lenient, progress=progress, **more)
            check_trace(whole, where=str(path))
            long = cut_up(whole, [])
        else:
            long = chosen.read_chunks(path, lenient=lenient, progress=progress)
            check_trace(long.head, where=str(path))
        yield LongTrace(_named(long.head, folder, bundled, how), partial(_checked, long, str(path)))


def load_on_disk(path: str | Path, *, lenient: bool = False, hints: Hints | None = None) -> OnDisk:
    """Read a trace into temporary files, for one larger than memory. Arguments are as for `load_trace`.

    Raises what `open_long` and `unpack` raise.
    """
    with open_long(path, lenient=lenient, hints=hints) as long:
        return unpack(long)


def _checked(long: LongTrace, where: str) -> Iterator[Chunk]:
    for chunk in long.read():
        check_trace(chunk, where=where)
        yield chunk


def _check_format(format: str | None) -> None:
    if format is not None and format not in FORMATS:
        raise unknown_name("trace format", format, FORMATS)


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


def _run_folder(path: str | Path) -> Path | None:
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
    raise BadInput(
        f"{folder}: a run without {TRACES_OF_RUN[0]}, which only slot-bank and resident-slot-bank record; "
        "give the folder of such a run"
    )


def find_format(path: Path) -> TraceFormat:
    """The first format that claims the first 64 KiB of the decompressed content.

    Raises BadInput, saying what was found, if there is none.
    """
    with open_bytes(path) as stream:
        head = stream.read(HEAD_BYTES)
    if not head:
        raise BadInput(f"{path}: is empty; expected a routing trace")
    for entry in FORMATS.values():
        if entry.sniff(head):
            return entry
    raise BadInput(f"{path}: {_describe(head)}; known trace formats: {', '.join(FORMATS)}")


def _describe(head: bytes) -> str:
    """A description of the content for the user."""
    nul = len(head) - len(head.lstrip(b"\0"))
    if nul:
        return f"begins with {'only' if nul == len(head) else nul} NUL bytes: a binary file"
    if head.startswith(b"GGUF") and b"imatrix" in head:
        return (
            "an importance matrix: counts, which hold no order of tokens (`sim trace synth` makes a trace of a curve)"
        )
    if head.startswith(b"GGUF"):
        return "a GGUF model file, not a trace"
    if not head.strip():
        return "holds only white space"
    try:
        text = head[:-4].decode() if len(head) == HEAD_BYTES else head.decode()
    except UnicodeDecodeError as error:
        if error.end < len(head) - 4:
            return f"begins with the bytes {head[:4].hex(' ')}: a binary file or not UTF-8"
        text = head[: error.start].decode()
    if "\0" in text:
        return "has NUL bytes: a binary file"
    return f"begins with {excerpt(text.lstrip())}: no format claims it"
