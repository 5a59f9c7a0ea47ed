"""Slots in memory shared by CPU and GPU; the router's expert numbers are rewritten to slot numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.io.sizes import MIB
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.demand import Demand
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.stream import ReadAhead
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from flashmoe_sim.systems.base import Case, Launch, Plan, Share, System, gpu_weights, ladder, llama_words
from flashmoe_sim.systems.in_parts import replay_in_parts
from flashmoe_sim.systems.workloads import by_number
from flashmoe_sim.timeline.models.sync_install import SyncInstall
from flashmoe_sim.trace.phases import find_phases
from flashmoe_sim.trace.routing import PHASE_UNKNOWN, RoutingTrace

LEAST_SLOTS, MOST_SLOTS = 8, 256
BESIDE_FILE_MIB = 8192
SEEDED = ("hits", "misses", "cold", "evictions")


@dataclass(frozen=True, kw_only=True)
class SlotRemap(System, program="slot-remap"):
    """Every layer has slots for the last used experts, and the router's expert numbers are rewritten to slot numbers.

    The experts of a call are looked up in the order of their numbers, each miss is copied at once, and nothing protects
    an expert that the same call needs later. The slots are emptied at each switch between prompt and generation. Here a
    miss in RAM is copied twice, since reading the mapped file costs about a copy.

    slots: per layer; the engine accepts 8 to 256.
    pool_layers: layers that have slots at a time; left out: all. With fewer layers than the model has, nothing is ever
        hit: the layer needed next is always the one that was evicted.
    preseed: whether the last layer's experts are copied into the first layer's slots before its next call (patch 0022).
        Only the first layer follows a part of the graph without experts. Here the call waits.
    gtt_mb: MiB that the GPU may use. A model whose file leaves 8192 MiB of them free is not cached: all of it is on the
        GPU.
    """

    slots: int = 32
    pool_layers: int | None = None
    preseed: bool = True
    gtt_mb: int = 120_000

    def why_not(self, case: Case) -> str:
        if reason := super().why_not(case):
            return reason
        file_mib = (case.model.routed_bytes + case.dense_bytes) / MIB
        if file_mib + BESIDE_FILE_MIB < self.gtt_mb:
            return f"{file_mib:.0f} MiB of model fit the GPU's {self.gtt_mb}, so the engine caches nothing; use all-gpu"
        return ""

    def sizes(self, case: Case) -> Sequence[int]:
        return self.accepted(ladder(LEAST_SLOTS, max(min(MOST_SLOTS, case.n_experts), LEAST_SLOTS)), case)

    def plan(self, case: Case) -> Plan:
        evicts = self.pool_layers is not None and self.pool_layers < len(case.model.layers)
        setup = Setup(Bank(slots=min(self.slots, case.n_experts)), Demand() if evicts else Lru(), "sequential")
        return Plan(setup, SyncInstall(), self.adapted(case.machine))

    def memory(self, case: Case) -> tuple[Share, ...]:
        layers = len(case.model.layers)
        pool_bytes = self.slots * case.slot_bytes * (self.pool_layers or layers) // layers
        return (
            Share("slots", "gpu", pool_bytes),
            *gpu_weights(case),
            Share("experts", "mapped", case.model.routed_bytes),
        )

    def prepared(self, workload: Workload) -> Workload:
        """Each call's experts in the order of their numbers."""
        return by_number(workload)

    def replay(self, workload: Workload, setup: Setup) -> Replayed:
        """Replay one request per distinct expert of a call, with empty slots at the beginning of each phase."""
        trace = workload.trace
        first = _first_of_each(trace)
        upto = np.concatenate([[0], np.cumsum(first)])
        distinct = prepare(
            trace.with_(expert=trace.expert[first], offset=upto[trace.offset].astype(np.int64)), workload.geometry
        )
        self._check_unions(distinct.trace)
        parts = phases_of(trace)
        replayed = replay_in_parts(distinct, setup, parts)
        if self.preseed and setup.policy.has_bank:
            replayed = preseeded(distinct, replayed, parts)
        assert replayed.hit is not None
        hit = np.ones(trace.refs, np.uint8)
        hit[first] = replayed.hit
        table = replayed.counts.table.copy()
        for row, layer in enumerate(trace.layers):
            table[row, tally.REFS] = np.diff(trace.offset)[trace.layer == layer].sum()
        return replace(replayed, hit=hit, counts=replace(replayed.counts, table=table))

    def _check_unions(self, trace: RoutingTrace) -> None:
        union = np.diff(trace.offset)
        call = int(union.argmax())
        if union[call] > self.slots:
            raise OutOfRange(
                f"call {call} of {trace.name} (layer {trace.layer[call]}) asks for {union[call]} distinct experts, and "
                f"with {self.slots} slots the engine leaves its numbers unwritten; give more slots, or smaller batches"
            )

    def launch(self, case: Case) -> Launch:
        environment = {
            "GGML_MOE_N_SLOTS": str(self.slots),
            "GGML_MOE_POOL_LAYERS": str(self.pool_layers or len(case.model.layers)),
            "LLAMA_FLASH_MOE_ENABLED": "1",
            "LLAMA_FLASH_MOE_GTT_MB": str(self.gtt_mb),
        }
        return Launch(llama_words(case, "-ngl", "99", "--cpu-moe"), environment)


def phases_of(trace: RoutingTrace) -> list[NDArray[np.int64]]:
    """The calls of each stretch of prompt or of generation; calls of unknown phase belong to the stretch before."""
    phases = find_phases(trace)
    if phases is None:
        return [np.arange(trace.calls)]
    phase = phases.of_calls(trace)
    known = np.flatnonzero(phase != PHASE_UNKNOWN)
    turns = known[1:][np.diff(phase[known].astype(np.int64)) != 0]
    return np.split(np.arange(trace.calls), turns)


def _first_of_each(trace: RoutingTrace) -> NDArray[np.bool_]:
    """Which references are the first to their expert in a call, given sorted experts, bool [references]."""
    first = np.ones(trace.refs, np.bool_)
    first[1:] = trace.expert[1:] != trace.expert[:-1]
    first[trace.offset[:-1][trace.has_refs]] = True
    return first


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


def preseeded(workload: Workload, replayed: Replayed, parts: Sequence[NDArray[np.int64]]) -> Replayed:
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
    copied: list[int] = []
    columns = {name: getattr(stream, name).copy() for name in SEEDED}
    for part in parts:
        slots, before = _Slots(replayed.setup.bank.slots or 0), -1
        for call in part[trace.has_refs[part]].tolist():
            if trace.layer[call] != trace.layers[0]:
                before = call
                continue
            if slots.held and before >= 0:
                found = _experts(trace, before)
                copied.append(len(found))
                for expert in found:
                    if expert not in slots.held:
                        seeds.append(_Seed(before, expert, cold=len(slots.held) < slots.slots))
                        slots.install(expert, seeds[-1])
            hits, evictions = slots.look_up(call, _experts(trace, call))
            hit[trace.offset[call] : trace.offset[call + 1]] = hits
            misses = hits.count(False)
            for name, value in zip(SEEDED, (len(hits) - misses, misses, misses - evictions, evictions), strict=True):
                columns[name][call] = value
        contents = np.array(sorted(slots.held), np.int32)
    return _with_seeds(
        workload, replace(replayed, hit=hit, contents=[contents, *replayed.contents[1:]]), columns, seeds, copied
    )


def _with_seeds(
    workload: Workload,
    replayed: Replayed,
    columns: dict[str, NDArray[np.int32]],
    seeds: Sequence[_Seed],
    copied: Sequence[int],
) -> Replayed:
    """A replay with these columns in its stream, and with the copies ahead. copied: experts each time."""
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
    counted = {getattr(tally, name.upper()): int(columns[name][of_first].sum()) for name in SEEDED}
    counted[tally.FULL_HIT_CALLS] = int((columns["misses"][trace.layer == trace.layers[0]] == 0).sum())
    counted |= {
        tally.PREFETCH_CALLS: len(copied),
        tally.PREFETCH_REQUESTS: sum(copied),
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
