"""A long trace in chunks: consecutive calls, with the properties of the whole trace; and one larger than memory.

The arrays of the latter, and those computed from them, are temporary files mapped into memory. The same code serves it
as any other trace. The operating system keeps of the files what it has memory for, so what grows with the length of a
trace is the space on disk.
"""

from __future__ import annotations

import itertools
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from threading import Lock
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from flashmoe_sim.cache import cache_root
from flashmoe_sim.io.errors import TooLarge, Unusable
from flashmoe_sim.trace import routing
from flashmoe_sim.trace.check import PER_CALL, PER_REFERENCE
from flashmoe_sim.trace.routing import RoutingTrace, offsets


@dataclass(frozen=True, eq=False)
class Chunk(RoutingTrace):
    """Consecutive calls of a longer trace. All fields that are not arrays are the whole trace's.

    all_layers: the layers of the whole trace, ascending; a chunk may have calls of only some.
    """

    all_layers: tuple[int, ...] = field(default=(), kw_only=True)

    @cached_property
    def layers(self) -> tuple[int, ...]:
        return self.all_layers


@dataclass(frozen=True, eq=False)
class LongTrace:
    """A trace that is read chunk by chunk, any number of times.

    head: a chunk without calls, with what holds for all calls.
    read: reads it from the beginning; the chunks may differ in length.
    """

    head: Chunk
    read: Callable[[], Iterator[Chunk]]


def whole(chunk: Chunk) -> RoutingTrace:
    """An ordinary trace from a chunk that has all calls of its trace."""
    return RoutingTrace(**{item.name: getattr(chunk, item.name) for item in fields(RoutingTrace)})


def cut_up(trace: RoutingTrace, calls: list[int]) -> LongTrace:
    """A trace in memory as a long one, cut before each of `calls`, ascending."""
    bounds = [0, *calls, trace.calls]
    return LongTrace(
        part_of(trace, 0, 0),
        lambda: (part_of(trace, begin, end) for begin, end in itertools.pairwise(bounds)),
    )


def joined(*chunks: Chunk) -> Chunk:
    """Consecutive chunks as one."""
    arrays: dict[str, Any] = {"offset": offsets(np.concatenate([np.diff(chunk.offset) for chunk in chunks]))}
    for name in (*PER_CALL, *PER_REFERENCE):
        if getattr(chunks[0], name) is not None:
            arrays[name] = np.concatenate([getattr(chunk, name) for chunk in chunks])
    return replace(chunks[0], **arrays)


def regrouped(chunks: Iterator[Chunk], *, calls: int, refs: int) -> Iterator[Chunk]:
    """The same calls in chunks as long as `calls` and `refs` allow, but at least one call each."""
    rest: Chunk | None = None
    for chunk in chunks:
        rest = chunk if rest is None else joined(rest, chunk)
        begin = 0
        while (end := _end_of_part(rest, begin, calls=calls, refs=refs)) < rest.calls:
            yield part_of(rest, begin, end)
            begin = end
        rest = part_of(rest, begin, rest.calls)
    if rest is not None and rest.calls:
        yield rest


def parts_of(trace: RoutingTrace) -> Iterator[Chunk]:
    """All calls of a trace, in parts of at most BLOCK calls and references, but at least one call each."""
    begin = 0
    while begin < trace.calls:
        end = _end_of_part(trace, begin, calls=routing.BLOCK, refs=routing.BLOCK)
        yield part_of(trace, begin, end)
        begin = end


def _end_of_part(trace: RoutingTrace, begin: int, *, calls: int, refs: int) -> int:
    last = trace.offset[begin : begin + calls + 1]
    return begin + max(int(np.searchsorted(last, last[0] + refs, side="right")) - 1, min(1, len(last) - 1))


def part_of(trace: RoutingTrace, begin: int, end: int) -> Chunk:
    """The calls from `begin` to `end` (exclusive); arrays of references are not copied."""
    own = {item.name: getattr(trace, item.name) for item in fields(RoutingTrace)}
    first, last = (int(trace.offset[call]) for call in (begin, end))
    parts = dict.fromkeys(PER_CALL, slice(begin, end)) | dict.fromkeys(PER_REFERENCE, slice(first, last))
    own |= {name: own[name][part] for name, part in parts.items() if own[name] is not None}
    own["offset"] = trace.offset[begin : end + 1] - first
    return Chunk(**own, all_layers=trace.layers)


MOST_CALLS = (1 << 31) - 1  # kernels number them with 32 bits
FILE_BYTES, ALIGNED_BYTES = 64 << 20, 64


class OnDisk(RoutingTrace):
    """A trace whose arrays are mapped files."""

    def empty(self, length: int, dtype: DTypeLike) -> NDArray[Any]:
        return _files.empty(length, np.dtype(dtype))


def unpack(long: LongTrace) -> OnDisk:
    """Read a long trace once into temporary files.

    Raises BadInput for a trace with more than MOST_CALLS calls, if a temporary file cannot be written, and what reading
    the trace raises.
    """
    head, calls, refs = long.head, 0, 0
    own = {item.name: getattr(head, item.name) for item in fields(RoutingTrace)}
    names = [name for name in (*PER_CALL, *PER_REFERENCE) if own[name] is not None]
    with growing(offset=np.int64, **{name: own[name].dtype for name in names}) as arrays:
        arrays["offset"].add(np.zeros(1, np.int64))
        for chunk in long.read():
            calls += chunk.calls
            if calls > MOST_CALLS:
                raise TooLarge(f"{head.name}: has more than {MOST_CALLS:,} calls; cut it into several traces")
            arrays["offset"].add(chunk.offset[1:] + refs)
            for name in names:
                arrays[name].add(getattr(chunk, name))
            refs += chunk.refs
        return OnDisk(**own | {name: array.mapped() for name, array in arrays.items()})


@contextmanager
def growing(**dtypes: DTypeLike) -> Iterator[dict[str, Growing]]:
    """Empty arrays that can be written and mapped in the block.

    Raises BadInput if a temporary file cannot be made.
    """
    with ExitStack() as stack:
        yield {name: Growing(stack.enter_context(scratch_file()), dtype) for name, dtype in dtypes.items()}


class Growing:
    """An array that is written to a file part by part, and mapped at the end."""

    def __init__(self, file: IO[bytes], dtype: DTypeLike) -> None:
        self._file, self._dtype = file, np.dtype(dtype)

    def add(self, part: NDArray[Any]) -> None:
        """Write the next numbers; raises BadInput if the disk is full."""
        with _writing():
            self._file.write(np.ascontiguousarray(part, self._dtype).data)

    def mapped(self) -> NDArray[Any]:
        """All numbers, read-only."""
        with _writing():
            self._file.flush()
            if not self._file.tell():
                return np.empty(0, self._dtype)
            return np.frombuffer(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ), self._dtype)


class _Files:
    """Arrays in temporary files; several small ones share a file, which goes with the last of them."""

    def __init__(self) -> None:
        self._lock, self._file, self._used, self._all_bytes = Lock(), mmap.mmap(-1, 1), 1, 0

    def empty(self, length: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        size = -(-length * dtype.itemsize // ALIGNED_BYTES) * ALIGNED_BYTES
        if not size:
            return np.empty(0, dtype)
        with self._lock:
            if self._used + size > len(self._file):
                # A process can have few files open, so they become larger.
                self._file, self._used = _new_file(max(size, FILE_BYTES, self._all_bytes // 8)), 0
                self._all_bytes += len(self._file)
            array = np.frombuffer(self._file, dtype, length, self._used)
            self._used += size
        return array


_files = _Files()


def _new_file(size: int) -> mmap.mmap:
    """Writing to a map ends the process if the disk is full, so the space is taken before."""
    with _writing(), scratch_file() as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            if shutil.disk_usage(cache_root()).free < size:
                raise OSError(f"{size:,} bytes needed")
            file.truncate(size)
        return mmap.mmap(file.fileno(), size)


def scratch_file() -> IO[bytes]:
    """A nameless file in the folder of compiled kernels: nobody else can open it, and it disappears with the process.

    Raises BadInput if it cannot be made.
    """
    with _writing():
        cache_root().mkdir(parents=True, exist_ok=True, mode=0o700)
        return tempfile.TemporaryFile(dir=cache_root())


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unusable(
            f"{cache_root()}: no temporary file can be written there ({error.strerror or error}); "
            "make room, or name another folder with FLASHMOE_CACHE"
        ) from None
