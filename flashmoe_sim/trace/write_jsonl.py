"""Writing the patched runtime's trace layout, byte for byte like its `--moe-trace`."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import numpy as np

from flashmoe_sim.io.errors import Unsupported
from flashmoe_sim.io.whole import atomic_writer
from flashmoe_sim.trace.routing import RoutingTrace

CALLS_PER_BLOCK = 4096


def write_jsonl(
    trace: RoutingTrace, path: Path, *, force: bool = False, progress: Callable[[int, int], None] | None = None
) -> None:
    """Write one JSON object per call; compressed if the name ends in .gz or .zst. Slots are left out if unknown.

    progress: called with the calls written and all.
    Raises BadInput if a call's tokens are unknown or do not divide its references, the file exists without force, or
    it cannot be written.
    """
    length = np.diff(trace.offset)
    wrong = np.flatnonzero((trace.n_tokens < 1) & trace.has_refs | (length % np.maximum(trace.n_tokens, 1) != 0))
    if len(wrong):
        call = int(wrong[0])
        raise Unsupported(
            f"{trace.name or 'trace'}: call {call} has {length[call]} references of {trace.n_tokens[call]} tokens; "
            "the runtime's layout needs the tokens of every call: convert to parquet instead"
        )
    with atomic_writer(path, force=force) as stream, _compressed(stream, path.suffix) as out:
        for calls, block in _blocks(trace):
            out.write(block)
            if progress:
                progress(calls, trace.calls)


def lost_in_jsonl(trace: RoutingTrace) -> tuple[str, ...]:
    """The fields of this trace that have no place in the runtime's layout."""
    lost = [name for name in ("weight", "resident", "phase", "sequence", "n_text", "expert_bytes", "dense_bytes")
            if getattr(trace, name) is not None]  # fmt: skip
    if trace.step is not None and not np.array_equal(trace.step, trace.with_(step=None).steps):
        lost.append("step")
    if trace.n_experts_known:
        lost.append("n_experts")
    return tuple(lost)


@contextmanager
def _compressed(stream: IO[bytes], suffix: str) -> Iterator[IO[bytes]]:
    if suffix == ".gz":
        with gzip.GzipFile(fileobj=stream, mode="wb", mtime=0, filename="") as out:
            yield cast(IO[bytes], out)
    elif suffix == ".zst":
        import zstandard

        with zstandard.ZstdCompressor().stream_writer(stream, closefd=False) as out:
            yield cast(IO[bytes], out)
    else:
        yield stream


def _blocks(trace: RoutingTrace) -> Iterator[tuple[int, bytes]]:
    """Lines of the file, and how many calls are written with them."""
    import orjson

    def listed(values: np.ndarray[tuple[int], np.dtype[np.int16]]) -> bytes:
        return orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)

    expert, slot = np.ascontiguousarray(trace.expert), trace.slot
    used = np.diff(trace.offset) // np.maximum(trace.n_tokens, 1)
    for view in trace.by_layer:  # a call without tokens has the width of its layer's other calls
        used[view.call] = np.where(used[view.call] > 0, used[view.call], trace.top_k or max(used[view.call].max(), 1))
    lines: list[bytes] = []
    for call in range(trace.calls):
        begin, end = int(trace.offset[call]), int(trace.offset[call + 1])
        lines.append(
            b'{"seq":%d,"layer":%d,"n_expert_used":%d,"n_tokens":%d,"experts":%b'
            % (call, trace.layer[call], used[call], trace.n_tokens[call], listed(expert[begin:end]))
        )
        lines.append(b"}\n" if slot is None else b',"slots":%b}\n' % listed(np.ascontiguousarray(slot[begin:end])))
        if len(lines) >= 2 * CALLS_PER_BLOCK:
            yield call + 1, b"".join(lines)
            lines.clear()
    yield trace.calls, b"".join(lines)
