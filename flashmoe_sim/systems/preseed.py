"""The first layer's slots, seeded once per token with the experts that the last layer just used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.residency import tally
from flashmoe_sim.residency.replay import Replay
from flashmoe_sim.residency.stream import ReadAhead
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.trace.routing import RoutingTrace

COLUMNS = ("hits", "misses", "cold", "evictions")


@dataclass
class _Seed:
    """An expert that was copied ahead. after: the call before it. used: the call that first hit it, or -1."""

    after: int
    expert: int
    cold: bool
    used: int = -1


@dataclass
class _Slots:
    """The slots of the first layer. held: its experts, least recently used first, with the seed if an expert was seeded
    and not used since."""

    slots: int
    held: dict[int, _Seed | None] = field(default_factory=dict)

    def install(self, expert: int, seed: _Seed | None = None) -> bool:
        """Put a missing expert into a slot; return whether that evicted another one."""
        evicts = len(self.held) == self.slots
        if evicts:
            del self.held[next(iter(self.held))]
        self.held[expert] = seed
        return evicts

    def look_up(self, call: int, experts: Sequence[int]) -> tuple[list[bool], int]:
        """Which of a call's experts are hits, one after another, and how many others were evicted."""
        hits, evictions = [], 0
        for expert in experts:
            hits.append(expert in self.held)
            if not hits[-1]:
                evictions += self.install(expert)
                continue
            if (seed := self.held.pop(expert)) is not None:
                seed.used = call
            self.held[expert] = None
        return hits, evictions


def preseeded(workload: Workload, replayed: Replay, parts: Sequence[NDArray[np.int64]]) -> Replay:
    """The replay of an LRU bank whose first layer is seeded before each of its calls, except a part's first call.

    Experts that the routed call before it used and the layer lacks are copied into its slots; an expert that it has
    keeps its age. Nothing is seeded unless the experts of the first layer are like those of the last layer.
    workload: each call's distinct experts, in the order in which they are looked up. parts: as for `replay_in_parts`.
    """
    trace, stream = workload.trace, replayed.stream
    if not _alike(workload):
        return replayed
    assert stream is not None
    assert replayed.hit is not None
    hit, contents = replayed.hit.copy(), replayed.contents[0]
    seeds: list[_Seed] = []
    asked: list[int] = []
    columns = {name: getattr(stream, name).copy() for name in COLUMNS}
    for part in parts:
        slots, before = _Slots(replayed.setup.bank.slots or 0), -1
        for call in part[trace.has_refs[part]].tolist():
            if trace.layer[call] != trace.layers[0]:
                before = call
                continue
            if slots.held and before >= 0:
                found = _experts(trace, before)
                asked.append(len(found))
                for expert in found:
                    if expert not in slots.held:
                        seeds.append(_Seed(before, expert, cold=len(slots.held) < slots.slots))
                        slots.install(expert, seeds[-1])
            hits, evictions = slots.look_up(call, _experts(trace, call))
            hit[trace.offset[call] : trace.offset[call + 1]] = hits
            misses = hits.count(False)
            for name, value in zip(COLUMNS, (len(hits) - misses, misses, misses - evictions, evictions), strict=True):
                columns[name][call] = value
        contents = np.array(sorted(slots.held), np.int32)
    return _with_seeds(
        workload, replace(replayed, hit=hit, contents=[contents, *replayed.contents[1:]]), columns, seeds, asked
    )


def _with_seeds(
    workload: Workload,
    replayed: Replay,
    columns: dict[str, NDArray[np.int32]],
    seeds: Sequence[_Seed],
    asked: Sequence[int],
) -> Replay:
    """A replay with these columns in its stream, and with the copies ahead. asked: experts each time."""
    trace, stream = workload.trace, replayed.stream
    assert stream is not None
    ahead = ReadAhead(
        np.array([seed.after for seed in seeds], np.int64),
        np.zeros(len(seeds), np.int32),
        np.array([seed.expert for seed in seeds], np.int32),
        np.array([seed.used for seed in seeds], np.int64),
        np.array([seed.cold for seed in seeds], np.uint8),
    )
    issued = np.bincount(ahead.after, minlength=trace.calls).astype(np.int32)
    of_first = (trace.layer == trace.layers[0]) & trace.has_refs
    useful = int((ahead.used >= 0).sum())
    counted = {getattr(tally, name.upper()): int(columns[name][of_first].sum()) for name in COLUMNS}
    counted[tally.FULL_HIT_CALLS] = int((columns["misses"][trace.layer == trace.layers[0]] == 0).sum())
    counted |= {
        tally.PREFETCH_CALLS: len(asked),
        tally.PREFETCH_REQUESTS: sum(asked),
        tally.PREFETCH_ISSUED: len(seeds),
    }
    counted |= {tally.PREFETCH_USEFUL: useful, tally.PREFETCH_WASTED: len(seeds) - useful}
    table = replayed.counts.table.copy()
    table[0, list(counted)] = list(counted.values())
    changed: dict[str, Any] = columns | {"prefetch_issued": issued, "ahead": ahead}
    if workload.expert_bytes is not None:
        size = np.array(workload.expert_bytes, np.int64)[np.searchsorted(trace.layers, trace.layer)]
        changed |= {
            "bytes_read": columns["misses"] * size,
            "prefetch_bytes": issued * np.int64(workload.expert_bytes[0]),
        }
    stream = replace(stream, **changed)
    return replace(replayed, stream=stream, counts=replace(replayed.counts, table=table))


def _alike(workload: Workload) -> bool:
    """Whether the first and the last layer have equally many and equally large experts, family by family."""
    first, last = workload.trace.layers[0], workload.trace.layers[-1]
    if workload.geometry is not None and workload.geometry.layers[first] != workload.geometry.layers[last]:
        return False
    return first != last and workload.trace.n_experts[first] == workload.trace.n_experts[last]


def _experts(trace: RoutingTrace, call: int) -> list[int]:
    experts: list[int] = trace.expert[trace.offset[call] : trace.offset[call + 1]].tolist()
    return experts
