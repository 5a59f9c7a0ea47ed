"""The two oracle replays: by hand, against the simulator's own reads ahead, and against what the runtime logged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.prefetchers.table import parse_prefetcher
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, prepare
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.routing import RoutingTrace
from native_bridge.engines.flashmoe.oracle import oracle_all_hit, oracle_prefetch
from tests.residency.builders import trace_of

RUNS = Path(__file__).parents[4] / "data" / "runs"
RECORDED = load_trace(RUNS / "prose-bank24" / "trace.jsonl.gz")


def test_by_hand() -> None:
    """Three slots, one layer, two experts a call.

    Prime [0,1]: slots 0 and 1. Call 0 touches them; prime [2,0], with 0 and 1 reserved: 2 takes the empty slot 2, 0 is
    there. Call 1 touches 2, 0. Prime [3,1], with 2 and 0 reserved: 3 takes slot 1 from 1, which still counts as
    resident for the second reference: aliased. Call 2 misses 1: repaired, nothing reserved: 3 is there, and 1 takes the
    oldest other slot, 2, which expert 2 was in; call 2 was given slots 1 and 2.
    """
    trace = trace_of([(0, [0, 1], 1), (0, [2, 0], 1), (0, [3, 1], 1)], {0: 4})
    found = oracle_prefetch(trace, slots=3)
    assert found.slot.tolist() == [0, 1, 2, 0, 1, 2]
    assert (found.primes, found.requests, found.repairs) == (4, 8, 1)
    assert (found.misses, found.filled) == ({0: 5}, {0: 3})


def some_trace(seed: int) -> RoutingTrace:
    drawn = np.random.default_rng(seed)
    layers, steps = int(drawn.integers(2, 5)), int(drawn.integers(2, 30))
    calls = [(layer, drawn.permutation(12)[:3].tolist(), 1) for _ in range(steps) for layer in range(layers)]
    return trace_of(calls, 12)


@pytest.mark.parametrize("seed", range(60))
def test_as_the_simulator_reads_ahead(seed: int) -> None:
    """Its `oracle-1` serves a call's misses on demand, where the mode primes the call again: the same installs.

    With one layer the mode also reserves the slots of the call that runs, which `oracle-1` knows nothing of.
    """
    trace, slots = some_trace(seed), 3 + seed % 7
    found = oracle_prefetch(trace, slots=slots)
    setup = Setup(Bank(slots=slots), contract="runtime", prefetch=parse_prefetcher("oracle-1"))
    counts = replay(prepare(trace), setup).counts.total()
    assert counts["calls"] - counts["full_hit_calls"] == found.repairs
    assert counts["prefetch_issued"] + counts["misses"] == sum(found.misses.values())


def test_a_run_that_came_to_less() -> None:
    found = oracle_prefetch(RECORDED, slots=24, calls=100)
    assert len(found.slot) == RECORDED.offset[100]
    assert found.primes == 101 + found.repairs


def test_too_small() -> None:
    with pytest.raises(OutOfRange, match=r"call 0 \(layer 0\) finds no slot for its 8 distinct experts in a bank of 7"):
        oracle_prefetch(RECORDED, slots=7)
    with pytest.raises(OutOfRange, match=r"call 1 .* beside those of the call before it in a bank of 3"):
        oracle_prefetch(trace_of([(0, [0, 1], 1), (0, [2, 3], 1)], {0: 4}), slots=3)


def test_all_hit() -> None:
    trace = trace_of([(0, [5, 2], 1), (1, [1, 1], 2), (0, [2, 7], 1), (1, [3, 1], 2)], {0: 8, 1: 4})
    found = oracle_all_hit(trace, slots=3)
    assert found.slot.tolist() == [0, 1, 0, 0, 1, 2, 1, 0]
    assert found.installs == {0: 3, 1: 2}
    with pytest.raises(OutOfRange, match=r"layer 0 uses 3 experts and a bank holds 2: .*; give a bank of 3"):
        oracle_all_hit(trace, slots=2)


def test_all_hit_of_a_recorded_trace() -> None:
    first: dict[tuple[int, int], int] = {}
    expected, filled = [], dict.fromkeys(RECORDED.layers, 0)
    for call, layer in enumerate(RECORDED.layer.tolist()):
        for expert in RECORDED.expert[RECORDED.offset[call] : RECORDED.offset[call + 1]].tolist():
            if (layer, expert) not in first:
                first[layer, expert] = filled[layer]
                filled[layer] += 1
            expected.append(first[layer, expert])
    found = oracle_all_hit(RECORDED, slots=64)
    assert found.slot.tolist() == expected
    assert found.installs == filled
    assert sum(filled.values()) == 491
