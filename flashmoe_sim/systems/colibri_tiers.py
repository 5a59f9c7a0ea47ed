"""colibri's tiers: experts pinned by use on the GPU and in RAM, and an LRU list of each layer for the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.policies._staged import StagedLru
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.profile import find_profile
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.replay import replay as run_replay
from flashmoe_sim.residency.stream import distinct
from flashmoe_sim.residency.workload import Setup, Workload

Masks = list[NDArray[np.bool_]]


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
