"""Remapped slots: by hand, and against a few lines of dicts."""

from __future__ import annotations

import numpy as np
import pytest

from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.workload import Setup, prepare
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.slot_remap import SlotRemap
from flashmoe_sim.timeline.assemble import Conditions
from flashmoe_sim.timeline.from_replay import time_replay
from flashmoe_sim.timeline.models.sync_install import SyncInstall
from flashmoe_sim.trace.routing import RoutingTrace
from tests.residency.builders import Call, geometry_of, one_layer, random_calls, some, trace_of
from tests.systems.models import big_model

PROMPT, DECODE = 1, 2


def _replayed(calls: list[Call], slots: int, *, phase: list[int] | None = None, n_experts: int = 16) -> Replayed:
    trace = trace_of(calls, n_experts)
    if phase is not None:
        trace = trace.with_(phase=np.array(phase, np.uint8))
    system = SlotRemap()
    setup = Setup(Bank(slots=slots), Lru(), "sequential")
    return system.replay(system.prepared(prepare(trace)), setup)


def _twin(trace: RoutingTrace, slots: int, *, preseed: bool) -> tuple[list[int], list[int], int, int]:
    """Hits and misses of each call, evictions, and experts copied ahead."""
    stamps: dict[int, dict[int, int]] = {}
    clock, evictions, ahead, before = 0, 0, 0, None
    just_used: list[int] = []
    hits, misses = [], []
    for call in range(trace.calls):
        phase = None if trace.phase is None else int(trace.phase[call])
        if phase != before:
            stamps.clear()
            just_used = []
        before = phase
        if preseed and trace.layer[call] == trace.layers[0] and trace.has_refs[call] and stamps.get(trace.layers[0]):
            stamp = stamps[trace.layers[0]]
            for expert in just_used:
                if expert in stamp:
                    continue
                if len(stamp) == slots:
                    del stamp[min(stamp, key=lambda one: stamp[one])]
                clock, ahead = clock + 1, ahead + 1
                stamp[expert] = clock
        stamp = stamps.setdefault(int(trace.layer[call]), {})
        experts = sorted(set(trace.expert[trace.offset[call] : trace.offset[call + 1]].tolist()))
        hits.append(0)
        for expert in experts:
            if expert in stamp:
                hits[-1] += 1
            elif len(stamp) == slots:
                del stamp[min(stamp, key=lambda one: stamp[one])]
                evictions += 1
            clock += 1
            stamp[expert] = clock
        misses.append(len(experts) - hits[-1])
        if experts and trace.layer[call] != trace.layers[0]:
            just_used = experts
    return hits, misses, evictions, ahead


def test_an_expert_that_the_call_needs_later_may_be_thrown_out() -> None:
    # Slots hold 2 and 3, 2 the older; the call requests 0 first, which evicts 2, and then 2 evicts 3.
    replayed = _replayed(one_layer([[2, 3], [2, 0]]), 2)
    assert some(replayed, "requests", "hits", "misses", "evictions") == (4, 0, 4, 2)


def test_experts_are_looked_up_in_the_order_of_their_numbers_and_once() -> None:
    replayed = _replayed([(0, [7, 1, 1, 7], 2), (0, [9], 1), (0, [7], 1)], 2)
    assert some(replayed, "refs", "requests", "hits") == (6, 4, 1)
    assert replayed.hit.tolist() == [0, 1, 0, 1, 0, 1]  # 1 1 7 7, 9 evicts 1, 7 is still there


def test_a_switch_of_phase_empties_the_slots() -> None:
    calls = one_layer([[1, 2], [1, 2], [1, 2], [1, 2]])
    replayed = _replayed(calls, 4, phase=[PROMPT, DECODE, DECODE, PROMPT])
    assert replayed.stream.misses.tolist() == [2, 2, 0, 2]
    assert replayed.stream.cold.tolist() == [2, 2, 0, 2]


def test_a_call_larger_than_the_slots_is_an_error() -> None:
    with pytest.raises(OutOfRange, match="asks for 33 distinct experts"):
        _replayed(one_layer([range(33)]), 32, n_experts=64)


def test_the_first_layer_is_seeded_with_what_the_last_one_used() -> None:
    """Layer 0 has 1 and 2 in its two slots, 1 the older. Layer 1 uses 2 and 3: 2 is there and keeps its age, 3 takes
    the slot of 1. So the call for 2 and 3 hits both; the next one, after 2 and 3 again, too."""
    calls: list[Call] = [(0, [1, 2], 1), (1, [2, 3], 1), (0, [2, 3], 1), (1, [2, 3], 1), (0, [2, 3], 1), (1, [4, 5], 1)]
    replayed = _replayed(calls, 2)
    assert replayed.stream.misses.tolist() == [2, 2, 0, 0, 0, 2]
    assert replayed.stream.prefetch_issued.tolist() == [0, 1, 0, 0, 0, 0]
    assert replayed.stream.ahead.used.tolist() == [2]
    assert some(replayed, "prefetch_issued", "prefetch_useful", "prefetch_calls", "prefetch_requests") == (1, 1, 2, 4)
    plain = SlotRemap(preseed=False)
    setup = Setup(Bank(slots=2), Lru(), "sequential")
    assert some(plain.replay(plain.prepared(prepare(trace_of(calls, 16))), setup), "misses", "prefetch_issued") == (
        7,
        0,
    )
    switched = _replayed(calls, 2, phase=[PROMPT, PROMPT, *[DECODE] * 4])
    assert switched.stream.misses.tolist() == [2, 2, 2, 2, 0, 2]  # the first call of a phase finds no slots to seed


def test_nothing_is_seeded_between_layers_of_different_experts() -> None:
    calls: list[Call] = [(0, [1, 2], 1), (1, [2, 3], 1), (0, [2, 3], 1)]
    system, setup = SlotRemap(), Setup(Bank(slots=2), Lru(), "sequential")
    workload = prepare(trace_of(calls, 16), geometry_of({0: 1 << 20, 1: 1 << 21}, 16))
    assert some(system.replay(system.prepared(workload), setup), "prefetch_issued") == (0,)


@pytest.mark.parametrize("preseed", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_it_counts_as_its_twin(seed: int, *, preseed: bool) -> None:
    rng = np.random.default_rng(seed)
    calls = random_calls(rng, n_experts=12, layers=3, steps=40, most_tokens=3, width=3, missing=0.1, idle=0.1)
    trace = trace_of(calls, 12)
    phase = np.repeat(rng.integers(PROMPT, DECODE + 1, len(calls) // 7 + 1), 7)[: len(calls)].astype(np.uint8)
    trace = trace.with_(phase=phase)
    system, slots = SlotRemap(preseed=preseed), int(rng.integers(9, 12))
    replayed = system.replay(system.prepared(prepare(trace)), Setup(Bank(slots=slots), Lru(), "sequential"))
    hits, misses, evictions, ahead = _twin(trace, slots, preseed=preseed)
    assert replayed.stream.hits.tolist() == hits
    assert replayed.stream.misses.tolist() == misses
    assert some(replayed, "refs", "requests", "hits", "misses", "evictions", "prefetch_issued") == (
        trace.refs,
        sum(hits) + sum(misses),
        sum(hits),
        sum(misses),
        evictions,
        ahead,
    )


def test_a_pool_of_fewer_layers_hits_nothing_whichever_layer_goes() -> None:
    """Evicting the layer needed next (patch 0023) and the one used longest ago are the same in a cycle."""
    layers, room = 5, 3
    for furthest in (True, False):
        held: dict[int, int] = {}
        hits = 0
        for now in range(40):
            layer = now % layers
            hits += layer in held
            if layer not in held and len(held) == room:
                ahead = {one: (layer - one + layers) % layers for one in held}
                held.pop(max(held, key=lambda one: ahead[one] if furthest else -held[one]))
            held[layer] = now
        assert hits == 0
    case = Case(big_model(), load_machine("strix-halo-128"))
    assert not SlotRemap(pool_layers=3).plan(case).setup.policy.has_bank
    assert SlotRemap(pool_layers=3).memory(case)[0].size_bytes < SlotRemap().memory(case)[0].size_bytes


def test_a_model_that_fits_the_gpu_is_not_cached() -> None:
    case = Case(big_model(), load_machine("strix-halo-128"))
    assert SlotRemap().why_not(case) == ""
    assert "use all-gpu" in SlotRemap(gtt_mb=10**7).why_not(case)


def test_seconds_of_all_phases_are_one_timeline() -> None:
    calls = one_layer([[1, 2], [1, 2], [1, 3], [1, 3]])
    trace = trace_of(calls, 16).with_(phase=np.array([PROMPT, DECODE, DECODE, DECODE], np.uint8))
    workload = prepare(trace, geometry_of({0: 1 << 20}, 16))
    system, machine = SlotRemap(), load_machine("strix-halo-128")
    setup = Setup(Bank(slots=8), Lru(), "sequential")
    routed = system.prepared(workload)
    timed = time_replay(routed, system.replay(routed, setup), machine, Conditions(SyncInstall(), 1 << 20))
    assert timed.work.misses.tolist() == [2, 2, 1, 0]
    assert timed.work.warm.tolist() == [0, 2, 0, 0]  # the page cache outlives the switch
    assert timed.timing.tok_s is not None
