"""The trace of a capture, written while it runs: what was written is kept, and can be read."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
import orjson
import zstandard
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput, Malformed, Unusable
from flashmoe_sim.io.whole import refuse_existing

FLUSH_BYTES = 64 << 10
FLUSH_S = 1.0

# One frame or member per flush: a file that ends after any of them is valid.
PACKERS: Mapping[str, Callable[[bytes], bytes]] = {
    ".jsonl": bytes,
    ".jsonl.gz": lambda text: gzip.compress(text, mtime=0),
    ".jsonl.zst": zstandard.compress,
}


class RoutedCall(NamedTuple):
    """One router evaluation of one layer.

    experts: i32 [n_tokens, n_expert_used], in router-rank order.
    weights: f32, likewise: the factors of the experts' outputs; None if not requested.
    ahead: experts predicted right after the call, by how many routed calls later they are used: i32 [n_tokens, width].
    """

    layer: int
    experts: NDArray[np.int32]
    weights: NDArray[np.float32] | None = None
    ahead: Mapping[int, NDArray[np.int32]] = MappingProxyType({})


class WrittenSteps(NamedTuple):
    """What a file holds for certain."""

    size_bytes: int
    steps: int


class TraceWriter:
    """Writes routed calls in the runtime's layout, without `slots` and with `phase`, `step`, and `weights` and `ahead`
    if they have them; in `ahead` all tokens' first choices come first.

    path: plain, or compressed if its name ends in .gz or .zst. It appears, or is replaced, with the first calls.
    origin: how the trace was made, any JSON; a key of the first record.

    A plain file has every step once it is added, a compressed one at most a second later.
    Raises BadInput for a name without a format, a file that exists without force, and one that cannot be written.
    """

    def __init__(self, path: Path, *, origin: Mapping[str, Any], force: bool = False) -> None:
        pack = next((pack for ending, pack in PACKERS.items() if path.name.endswith(ending)), None)
        if pack is None:
            raise Malformed(f"{path}: the name tells no format; end it in {', '.join(PACKERS)}")
        refuse_existing(path, force=force)
        self.calls = 0
        self._written = WrittenSteps(size_bytes=0, steps=0)
        self._path = path
        self._pack = pack
        self._origin = origin
        self._waiting: list[bytes] = []
        self._flushed_at = -FLUSH_S
        self._is_new = not path.exists()
        try:
            # opened for appending, an old trace stays until there is a new one
            self._file = path.open("ab" if force else "xb", buffering=0)
        except OSError as error:
            raise self._unwritable(error) from None

    @property
    def steps(self) -> int:
        """Steps in the file, and those that wait to be written."""
        return self._written.steps + len(self._waiting)

    @property
    def written_bytes(self) -> int:
        return self._written.size_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._flush()
        finally:
            self._file.close()
            if self._is_new and not self.written_bytes:
                self._path.unlink(missing_ok=True)

    def add(self, calls: Sequence[RoutedCall], *, phase: int) -> None:
        """Write the routed calls of one step.

        Raises BadInput if the disk is full or the file may not grow; earlier content is kept.
        """
        lines = [self._line(call, phase, seq=self.calls + number) for number, call in enumerate(calls)]
        self._waiting.append(b"".join(lines))
        self.calls += len(calls)
        plain, due = self._pack is bytes, time.monotonic() - self._flushed_at >= FLUSH_S
        if plain or due or sum(map(len, self._waiting)) >= FLUSH_BYTES:
            self._flush()

    def _line(self, call: RoutedCall, phase: int, *, seq: int) -> bytes:
        n_tokens, n_expert_used = call.experts.shape
        record: dict[str, Any] = {
            "seq": seq,
            "layer": call.layer,
            "n_expert_used": n_expert_used,
            "n_tokens": n_tokens,
            "experts": np.ascontiguousarray(call.experts, np.int32).ravel(),
            "phase": phase,
            "step": self.steps,
        }
        if call.weights is not None:
            record["weights"] = np.ascontiguousarray(call.weights, np.float32).ravel()
        if call.ahead:
            record["ahead"] = {str(calls): experts.T.ravel() for calls, experts in call.ahead.items()}
        if not seq:
            record["origin"] = self._origin
        return orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)

    def _flush(self) -> None:
        """Write the steps that wait, whole: of an interrupted write nothing stays, and the next one repeats it."""
        if not self._waiting:
            return
        before = self._written
        left = memoryview(self._pack(b"".join(self._waiting)))
        after = WrittenSteps(before.size_bytes + len(left), before.steps + len(self._waiting))
        try:
            self._file.seek(self._file.truncate(before.size_bytes))
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            self._file.truncate(before.size_bytes)  # a half-written part would break the compressed file
            self._waiting = []
            raise self._unwritable(error) from None
        self._written, self._waiting = after, []
        self._flushed_at = time.monotonic()

    def _unwritable(self, error: OSError) -> BadInput:
        kept = f"; the trace up to there is kept, {self.written_bytes} bytes" if self.written_bytes else ""
        return Unusable(f"{self._path}: cannot be written ({error.strerror or error}){kept}")
