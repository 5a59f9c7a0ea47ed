"""When each key of a bank is next requested after a chunk: what `min` needs to know about a long trace.

A first reading writes each chunk's first reference to each of its keys to a temporary file. Read backwards, the file
says when each key of a chunk is requested again after it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import cache_root
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.policies.bank import Scope
from flashmoe_sim.policies.base import NEVER
from flashmoe_sim.residency.pool import After
from flashmoe_sim.residency.workload import Workload

MOST_REFERENCES = 1 << 30  # of one bank: the next uses of min have 32 bits
RECORD = np.dtype([("key", "<u4"), ("reference", "<i4")])


class TooLong(BadInput):
    """A trace has more than MOST_REFERENCES references to one bank."""


class Part(NamedTuple):
    """A chunk's part of the file: its number of records and of references."""

    records: int
    refs: int


class NextUses:
    """The file for one scope. For each chunk, in order, call `after_next` and then `check`."""

    def __init__(self, head: Workload, scope: Scope, chunks: Iterable[Workload], file: IO[bytes]) -> None:
        self.name, self.scope, self.file = head.trace.name, scope, file
        self.first_key = np.cumsum([0, *(pool.keys for pool in head.pools(scope))])
        self.before = [0] * len(head.pools(scope))
        self.parts = []
        for calls in chunks:
            records = self._first_uses(calls)
            with _writing():
                file.write(records.tobytes())
            self.parts.append(Part(len(records), calls.trace.refs))
            self._count(calls)
        with _writing():
            self._look_back()
            file.seek(0)
        self.before, self.told = [0] * len(self.before), 0

    def after_next(self) -> list[After]:
        """The next uses after the next chunk, for each pool."""
        upcoming = np.full(self.first_key[-1], NEVER, np.int32)
        if self.told < len(self.parts):
            self.records = self._read(self.parts[self.told])
            upcoming[self.records["key"]] = self.records["reference"]
        return [After(*one) for one in zip(self.before, np.split(upcoming, self.first_key[1:-1]), strict=True)]

    def check(self, calls: Workload) -> None:
        """Raise BadInput unless the first reading found the same chunk here."""
        if self.told == len(self.parts):
            raise self._changed()
        part, found = self.parts[self.told], self._first_uses(calls)["key"]
        if part.refs != calls.trace.refs or not np.array_equal(found, self.records["key"]):
            raise self._changed()
        self.told += 1
        self._count(calls)

    def check_end(self) -> None:
        """Raise BadInput if the first reading found more chunks."""
        if self.told < len(self.parts):
            raise self._changed()

    def _first_uses(self, calls: Workload) -> NDArray[np.void]:
        """The first reference to each key of a chunk, by its number in its pool."""
        found = []
        for pool, base, before in zip(calls.pools(self.scope), self.first_key[:-1], self.before, strict=True):
            key = np.flatnonzero(pool.first_reference < pool.refs)
            records = np.empty(len(key), RECORD)
            records["key"], records["reference"] = key + base, pool.first_reference[key] + before
            found.append(records)
        return np.concatenate(found)

    def _count(self, calls: Workload) -> None:
        self.before = [refs + pool.refs for refs, pool in zip(self.before, calls.pools(self.scope), strict=True)]
        if max(self.before) > MOST_REFERENCES:
            raise TooLong(
                f"{self.name}: policy min takes at most {MOST_REFERENCES:,} references of one bank; "
                "cut the trace into parts"
            )

    def _look_back(self) -> None:
        """Replace each first reference with the next reference to that key after the chunk."""
        upcoming = np.full(self.first_key[-1], NEVER, np.int32)
        begin = self.file.tell()
        for part in reversed(self.parts):
            begin -= part.records * RECORD.itemsize
            self.file.seek(begin)
            records = self._read(part)
            first = records["reference"].copy()
            records["reference"] = upcoming[records["key"]]
            upcoming[records["key"]] = first
            self.file.seek(begin)
            self.file.write(records.tobytes())

    def _read(self, part: Part) -> NDArray[np.void]:
        return np.frombuffer(self.file.read(part.records * RECORD.itemsize), RECORD).copy()

    def _changed(self) -> BadInput:
        return BadInput(f"{self.name}: changed while it was read; run it again when nothing writes to it")


@contextmanager
def scratch_file() -> Iterator[IO[bytes]]:
    """A nameless file in the folder of compiled kernels: nobody else can open it, and it disappears with the process.

    Raises BadInput if it cannot be made.
    """
    with _writing():
        cache_root().mkdir(parents=True, exist_ok=True, mode=0o700)
        file = tempfile.TemporaryFile(dir=cache_root())  # noqa: SIM115  (what fails within its block is another matter)
    with file:
        yield file


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInput(
            f"{cache_root()}: no temporary file can be written there ({error.strerror or error}); "
            "make room, or name another folder with FLASHMOE_CACHE"
        ) from None
