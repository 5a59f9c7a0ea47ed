"""Traces worked by hand, with the reasoning."""

from __future__ import annotations

import numpy as np
import pytest

from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.workload import prepare
from tests.residency.builders import geometry_of, held, one_layer, run, some, totals, trace_of

INSTALLS = ("requests", "hits", "misses", "cold", "evictions", "bypassed")


def slots(result: Replayed, width: int) -> list[list[int]]:
    return result.slot.reshape(-1, width).tolist()


def test_the_papers_toy_trace() -> None:
    # In every layer:  {0,1}: misses 0 and 1 into empty slots.
    #                  {0,2}: 0 hits, 2 misses and displaces 1, used before 0.
    #                  {0,1}: 0 hits, 1 displaces 2.   {0,3}: 0 hits, 3 displaces 1.   {0,1}: 0 hits, 1 displaces 3.
    # That is 4 hits, 6 misses and insertions, 4 evictions, in each of 3 layers.
    asked = ([0, 1], [0, 2], [0, 1], [0, 3], [0, 1])
    calls = [(layer, experts, 1) for experts in asked for layer in range(3)]
    result = run(trace_of(calls, 4), 2, "lru", "atomic")
    assert some(result, *INSTALLS) == (30, 12, 18, 6, 12, 0)
    assert totals(result)["cold"] + totals(result)["evictions"] == 18
    assert [row["hits"] for row in result.counts.by_layer()] == [4, 4, 4]
    assert totals(result)["full_hit_calls"] == 0
    assert held(result) == [[0, 1]] * 3


PAIRS = one_layer([[0, 1], [2, 0], [0, 1], [1, 2], [0, 1]])


def test_runtime_with_aliased_references() -> None:
    # [0,1]: empty slots in ascending order: 0 in slot 0 (age 1), 1 in slot 1 (age 2).
    # [2,0]: 2 misses; nothing is reserved yet, the smallest age is slot 0: 2 goes there. 0 is still listed in slot 0:
    #        a hit, on the slot that 2 has just been given. Aliased. Now slot 0 holds 2 (age 4), slot 1 holds 1 (age 2).
    # [0,1]: 0 misses and takes slot 1 (age 2) from 1; 1 is still listed there: aliased. Slots hold 2 (4) and 0 (6).
    # [1,2]: 1 misses and takes slot 0 (age 4) from 2; 2 is still listed there: aliased. Slots hold 1 (8) and 0 (6).
    # [0,1]: both are resident, 0 in slot 1 and 1 in slot 0.
    result = run(trace_of(PAIRS, 4), 2, "lru", "runtime", record=True)
    assert slots(result, 2) == [[0, 1], [0, 0], [1, 1], [0, 0], [1, 0]]
    assert some(result, *INSTALLS, "aliased", "full_hit_calls") == (10, 5, 5, 2, 3, 0, 3, 1)
    assert result.stream.hits.tolist() == [0, 1, 1, 1, 2]
    assert result.stream.aliased.tolist() == [0, 1, 1, 1, 0]
    assert result.stream.cold.tolist() == [2, 0, 0, 0, 0]
    assert result.stream.evictions.tolist() == [0, 1, 1, 1, 0]
    assert held(result) == [[0, 1]]


def test_protected_on_the_same_trace() -> None:
    # [0,1]: as before. [2,0]: slot 0 is reserved for 0 before a victim is chosen, so 2 takes slot 1 from 1.
    # [0,1]: 0 is in slot 0; 1 takes slot 1 from 2. [1,2]: 1 is in slot 1; 2 takes slot 0 from 0.
    # [0,1]: 1 is in slot 1; 0 takes slot 0 from 2. One miss more than `runtime`, and no wrong weights.
    result = run(trace_of(PAIRS, 4), 2, "lru", "protected", record=True)
    assert slots(result, 2) == [[0, 1], [1, 0], [0, 1], [1, 0], [0, 1]]
    assert some(result, *INSTALLS, "aliased", "full_hit_calls") == (10, 4, 6, 2, 4, 0, 0, 0)
    assert held(result) == [[0, 1]]


def test_runtime_serves_a_union_larger_than_the_bank_where_it_aliases() -> None:
    # [0,1]: empty slots. [2,0,1]: 2 takes slot 0 from 0, which is still listed there, and 1 is resident: three experts
    # in two slots. [1,2,0]: 1 is resident in slot 1, 2 in slot 0; for 0 there is no slot that is not reserved.
    calls = one_layer([[0, 1], [2, 0, 1]])
    result = run(trace_of(calls, 4), 2, "lru", "runtime", record=True)
    assert result.slot.tolist() == [0, 1, 0, 0, 1]
    assert some(result, *INSTALLS, "aliased") == (5, 2, 3, 2, 1, 0, 1)
    says = r"call 2 of .* asks for 3 distinct experts and a bank holds 2: slot-bank overflow"
    with pytest.raises(OutOfRange, match=says):
        run(trace_of([*calls, *one_layer([[1, 2, 0]])], 4), 2, "lru", "runtime")
    with pytest.raises(OutOfRange, match=r"call 1 of .* asks for 3 distinct experts and a bank holds 2"):
        run(trace_of(calls, 4), 2, "lru", "protected")


PREFETCHES = ("prefetch_calls", "prefetch_requests", "prefetch_issued", "prefetch_useful", "prefetch_wasted")


@pytest.mark.parametrize("prefetch", ["temporal", "predict-prev"])
def test_prefetching_the_last_call_installs_what_aliasing_threw_out(prefetch: str) -> None:
    # One layer: every call is a step, and its union is prefetched right after it.
    # [0,1]: slots 0 and 1. Prefetch: both there.
    # [2,0]: 2 takes slot 0 from 0, 0 is aliased. Prefetch: 2 is there, 0 is not: it takes slot 1 from 1.
    # [0,1]: 0 hits in slot 1: the prefetch was useful. 1 takes slot 0 from 2. Prefetch: both there.
    # [1,2]: 1 hits in slot 0, 2 takes slot 1 from 0. Prefetch: both there; slot 0 is the older.
    # [0,1]: 0 takes slot 0 from 1, 1 is aliased. Prefetch: 0 is there, 1 takes slot 1 from 2; never used: wasted.
    result = run(trace_of(PAIRS, 4), 2, "lru", "runtime", prefetch=prefetch, record=True)
    assert slots(result, 2) == [[0, 1], [0, 0], [1, 0], [0, 1], [0, 0]]
    assert some(result, *INSTALLS, "aliased") == (10, 4, 6, 2, 4, 0, 2)
    assert some(result, *PREFETCHES) == (5, 10, 2, 1, 1)
    assert result.stream.prefetch_issued.tolist() == [0, 1, 0, 0, 1]
    assert held(result) == [[0, 1]]


def test_prefetching_only_the_first_expert() -> None:
    # [0,1]: slots 0 and 1; 0 is touched again, so slot 1 is the older.
    # [2,0]: 2 takes slot 1 from 1; 0 hits in slot 0. 2 is touched: slot 0 is the older.
    # [0,1]: 0 hits in slot 0 (reserved), 1 takes slot 1 from 2. 0 is touched: slot 1 is the older.
    # [1,2]: 1 hits in slot 1 (reserved), 2 takes slot 0 from 0. 1 is touched: slot 0 is the older.
    # [0,1]: 0 takes slot 0 from 2, 1 hits in slot 1. No prefetch ever misses.
    result = run(trace_of(PAIRS, 4), 2, "lru", "runtime", prefetch="predict-top1", record=True)
    assert slots(result, 2) == [[0, 1], [1, 0], [0, 1], [1, 0], [0, 1]]
    assert some(result, *INSTALLS, "aliased") == (10, 4, 6, 2, 4, 0, 0)
    assert some(result, *PREFETCHES) == (5, 5, 0, 0, 0)


def test_a_layer_without_a_call_is_prefetched_too() -> None:
    # Steps: layers 0 and 1; layer 0; layers 0 and 1. Before its first call a layer prefetches nothing.
    calls = [(0, [0], 1), (1, [0], 1), (0, [1], 1), (0, [0], 1), (1, [0], 1)]
    result = run(trace_of(calls, 2), 2, "lru", "runtime", prefetch="temporal")
    assert [row["prefetch_calls"] for row in result.counts.by_layer()] == [3, 3]
    late = [(1, [0], 1), (0, [0], 1), (1, [0], 1)]  # two steps; layer 0 is first called in the second
    result = run(trace_of(late, 2), 2, "lru", "runtime", prefetch="temporal")
    assert [row["prefetch_calls"] for row in result.counts.by_layer()] == [1, 2]


def test_atomic_serves_a_union_larger_than_the_bank() -> None:
    # Two slots. [0,1,2]: three misses; the one used first, 0, is streamed through: {1,2}.
    # [2,0,1]: 2 and 1 hit although 0 must be admitted; then a resident makes room, 2 before 1: {0,1}.
    # [3,4,5]: both residents make room for three misses, and 3 is streamed through: {4,5}.
    result = run(trace_of(one_layer([[0, 1, 2], [2, 0, 1], [3, 4, 5]]), 6), 2, "lru", "atomic", record=True)
    assert some(result, *INSTALLS) == (9, 2, 7, 2, 3, 2)
    assert result.stream.bypassed.tolist() == [1, 0, 1]
    assert result.stream.evictions.tolist() == [0, 1, 2]
    assert held(result) == [[4, 5]]


FUTURES = one_layer([[0, 1, 2], [2, 0], [0, 1], [3], [0, 1]])


def test_min_with_bypass() -> None:
    # [0,1,2]: used next in calls 1, 2, 1; the two nearest stay: {0,2}, and 1 is not admitted.
    # [2,0]: both hit. [0,1]: 0 hits; 2 is never used again, so 1 takes its place: {0,1}.
    # [3]: never used again, not admitted. [0,1]: both hit.
    result = run(trace_of(FUTURES, 4), 2, "min", "atomic", record=True)
    assert some(result, *INSTALLS, "full_hit_calls") == (10, 5, 5, 2, 1, 2, 2)
    assert result.stream.bypassed.tolist() == [1, 0, 0, 1, 0]
    assert held(result) == [[0, 1]]


def test_min_forced() -> None:
    # As above up to [3], which must be admitted. 0 and 1 are used next in the same call, 1 later in it: {0,3}.
    # [0,1]: 0 hits and 1 misses; of 0 and 3, neither used again, 3 was used longer ago: {0,1}.
    result = run(trace_of(FUTURES, 4), 2, "min:forced", "atomic", record=True)
    assert some(result, *INSTALLS, "full_hit_calls") == (10, 4, 6, 2, 3, 1, 1)
    assert held(result) == [[0, 1]]


def test_sequential_looks_up_every_reference() -> None:
    # Two slots, references 0 1 | 2 0 | 0 2: 2 displaces 0 just before it is requested, 0 displaces 1, then two hits.
    trace = trace_of(one_layer([[0, 1], [2, 0], [0, 2]]), 3)
    assert some(run(trace, 2, "lru", "sequential"), *INSTALLS) == (6, 2, 4, 2, 2, 0)
    # Atomic finds 0 resident in the second call.
    assert some(run(trace, 2, "lru", "atomic"), *INSTALLS) == (6, 3, 3, 2, 1, 0)


def test_a_repeat_is_a_request_only_in_sequential() -> None:
    trace = trace_of([(0, [0, 1, 0, 2], 2)], 3)
    assert some(run(trace, 3, "lru", "sequential"), "refs", *INSTALLS) == (4, 4, 1, 3, 3, 0, 0)
    for contract in ("runtime", "protected", "atomic"):
        assert some(run(trace, 3, "lru", contract), "refs", *INSTALLS) == (4, 3, 0, 3, 3, 0, 0)


def test_sequential_min_declines_what_is_used_later_than_its_victim() -> None:
    # One slot, references 0 1 0: 1 is never used again, 0 is: not admitted.
    trace = trace_of(one_layer([[0], [1], [0]]), 2)
    assert some(run(trace, 1, "min", "sequential"), *INSTALLS) == (3, 1, 2, 1, 0, 1)
    assert some(run(trace, 1, "min:forced", "sequential"), *INSTALLS) == (3, 0, 3, 1, 2, 0)


@pytest.mark.parametrize("contract", ["atomic", "sequential"])
def test_a_byte_bank_with_experts_of_two_sizes(contract: str) -> None:
    # 40 bytes for all; experts of layer 0 weigh 10, of layer 1 weigh 30. Written as layer.expert, oldest use first.
    # 0.0: 10.  1.0: 40.  0.1: needs 10, 0.0 goes: {1.0 0.1}.  1.1: needs 30, 1.0 goes: {0.1 1.1}.
    # 0.0: 0.1 goes: {1.1 0.0}.  0.1: 1.1 goes, which leaves 20: {0.0 0.1}.  1.1: 0.0 goes, just enough: {0.1 1.1}.
    # 1.0: 0.1 goes, not enough, 1.1 goes as well: {1.0}. One install and two evictions, of different layers.
    calls = [(0, [0], 1), (1, [0], 1), (0, [1], 1), (1, [1], 1), (0, [0], 1), (0, [1], 1), (1, [1], 1), (1, [0], 1)]
    workload = prepare(trace_of(calls, 2), geometry_of({0: 10, 1: 30}, 2))
    result = run(workload, Bank(budget_bytes=40), "lru", contract, scope="global", record=True)
    assert some(result, *INSTALLS) == (8, 0, 8, 2, 7, 0)
    assert result.stream.evictions.tolist() == [0, 0, 1, 1, 1, 1, 1, 2]
    assert result.stream.bytes_read.tolist() == [10, 30, 10, 30, 10, 10, 30, 30]
    assert held(result) == [[2]]  # keys count on over the layers: 0.0 0.1 1.0 1.1
    # A bank for each layer has 20 bytes of 40: two experts of layer 0 and, with 60 of 120, two of layer 1.
    assert some(run(workload, Bank(budget_bytes=120), "lru", contract), *INSTALLS) == (8, 4, 4, 4, 0, 0)


def test_static_prefers_the_lower_number_on_a_tie() -> None:
    # 1 and 3 are requested twice, 0 and 2 once: three slots hold 1, 3 and, of the tie, 0. Expert 4 never occurs.
    trace = trace_of(one_layer([[3, 1], [2, 3], [1, 0]]), 5)
    result = run(trace, 3, "static", "atomic")
    assert held(result) == [[0, 1, 3]]
    assert some(result, *INSTALLS) == (6, 5, 1, 0, 0, 1)
    # Of 0 and 2, both requested once, 2 was first.
    assert held(run(trace, 3, "static:ties_by=first-seen", "atomic")) == [[1, 2, 3]]
    assert held(run(trace, 5, "static", "atomic")) == [[0, 1, 2, 3]]  # what is never requested is not pinned


def test_demand_never_hits() -> None:
    result = run(trace_of(PAIRS, 4), 4, "demand", "runtime")
    assert some(result, *INSTALLS) == (10, 0, 10, 0, 0, 10)
    assert held(result) == [[]]


@pytest.mark.parametrize(
    ("budget", "pinned"),
    [
        # Requests per byte: 0.0 has 2/16; 0.1, 0.2 and 2.0 have 1/16; 1.0 and 1.1 have 2/32, the same.
        # So 0.0 first; of the tie the larger counts, 1.1 before 1.0 (larger number); then 2.0 (larger layer), 0.2, 0.1.
        (16 + 32, [0, 4]),
        (16 + 32 + 32, [0, 3, 4]),
        (16 + 32 + 32 + 16, [0, 3, 4, 6]),
        (16 + 32 + 32 + 16 + 16, [0, 2, 3, 4, 6]),
        (16 + 32 + 32 + 16 + 16 + 16, [0, 1, 2, 3, 4, 6]),
        # 16 bytes left after 0.0 and 1.1: 1.0 does not fit and is passed over for 2.0.
        (16 + 32 + 16, [0, 4, 6]),
    ],
)
def test_static_global_ties(budget: int, pinned: list[int]) -> None:
    calls = [(0, [0], 1), (1, [0, 1], 1), (0, [0, 1], 1), (1, [0, 1], 1), (2, [0], 1), (0, [2], 1)]
    workload = prepare(trace_of(calls, {0: 3, 1: 3, 2: 3}), geometry_of({0: 16, 1: 32, 2: 16}, 3))
    result = run(workload, Bank(budget_bytes=budget), "static:global", "atomic", scope="global")
    assert held(result) == [pinned]  # keys: layer 0 has 0..2, layer 1 has 3..5, layer 2 has 6..8
    assert result.counts.resident_bytes == budget


def test_fifo_ignores_hits() -> None:
    trace = trace_of(one_layer([[0], [1], [0], [2]]), 3)
    assert held(run(trace, 2, "fifo")) == [[1, 2]]
    assert held(run(trace, 2, "lru")) == [[0, 2]]


def test_lfu_ties_and_what_becomes_of_a_count() -> None:
    # [0][1][0][1]: both used twice; [2]: of the tie, 0 was used longer ago and goes.
    tie = [[0], [1], [0], [1], [2]]
    assert held(run(trace_of(one_layer(tie), 3), 2, "lfu")) == [[1, 2]]
    # [0]: 2 has the smaller count and goes: {0,1}. The count of 0 is 3 if it is kept, 1 if it restarts.
    # [2]: 1, used twice, goes in the first case; 0 in the second.
    longer = trace_of(one_layer([*tie, [0], [2]]), 3)
    assert held(run(longer, 2, "lfu")) == [[0, 2]]
    assert held(run(longer, 2, "lfu:count=restart")) == [[1, 2]]


@pytest.mark.parametrize("contract", ["protected", "atomic"])
def test_stamps_of_first_and_of_last_references(contract: str) -> None:
    # [0,1 | 0,2]: by first references 0 is the oldest, by last references 1 is.
    trace = trace_of([(0, [0, 1, 0, 2], 2), (0, [3], 1)], 4)
    assert held(run(trace, 3, "lru", contract)) == [[1, 2, 3]]
    assert held(run(trace, 3, "lru:stamp=last", contract)) == [[0, 2, 3]]


@pytest.mark.parametrize("contract", ["protected", "atomic"])
def test_stamps_of_hits_before_misses(contract: str) -> None:
    # [0], then [1,0]: 1 misses and 0 hits. In the order of the call 1 is the older; with hits first, 0 is.
    trace = trace_of(one_layer([[0], [1, 0], [2], [3]]), 4)
    assert held(run(trace, 3, "lru", contract)) == [[0, 2, 3]]
    assert held(run(trace, 3, "lru:stamp=hits-first", contract)) == [[1, 2, 3]]


def test_random_draws() -> None:
    # Marsaglia's xorshift from 1: 270369, 67634689, 2647435461, 307599695; modulo 3: 0, 1, 0, 2.
    # 0 1 2 fill the slots; 3 takes slot 0, 4 slot 1, 5 slot 0, 6 slot 2.
    result = run(trace_of(one_layer([[i] for i in range(7)]), 7), 3, "random", "protected", record=True)
    assert slots(result, 1) == [[0], [1], [2], [0], [1], [0], [2]]
    assert held(result) == [[4, 5, 6]]


def test_a_global_bank_is_shared() -> None:
    # Two layers of three experts, one slot each: two slots for all. Only layer 0 requests more than one expert.
    # 0.0 1.0 | 0.1: displaces 0.0 | 1.0: hits, still there | 0.1: hits.
    calls = [(0, [0], 1), (1, [0], 1), (0, [1], 1), (1, [0], 1), (0, [1], 1)]
    result = run(trace_of(calls, 3), 1, "lru", "atomic", scope="global")
    assert np.array_equal(result.counts.table[:, 3], [1, 1])  # hits of each layer
    assert some(result, *INSTALLS) == (5, 2, 3, 2, 1, 0)
    assert held(result) == [[1, 3]]
