"""Reads: chunks of experts over the lanes of the storage."""

from __future__ import annotations

from typing import Any, NamedTuple

from flashmoe_sim._jit import inlined
from flashmoe_sim.timeline.names import IS_READ, IS_WARM_READ, ON_STORAGE
from flashmoe_sim.timeline.state import note


@inlined
def earliest_lane(sim: Any, time: float) -> int:
    """The lane on which a read that is ready at `time` starts first, the lowest number on a tie."""
    best, start = 0, max(sim.lane_free[0], time)
    for lane in range(1, len(sim.lane_free)):
        if start <= time:
            break
        if sim.lane_free[lane] < start:
            best, start = lane, max(sim.lane_free[lane], time)
    return best


@inlined
def read_on(sim: Any, lane: int, time: float, service_s: float, kind: int, call: int) -> float:
    """Read one chunk that is ready at `time`; return when it has been read."""
    begin = max(sim.lane_free[lane], time)
    end: float = begin + service_s
    sim.lane_free[lane] = end
    sim.busy[ON_STORAGE] += service_s
    note(sim, ON_STORAGE, lane, kind, call, begin, end)
    return end


@inlined
def depth_of(chunks: int, lanes: int) -> int:
    """How many of a batch's chunks share the bandwidth: the number of lanes, evened out over the rounds it takes."""
    rounds = rounds_of(chunks, lanes)
    return (chunks + rounds - 1) // max(rounds, 1) if chunks > 0 else 1


@inlined
def rounds_of(chunks: int, lanes: int) -> int:
    """How many rounds all lanes need for that many chunks."""
    return (chunks + lanes - 1) // lanes


class Batch(NamedTuple):
    """Misses of a call that are read together, as items from `first` on.

    The last `warm` of them come from the page cache, and the first `fills` fill slots for the first time. chunks: reads
    of each.
    """

    first: int
    misses: int
    warm: int
    fills: int
    chunks: int


@inlined
def read_batch(sim: Any, call: Any, batch: Any, time: float) -> float:
    """Read misses of a call that are ready at `time`; return the time when all have arrived.

    Each chunk in turn starts on the lane that is free first.
    What is read from storage is copied out of the page cache as well, so a batch of both takes at least the copies of
    all its chunks, and no expert arrives before storage alone could have read it and those before it.
    """
    first, misses, warm, fills, chunks = batch
    row, lanes = call.row, len(sim.lane_free)
    if misses == 0:
        return time
    mixed, depth = 0 < warm < misses, depth_of(misses * chunks, lanes)
    cold_s, warm_s = sim.read_s[0, row, depth - 1], sim.read_s[1, row, depth - 1]
    if mixed:
        rounds, stored = rounds_of(misses * chunks, lanes), (misses - warm) * chunks
        cold_s = max(sim.read_s[0, row, (stored + rounds - 1) // rounds - 1], warm_s)
    fill_s = sim.rows[row].fill_s
    alike = not mixed and (not 0 < fills < misses or fill_s == 0.0)
    if alike and all_free(sim, time) and not sim.state[0].recording:
        service_s = warm_s if warm > 0 else cold_s
        if fills > 0:
            service_s += fill_s
        rounds_end: float = read_rounds(sim, batch, service_s, time)
        return rounds_end
    last = time
    for i in range(misses):
        is_warm = i >= misses - warm
        service_s, kind = (warm_s, IS_WARM_READ) if is_warm else (cold_s, IS_READ)
        if i < fills:
            service_s += fill_s
        arrived = time
        for _ in range(chunks):
            arrived = max(arrived, read_on(sim, earliest_lane(sim, time), time, service_s, kind, call.number))
        if mixed and not is_warm:
            arrived = max(arrived, time + alone_s(sim, row, (i + 1) * chunks))
        arrive(sim, first + i, arrived)
        last = max(last, arrived)
    return last


@inlined
def alone_s(sim: Any, row: int, chunks: int) -> float:
    """Seconds in which storage reads that many chunks as one batch."""
    lanes = len(sim.lane_free)
    seconds: float = rounds_of(chunks, lanes) * sim.read_s[0, row, depth_of(chunks, lanes) - 1]
    return seconds


@inlined
def arrive(sim: Any, i: int, time: float) -> None:
    """Item `i` is a miss, read by `time`."""
    item = sim.items[i]
    item.ahead = -1
    item.arrived = time
    item.due = time


@inlined
def all_free(sim: Any, time: float) -> bool:
    """Whether no lane is busy at `time`."""
    for lane in range(len(sim.lane_free)):  # noqa: SIM110  # any() takes a generator, which is not compiled
        if sim.lane_free[lane] > time:
            return False
    return True


@inlined
def read_rounds(sim: Any, batch: Any, service_s: float, time: float) -> float:
    """`read_batch` if all lanes are free and all chunks take the same time: they are read in rounds.

    Service times are added in the same order as by the lanes, so that every time is equal to the last bit.
    """
    first, misses, _, _, chunks = batch
    lanes = len(sim.lane_free)
    placed, before = 0, time
    end: float = time
    for i in range(misses):
        while placed < (i + 1) * chunks:
            placed += lanes
            before = end
            end += service_s
        arrive(sim, first + i, end)
    in_last_round = misses * chunks - (placed - lanes)
    for lane in range(lanes):
        sim.lane_free[lane] = end if lane < in_last_round else before
    sim.busy[ON_STORAGE] += misses * chunks * service_s
    return end


@inlined
def read_family(sim: Any, row: int, f: int, is_warm: bool, fills: bool, time: float, kind: int, call: int) -> float:
    """Read one tensor family of an expert, its chunks over its lanes, while all are free; return the end."""
    family = sim.families[row, f]
    lanes = family.lanes
    service_s = family.warm_s if is_warm else family.read_s
    if fills:
        service_s += family.fill_s
    clock: float = time
    left = family.chunks
    while left > 0:
        if sim.state[0].recording:
            for lane in range(min(lanes, left)):
                note(sim, ON_STORAGE, lane, kind, call, clock, clock + service_s)
        clock += service_s
        left -= lanes
    sim.busy[ON_STORAGE] += family.chunks * service_s
    return clock
