"""Slots in memory shared by CPU and GPU; the router's expert numbers are rewritten to slot numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sizes import MIB
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.demand import Demand
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.replay import Replay
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.base import Case, Launch, Plan, Share, System, gpu_weights, ladder, llama_words
from flashmoe_sim.systems.parts import replay_in_parts
from flashmoe_sim.systems.preseed import preseeded
from flashmoe_sim.timeline.models.sync_install import SyncInstall
from flashmoe_sim.trace.phases import find_phases
from flashmoe_sim.trace.routing import PHASE_UNKNOWN, RoutingTrace

LEAST_SLOTS, MOST_SLOTS = 8, 256
BESIDE_FILE_MIB = 8192


@dataclass(frozen=True, kw_only=True)
class SlotRemap(System):
    """Every layer has slots for the last used experts, and the router's expert numbers are rewritten to slot numbers.

    The experts of a call are looked up in the order of their numbers, each miss is copied at once, and nothing protects
    an expert that the same call needs later. The slots are emptied at each switch between prompt and generation. Here a
    miss in RAM is copied twice, since reading the mapped file costs about a copy.

    slots: per layer; the engine accepts 8 to 256.
    pool_layers: layers that have slots at a time; 0: all. With fewer layers than the model has, nothing is ever hit:
        the layer needed next is always the one that was evicted.
    preseed: whether the last layer's experts are copied into the first layer's slots before its next call (patch 0022).
        Only the first layer follows a part of the graph without experts. Here the call waits.
    gtt_mb: MiB that the GPU may use. A model whose file leaves 8192 MiB of them free is not cached: all of it is on the
        GPU.
    """

    name: ClassVar[str] = "slot-remap"
    title: ClassVar[str] = "llama-cpp-moe-flash, remapped slots"
    engine: ClassVar[str] = "llama-cpp-moe-flash"
    program: ClassVar[str] = "slot-remap"
    source: ClassVar[str] = (
        "cecil-the-coder/llama-cpp-moe-flash 2f7e7b9: patches 0001a-c; 0017, 0018 d56efdc, 0022 7937441, 0023 c5760f9, "
        "0024 da3984d"
    )
    keeps: ClassVar[str] = "the experts used last, in slots of each layer"
    misses: ClassVar[str] = "copied into a slot from the mapped file, one after another"
    size: ClassVar[str] = "slots"
    own_gpu: ClassVar[bool | None] = False

    slots: int = 32
    pool_layers: int = 0
    preseed: bool = True
    gtt_mb: int = 120_000

    def __post_init__(self) -> None:
        if not LEAST_SLOTS <= self.slots <= MOST_SLOTS:
            raise BadInput(f"system slot-remap: slots {self.slots}; expected {LEAST_SLOTS} to {MOST_SLOTS}")
        if self.pool_layers < 0 or self.gtt_mb < 0:
            given = f"pool_layers {self.pool_layers}, gtt_mb {self.gtt_mb}"
            raise BadInput(f"system slot-remap: {given}; expected 0 or more")

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
        evicts = 0 < self.pool_layers < len(case.model.layers)
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
        trace = workload.trace
        call = np.repeat(np.arange(trace.calls), np.diff(trace.offset))
        expert = trace.expert[np.lexsort((trace.expert, call))]
        return prepare(trace.with_(expert=expert, weight=None, slot=None, resident=None), workload.geometry)

    def replay(self, workload: Workload, setup: Setup) -> Replay:
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
            raise BadInput(
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
