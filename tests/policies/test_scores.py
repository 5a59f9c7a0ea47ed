"""Policies that score, admit or look ahead, on traces worked out by hand, and what sets them apart from the others."""

from __future__ import annotations

import numpy as np
import pytest

from flashmoe_sim.io.errors import Unsupported
from flashmoe_sim.policies.base import ALL_CONTRACTS, PoolShape
from flashmoe_sim.policies.lookahead import Lookahead
from flashmoe_sim.policies.table import POLICIES, parse_policy
from flashmoe_sim.residency import pool_replay
from flashmoe_sim.residency.workload import Workload, prepare
from tests.residency.builders import Call, one_layer, run, some, trace_of
from tests.residency.test_laws import fitting_banks
from tests.residency.test_twins import random_workload

MINE = (
    *(
        "lfu-decay",
        "lfu-halved",
        "lfru",
        "hyperbolic",
        "window",
        "least-stale",
        "bounded-lru",
        "second-miss",
        "nth-miss",
    ),
    "lookahead",
)


@pytest.mark.parametrize(("first", "second"), [("lfru", "hyperbolic"), ("lfu", "lfu-halved")])
def test_policies_that_differ_in_a_score_have_one_compiled_loop(first: str, second: str) -> None:
    loops = {pool_replay._loop(parse_policy(name), "atomic").run.py_func.__qualname__ for name in (first, second)}
    others = pool_replay._loop(parse_policy("lfu-decay"), "atomic").run.py_func.__qualname__
    assert len(loops) == 1
    assert others not in loops


def one_by_one(experts: list[int]) -> list[Call]:
    """Calls of one expert each, a step each."""
    return one_layer([[expert] for expert in experts])


def outcome(calls: list[Call], slots: int, policy: str, contract: str = "atomic", scope: str = "layer") -> str:
    """What each reference was, h a hit and . a miss, and what the bank of the first pool holds at the end."""
    result = run(prepare(trace_of(calls, 8)), slots, policy, contract, scope=scope, record=True)
    return "".join("h" if hit else "." for hit in result.hit) + f" {result.contents[0].tolist()}"


@pytest.mark.parametrize("contract", ["protected", "atomic"])
def test_lfu_decay(contract: str) -> None:
    calls = one_layer([[0], [0], [1], [2], [0, 3], [1], [0]])
    # Scores in the step, half a life being one step:
    # 0: 0 installed 1
    # 1: 0 hit       1.5
    # 2: 1 installed 1      0 0.75
    # 3: 2 installed 1      0 0.375, 1 0.5: 0 leaves, although it was used more often than 1
    # 4: 1 0.25 and 2 0.5 leave for 0, whose 1.5 of step 1 is 0.1875 by now: 1.1875, and 3: 1
    # 5: 1 installed, 0.25 of step 4 is 0.125: 1.125     0 0.59375, 3 0.5: 3 leaves. Had 0 begun anew, both would have
    #    0.5, and 0, used before 3, would leave
    # 6: 0 hit
    assert outcome(calls, 2, "lfu-decay:half_life=1", contract) == ".h.....h [0, 1]"
    # In lives this long it is lfu: 1 leaves in step 3, and 0 is still there in step 4.
    assert (
        outcome(calls, 2, "lfu-decay:half_life=1000", contract)
        == outcome(calls, 2, "lfu", contract)
        == ".h..h..h [0, 1]"
    )


def test_decayed_scores_keep_their_order_over_any_time() -> None:
    """Expert 0 is used three times in five steps, but not last: only scores that differ keep it."""
    steps = 30_000
    calls = one_by_one([0 if step % 5 < 3 else 1 + step % 7 for step in range(steps)])
    hits, _ = outcome(calls, 2, "lfu-decay:half_life=2").split(" ", 1)
    assert hits[::5] == "." + "h" * (steps // 5 - 1)


def test_scores_decay_to_nothing_in_a_long_pause() -> None:
    """Then the older last use decides."""
    trace = trace_of(one_by_one([0, 0, 0, 1, 2]), 8)
    for pause, left in ((3, [0, 2]), (2**30, [1, 2])):
        step = np.array([0, 1, 2, 3, 3 + pause], np.int32)
        result = run(prepare(trace.with_(step=step)), 2, "lfu-decay")
        assert result.contents[0].tolist() == left


def test_lfu_halved() -> None:
    """Every second step halves all counts and rounds them down."""
    calls = one_by_one([0, 0, 0, 1, 2, 1, 3])
    # 0 and 1: 0 twice; 2: halved, 0 again: 2; 3: 1 once; 4: halved, 0 has 1 and 1 none, so 1 leaves for 2
    # 5: 1 again: 0 and 2 have a use, and 0's is older: 0 leaves; 6: halved, 1 and 2 have none: 2, used before 1, leaves
    assert outcome(calls, 2, "lfu-halved:every=2") == ".hh.... [1, 3]"
    assert outcome(calls, 2, "lfu-halved:every=100") == outcome(calls, 2, "lfu")


def test_lfru() -> None:
    calls = one_by_one([0, 0, 0, 1, 2, 2, 2, 1, 0])
    # now: uses / (now - last + 1)
    # 1-3: 0 3 times; 4: 1
    # 5: 2 for one of 0: 3/3, 1: 1/2: 1 leaves, used later than 0
    # 6, 7: 2, three times by now
    # 8: 1 for one of 0: 3/6, 2: 3/2: 0 leaves, used as often as 2
    # 9: 0 for one of 1: 2/2, 2: 3/3: 2 leaves, used before 1; counted since its install, 1 has 1/2 and leaves
    assert outcome(calls, 2, "lfru") == ".hh..hh.. [0, 1]"
    assert outcome(calls, 2, "lfru:count=restart") == ".hh..hh.. [0, 2]"


def test_hyperbolic() -> None:
    calls = one_by_one([0, 0, 0, 1, 1, 2, 2, 1, 0, 1, 2])
    # now: uses since the install / (now - install)
    # 1-3: 0 3 times; 4, 5: 1 twice
    # 6: 2 for one of 0: 3/5, 1: 2/2: 0 leaves, used more often than 1
    # 7: 2, 8: 1
    # 9: 0 for one of 1: 3/5, 2: 2/3: 1 leaves, used more often and later than 2
    # 10: 1 for one of 0: 1/1, 2: 2/4: 2 leaves
    # 11: 2 for one of 0: 1/2, 1: 1/1: 0 leaves
    assert outcome(calls, 2, "hyperbolic") == ".hh.h.hh... [1, 2]"


def test_window() -> None:
    calls = one_by_one([0, 0, 1, 2, 1, 2, 1, 0])
    # Two of the last five accesses protect. The last five, and what leaves:
    # 4: 0 0 1 2    1, for 0 is protected
    # 5: 0 0 1 2 1  2, for 0 is protected
    # 6: 0 1 2 1 2  0, no longer protected, while 1 is
    # 7: 1 2 1 2 1  (a hit)
    # 8: 2 1 2 1 0  both are protected: 2, used before 1
    assert outcome(calls, 2, "window:window=5:share=0.4") == ".h....h. [0, 1]"
    # 0.6 protects from three: 0 leaves for 2 at once, as in LRU
    assert outcome(calls, 2, "window:window=5:share=0.6") == outcome(calls, 2, "lru") == ".h..hhh. [0, 1]"


@pytest.mark.parametrize(
    ("window", "share", "uses"), [(30, 0.1, 3), (256, 0.1, 26), (5, 0.5, 3), (10, 0.3, 3), (3, 1, 3)]
)
def test_a_share_of_the_window_is_exact(window: int, share: float, uses: int) -> None:
    """0.1 in binary is a little more than a tenth; three of thirty are enough all the same."""
    shape = PoolShape(1, 1, 1, np.array([0, 1]), np.array([0, 1], np.int32), np.zeros(1, np.int32))
    assert parse_policy(f"window:window={window}:share={share}").allocate(shape)[-1].tolist() == [uses]


def test_least_stale_in_two_queues() -> None:
    # A global bank of three slots, each step one call of each of three layers; expert e of layer l is le.
    calls = [
        (layer, [expert], 1) for experts in ([0, 0, 0], [0, 1, 0], [0, 2, 0]) for layer, expert in enumerate(experts)
    ]
    # step 0: 00 10 20 installed in this order
    # step 1: 00 hit; 11 for the stale 10, not for 00, which this step has touched; 20 hit
    # step 2: 00 hit; 12 for one of the stale: 20 was installed before 11, and used after it
    #         two queues: 20 leaves, and comes back for 11, the only stale one
    #         lru: 11 leaves, 20 hits
    #         fifo: 00 leaves in step 1 and 10 comes to its end in step 2, when 00 comes back; 12 then takes 20's place
    kept = "[0, 10, 16]"
    assert outcome(calls, 1, "least-stale:variant=fifo", scope="global") == f"...h.hh.. {kept}"
    assert outcome(calls, 1, "least-stale", scope="global") == f"...h.hh.h {kept}"
    assert outcome(calls, 1, "fifo", scope="global") == f"...h.h... {kept}"


def test_bounded_lru() -> None:
    calls = one_layer([[0, 1], [1, 2], [2, 0], [1, 3]])
    # Whole calls, one install each:
    # 0 in, 1 served; 1 in, 2 served; 2 in for 1, since 0 is requested; 1 in for 2, used before 0; 3 served
    assert outcome(calls, 2, "bounded-lru:cap=1") == ".....h.. [0, 1]"
    result = run(prepare(trace_of(calls, 8)), 2, "bounded-lru:cap=1")
    assert some(result, "misses", "bypassed", "cold", "evictions") == (7, 3, 2, 2)
    # One by one, one install in each call: 0 in; 1 in; 2 in for 0, which is then served; 1 hits, and 3 in for 2
    assert outcome(calls, 2, "bounded-lru:cap=1", "sequential") == "......h. [1, 3]"
    # No call misses more than two.
    assert outcome(calls, 2, "bounded-lru") == outcome(calls, 2, "lru") == "..h.h... [1, 3]"


def test_second_miss() -> None:
    calls = one_by_one([0, 1, 0, 0, 1, 1, 2, 2, 0, 0])
    # within two steps: 0 1 served, 0 in; 0 hits; 1 served again, for its first miss was three steps ago, then in;
    # 2 served, then in for 0, which leaves; 0 served, then in for 1
    assert outcome(calls, 2, "second-miss:window=2") == "...h...... [0, 2]"
    result = run(prepare(trace_of(calls, 8)), 2, "second-miss:window=2")
    assert some(result, "misses", "bypassed", "cold", "evictions") == (9, 5, 2, 2)
    # within three, the miss of 1 in step 4 is its second: in, so that it hits in step 5
    assert outcome(calls, 2, "second-miss:window=3") == "...h.h.... [0, 2]"


def test_an_evicted_expert_has_to_miss_twice_again() -> None:
    # one slot: 0 served and in, 1 served and in for 0; 0 served, although it missed twice in the last four steps; in
    assert outcome(one_by_one([0, 0, 1, 1, 0]), 1, "second-miss:window=4") == "..... [1]"
    assert outcome(one_by_one([0, 0, 1, 1, 0, 0]), 1, "second-miss:window=4") == "...... [0]"


def test_nth_miss() -> None:
    calls = one_by_one([0, 0, 0, 1, 2, 1, 1, 2, 2, 0, 2, 0, 0])
    # 0 served, in on its second miss, hits; 1 and 2 served, 1 in on its second, so that the bank is full, and hits;
    # 2 is served again, and replaces 0 on its third miss; 0 is served twice, 2 hits in between; then 0 replaces 1
    assert outcome(calls, 2, "nth-miss:full=3") == "..h...h...h.. [0, 2]"
    result = run(prepare(trace_of(calls, 8)), 2, "nth-miss:full=3")
    assert some(result, "misses", "bypassed", "cold", "evictions") == (10, 6, 2, 2)
    # All of a call have missed often enough, and it installs one; the other keeps its count.
    assert outcome(one_layer([[0, 1], [0, 1], [0, 1]]), 2, "nth-miss:cap=1") == "....h. [0, 1]"


def test_lookahead() -> None:
    calls = one_by_one([0, 1, 2, 0, 3, 1, 0, 2, 0, 1])
    # Two steps are seen, so in step 2 the steps to 4:
    # 2: 2 in; 0 is used in 3, 1 not until 5: 1 leaves, which lru would keep
    # 4: 3 in; 0 is used in 6, 2 not until 7: 2 leaves
    # 5: 1 in; 0 is used in 6: 3 leaves
    # 7: 2 in; 0 is used in 8, 1 in 9: both are seen, and the later leaves: 1
    # 9: 1 in; neither is used again: 2, used before 0
    assert outcome(calls, 2, "lookahead:steps=2") == "...h..h.h. [0, 1]"


def test_lookahead_is_blind_beyond_its_steps() -> None:
    calls = one_by_one([0, 1, 2, 2, 2, 0, 1])
    # 2 comes in step 2, 0 is used in 5 and 1 in 6. Two steps show neither: 0 leaves, the oldest last use. Three show 0.
    assert outcome(calls, 2, "lookahead:steps=2") == "...hh.h [0, 1]"
    assert outcome(calls, 2, "lookahead:steps=3") == "...hhh. [0, 1]"


def test_lookahead_has_a_second_name() -> None:
    assert parse_policy("lookahead-16") == parse_policy("lookahead:steps=16") == Lookahead()
    assert parse_policy("lookahead-0:stamp=last") == Lookahead(steps=0, stamp="last")
    assert parse_policy("lookahead-4").spec == "lookahead:steps=4"


def same(workload: Workload, slots: int, one: str, other: str, contract: str, scope: str) -> None:
    results = [run(workload, slots, policy, contract, scope=scope, record=True) for policy in (one, other)]
    assert np.array_equal(results[0].counts.table, results[1].counts.table)
    assert np.array_equal(results[0].hit, results[1].hit)
    assert [keys.tolist() for keys in results[0].contents] == [keys.tolist() for keys in results[1].contents]


@pytest.mark.parametrize("contract", ALL_CONTRACTS)
@pytest.mark.parametrize(
    ("policy", "other"),
    [
        ("lookahead:steps=0", "lru"),
        ("lookahead:steps=1000", "min:forced"),
        ("least-stale", "lru"),
        ("window:window=1000:share=1", "lru"),
        ("bounded-lru:cap=1000", "lru"),
        ("nth-miss:empty=1:full=1:cap=1000", "lru"),
    ],
)
def test_at_the_ends_of_a_parameter_it_is_another_policy(policy: str, other: str, contract: str) -> None:
    if contract not in parse_policy(policy).contracts:
        return
    for seed in range(6):
        workload = random_workload(seed)
        for slots in fitting_banks(workload, contract):
            for scope in ("layer", "global"):
                same(workload, slots, policy, other, contract, scope)


@pytest.mark.parametrize("policy", MINE)
def test_one_expert_a_call_is_the_same_under_every_contract(policy: str) -> None:
    rng = np.random.default_rng(11)
    workload = prepare(trace_of(one_by_one((rng.integers(0, 8, 200) * rng.random(200)).astype(int).tolist()), 8))
    for slots in range(1, 9):
        tables = [run(workload, slots, policy, name).counts.table for name in POLICIES[policy].contracts]
        assert all(np.array_equal(tables[0], table) for table in tables)


@pytest.mark.parametrize("policy", ["bounded-lru", "second-miss", "nth-miss"])
def test_what_may_refuse_a_miss_is_for_contracts_that_let_it(policy: str) -> None:
    with pytest.raises(Unsupported, match="use --contract atomic or sequential"):
        run(trace_of(one_by_one([0]), 8), 2, policy, "runtime")
