"""The page cache as a tier below the bank: which reads of a replay it serves from memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import jit
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.workload import Workload


class WarmReads(NamedTuple):
    """The reads that the page cache serves.

    warm: i32 [calls], how many of a call's misses it serves. ahead_warm: u8 [reads ahead], 1 if it serves the read.
    """

    warm: NDArray[np.int32]
    ahead_warm: NDArray[np.uint8]


class ReadOrder(NamedTuple):
    """Everything that a replay reads, in order.

    base: i64 [calls], the key of a call's expert 0. offset: i64 [calls + 1]. expert: i16 [references]. hit: u8
    [references], 0 for an expert to read.
    ahead_turn: i64 [calls + 2], where in `ahead_key` the keys read ahead before each call begin. ahead_key: i64 [reads
    ahead].
    """

    base: NDArray[np.int64]
    offset: NDArray[np.int64]
    expert: NDArray[np.int16]
    hit: NDArray[np.uint8]
    ahead_turn: NDArray[np.int64]
    ahead_key: NDArray[np.int64]


class Ring(NamedTuple):
    """The held keys from the least recently read on, each linked to the next `newer` and `older` one: i64 [keys + 1].

    The last place, `keys`, is both ends; a key that is not held has -1. last_call: the last that read each key, or -1.
    """

    newer: NDArray[np.int64]
    older: NDArray[np.int64]
    last_call: NDArray[np.int64]


def warm_reads(workload: Workload, replay: Replayed, *, capacity_bytes: int, loaded: bool = False) -> WarmReads:
    """Serve the reads of a recorded replay from a page cache of `capacity_bytes`.

    It starts empty or, if `loaded`, as it is once every expert that must stay in RAM was read, in order of layer and
    number. A layer that never misses has its experts elsewhere: the engine read them once and dropped their pages.

    It holds whole experts and evicts the least recently read; reading an expert that it does not hold brings it in. An
    expert larger than the cache is never held. A call's misses are read in the order of their first reference, then the
    experts read ahead after the call.

    Source: Linux keeps pages on an active and an inactive list (mm/vmscan.c), and so does macOS; one LRU list of whole
    experts stands for both, since an expert's pages are read together.
    """
    assert replay.hit is not None
    assert replay.stream is not None
    assert workload.expert_bytes is not None
    trace, ahead = workload.trace, replay.stream.ahead
    base = np.cumsum([0, *workload.n_experts], dtype=np.int64)
    size = np.repeat(np.array(workload.expert_bytes, np.int64), workload.n_experts)
    turn = np.searchsorted(ahead.after, np.arange(-1, trace.calls + 1))
    reads = ReadOrder(base[trace.row], trace.offset, trace.expert, replay.hit, turn, base[ahead.row] + ahead.expert)
    found = WarmReads(np.zeros(trace.calls, np.int32), np.zeros(len(ahead.after), np.uint8))
    ring = Ring(*np.full((3, len(size) + 1), -1, np.int64))
    held = _loaded(workload, replay, size, capacity_bytes) if loaded else np.zeros(0, np.int64)
    _serve(reads, size, capacity_bytes, held, ring, found)
    return found


def _loaded(workload: Workload, replay: Replayed, size: NDArray[np.int64], capacity_bytes: int) -> NDArray[np.int64]:
    """The keys held after the experts of all layers that are read were read once, in order: i64, ascending."""
    assert replay.stream is not None
    stays = np.zeros(len(workload.n_experts), bool)
    stays[workload.trace.row[replay.stream.misses > 0]] = True
    stays[replay.stream.ahead.row] = True
    keys = np.flatnonzero(np.repeat(stays, workload.n_experts))
    kept = int(np.searchsorted(np.cumsum(size[keys][::-1]), capacity_bytes, side="right"))
    return keys[len(keys) - kept :]


@jit
def _serve(reads: Any, size: Any, capacity: int, held: Any, ring: Any, found: Any) -> None:
    """Set the zeros of `found` for the reads that the page cache serves.

    size: i64 [keys], bytes; capacity: bytes. held: i64, keys that are held at the start, read in this order. ring: of
    no key.
    """
    base, offset, expert, hit, ahead_turn, ahead_key = reads
    newer, older, last_call = ring
    keys = len(size)
    newer[keys] = older[keys] = keys
    used = 0
    for k in held:
        newer[k], older[k] = keys, older[keys]
        newer[older[keys]] = k
        older[keys] = k
        used += size[k]
    for call in range(-1, len(base)):
        begin = offset[call] if call >= 0 else 0
        end = offset[call + 1] if call >= 0 else 0
        first_ahead, last_ahead = ahead_turn[call + 1], ahead_turn[call + 2]
        for place in range(end - begin + last_ahead - first_ahead):
            of_call = place < end - begin
            if of_call:
                k = base[call] + expert[begin + place]
                if hit[begin + place] or last_call[k] == call:
                    continue
                last_call[k] = call
            else:
                k = ahead_key[first_ahead + place - (end - begin)]
            if newer[k] >= 0:
                if of_call:
                    found.warm[call] += 1
                else:
                    found.ahead_warm[first_ahead + place - (end - begin)] = 1
                newer[older[k]], older[newer[k]] = newer[k], older[k]
            elif size[k] > capacity:
                continue
            else:
                used += size[k]
            while used > capacity:
                oldest = newer[keys]
                newer[keys], older[newer[oldest]] = newer[oldest], keys
                newer[oldest] = -1
                used -= size[oldest]
            newer[k], older[k] = keys, older[keys]
            newer[older[keys]] = k
            older[keys] = k
