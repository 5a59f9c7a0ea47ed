"""colibri's tiers: experts pinned by use on the GPU and in RAM, and an LRU list of each layer for the others."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.profile import find_profile
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.replay import replay as run_replay
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.tiers import distinct
from flashmoe_sim.residency.workload import Workload

SPAN = 1 << 20  # of the order of use in a call; a call has fewer experts than half of it
Masks = list[NDArray[np.bool_]]


def on_call(state: Any, step: int) -> None:
    _, count, _ = state
    count[0] += 1
    count[1] = 0


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    order, count, _ = state
    order[slot] = count[0] * SPAN + count[1]
    count[1] += 1


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    order, count, _ = state
    order[slot] = (count[0] + 1) * SPAN - 1 - count[1]
    count[1] += 1


def admits(state: Any, key: int, now: int) -> bool:
    return not state[2][key]


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    order, count, _ = state
    new, oldest, first_miss = count[0] * SPAN + SPAN // 2, -1, -1
    for slot in range(len(slot_key)):
        if slot_key[slot] < 0 or blocked[slot] == mark:
            continue
        if order[slot] >= new:
            if first_miss < 0 or order[slot] > order[first_miss]:
                first_miss = slot
        elif oldest < 0 or order[slot] < order[oldest]:
            oldest = slot
    return oldest if oldest >= 0 else first_miss


@dataclass(frozen=True)
class StagedLru(EvictingPolicy):
    """The least recently used expert is evicted; misses of a call count as used after its hits, the last one first.

    The engine reads the misses of a call beside its list and then takes them in from the last one to the first, at most
    as many as the list has slots: of more, the last ones stay. It takes a call of more than 64 experts in parts of 64;
    here all are one part.
    on_gpu, in_ram: experts of all layers that are pinned on the GPU and in RAM, the most used ones on the GPU. pinned:
    of each layer, bool [experts], those that never enter the list.
    """

    name: ClassVar[str] = "staged-lru"
    source: ClassVar[str] = "JustVugg/colibri 003a0b9b8: c/colibri.c, moe()"
    kernels: ClassVar[dict[str, Any]] = by_name(on_call, on_hit, on_install, admits, choose_victim)

    on_gpu: int = 0
    in_ram: int = 0
    pinned: dict[int, NDArray[np.bool_]] = field(default_factory=dict, compare=False, repr=False)

    def allocate(self, shape: PoolShape) -> State:
        pinned = self.pinned.get(shape.layer, np.zeros(shape.keys, np.bool_))
        return np.zeros(shape.slots, np.int64), np.zeros(2, np.int64), pinned


def replay_tiers(workload: Workload, setup: Setup, policy: StagedLru, profile: str) -> Replayed:
    """The recorded replay of all tiers. profile: where uses are counted, as for the policy `static`.

    Experts on the GPU are the bank, and `in_ram` has those of the other tiers. Without any, pinned experts and the
    lists are the bank.
    """
    trace = workload.trace
    on_gpu = _most_used(workload, profile, policy.on_gpu)
    pinned = _most_used(workload, profile, policy.on_gpu + policy.in_ram)
    of_layers = dict(zip(trace.layers, pinned, strict=True))
    found = run_replay(workload, replace(setup, policy=replace(policy, pinned=of_layers)), record=True)
    assert found.hit is not None
    if not policy.on_gpu + policy.in_ram:
        return found
    held = _of(workload, pinned) | (found.hit != 0)
    sizes = np.array(workload.expert_bytes or (0,) * len(pinned), np.int64)
    kept = sum(int(size) * int(mask.sum()) for size, mask in zip(sizes, pinned, strict=True))
    gpu = sum(int(size) * int(mask.sum()) for size, mask in zip(sizes, on_gpu, strict=True))
    counts = replace(found.counts, resident_bytes=(found.counts.resident_bytes or 0) + kept - gpu)
    found = replace(found, counts=counts)
    if not policy.on_gpu:
        return _served(workload, found, held, installs=True)
    bank = _of(workload, on_gpu)
    return replace(_served(workload, found, bank, installs=False), in_ram=held & ~bank)


def _most_used(workload: Workload, profile: str, experts: int) -> Masks:
    """The experts of all layers with the most uses in a profile, bool [experts] of each layer; by number if equal."""
    pools = find_profile(profile, workload.trace, workload.layer_pools).pools
    uses = np.concatenate([pool.requests_by_key for pool in pools])
    chosen = np.zeros(len(uses), np.bool_)
    chosen[np.lexsort((np.arange(len(uses)), -uses))[:experts]] = True
    return np.split(chosen, np.cumsum([len(pool.requests_by_key) for pool in pools])[:-1])


def _of(workload: Workload, masks: Masks) -> NDArray[np.bool_]:
    """Whether each reference is of an expert in the masks: bool [references]."""
    trace = workload.trace
    base = np.cumsum([0, *(len(mask) for mask in masks)])[:-1]
    row = np.repeat(trace.row, np.diff(trace.offset))
    chosen: NDArray[np.bool_] = np.concatenate(masks)[base[row] + trace.expert]
    return chosen


def _served(workload: Workload, found: Replayed, hit: NDArray[np.bool_], *, installs: bool) -> Replayed:
    """The replay with these references as its hits. installs: whether its misses enter a list."""
    assert found.stream is not None
    trace, table = workload.trace, found.counts.table.copy()
    stream, hits = found.stream, distinct(trace, hit)
    misses = stream.requests - hits
    stream = replace(stream, hits=hits, misses=misses, bypassed=stream.bypassed - stream.misses + misses)
    if not installs:
        none = np.zeros_like(misses)
        stream = replace(stream, bypassed=misses, cold=none, evictions=none)
    if workload.expert_bytes is not None:
        stream = replace(stream, bytes_read=misses * np.array(workload.expert_bytes, np.int64)[trace.row])
    for column, values in (
        (tally.HITS, hits),
        (tally.MISSES, misses),
        (tally.BYPASSED, stream.bypassed),
        (tally.COLD, stream.cold),
        (tally.EVICTIONS, stream.evictions),
        (tally.FULL_HIT_CALLS, misses == 0),
    ):
        table[:, column] = np.bincount(trace.row, weights=values, minlength=len(table)).astype(np.int64)
    return replace(found, counts=replace(found.counts, table=table), hit=hit.astype(np.uint8), stream=stream)
