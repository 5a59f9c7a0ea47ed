"""LRU for several sizes in one walk, under the contract `runtime`, counts what the plain twin counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashmoe_sim.residency import last_uses, tally
from flashmoe_sim.residency.workload import Setup
from tests.residency import naive
from tests.residency.builders import COLUMNS, Call, one_layer, random_calls
from tests.residency.compare import calls_of, workload_of
from tests.residency.test_many import assert_planned, fits
from tests.residency.test_twins import every_bank, random_workload


def counted(calls: Sequence[Call], n_experts: int, rooms: Sequence[int]) -> list[dict[str, int]]:
    """The columns of each size, after they were compared with the twin's, which is asked size by size."""
    workload = workload_of(calls, {0: n_experts})
    (pool,) = workload.layer_pools
    table = np.zeros((len(rooms), 1, tally.N_COLUMNS), np.int64)
    last_uses.lru(pool.key, pool.offset, pool.row, pool.keys, np.array(rooms), table)
    found = [{name: int(row[0, column]) for name, column in COLUMNS.items()} for row in table]
    for room, columns in zip(rooms, found, strict=True):
        twin = naive.replay(
            calls_of(workload.trace), contract="runtime", policy="lru", n_experts={0: n_experts}, slots=room
        )
        assert columns == {name: twin.table[0][name] for name in COLUMNS}, room
    return found


def sizes(calls: Sequence[Call], n_experts: int) -> list[int]:
    return list(range(max(len(set(experts)) for _, experts, _ in calls), n_experts + 1))


def test_a_moved_use_waits_for_its_turn() -> None:
    # Bank of 3. [0,1,2] fills it. [3,0,1]: 3 evicts 0, which this call requests later: 0 is aliased, out, and 3 is as
    # old as that reference. 1 hits. By use: 2, 3 (as old as 0), 1. [4]: 2 goes. [5]: 3 goes, though 1 was requested
    # after 3 was: both moved and own use are older. [3]: a miss, which evicts 1. [1]: a miss again.
    calls = one_layer([[0, 1, 2], [3, 0, 1], [4], [5], [3], [1]])
    (found,) = counted(calls, 6, [3])
    assert (found["misses"], found["aliased"], found["evictions"]) == (8, 1, 5)
    # With 1 before 0 the moved use is the later one: [4] evicts 2, [5] evicts 1, and 3 is still there.
    calls = one_layer([[0, 1, 2], [3, 1, 0], [4], [5], [3], [1]])
    (found,) = counted(calls, 6, [3])
    assert (found["misses"], found["aliased"], found["evictions"]) == (7, 1, 4)


def test_calls_at_random() -> None:
    """Narrow and wide calls, with repeats, few and many experts: banks in one word and in several."""
    aliased = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n_experts = int(rng.integers(2, 40))
        calls = random_calls(rng, n_experts=n_experts, steps=60, most_tokens=int(rng.integers(1, 4)))
        aliased += sum(row["aliased"] for row in counted(calls, n_experts, sizes(calls, n_experts)))
    assert aliased > 1_000


def test_as_many_sizes_as_one_walk_takes() -> None:
    n_experts = last_uses.MOST_SIZES + 24
    calls = random_calls(np.random.default_rng(1), n_experts=n_experts, steps=150, most_tokens=2, width=8)
    counted(calls, n_experts, [*sizes(calls, n_experts)[-last_uses.MOST_SIZES + 2 :], 40, 40])


@settings(max_examples=300)
@given(calls=st.lists(st.lists(st.integers(0, 6), max_size=8), min_size=1, max_size=25).filter(any))
def test_any_calls(calls: list[list[int]]) -> None:
    calls_of_layer = one_layer(calls)
    counted(calls_of_layer, 7, sizes(calls_of_layer, 7))


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_plans_count_what_replays_count(scope: str) -> None:
    for seed in range(8):
        workload = random_workload(seed)
        setups = [Setup(bank, contract="runtime", scope=scope) for bank in every_bank(workload)]
        assert_planned(workload, [setup for setup in setups if fits(workload, setup)])


def test_old_uses_are_found_again() -> None:
    """Many words of bits lie between the uses of some experts."""
    rng = np.random.default_rng(3)
    often = [rng.choice(8, 3, replace=False).tolist() for _ in range(900)]
    calls = one_layer([*np.split(rng.permutation(np.arange(8, 32)), 8), *often, [30, 31, 3], *often[:300], [9, 30, 0]])
    calls = [(layer, [int(one) for one in experts], tokens) for layer, experts, tokens in calls]
    counted(calls, 32, [3, 6, 8, 12, 20, 31, 32])
