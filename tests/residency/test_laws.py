"""What must hold of every trace."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import EvictingPolicy, ScheduledPolicy
from flashmoe_sim.policies.table import POLICIES
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.workload import Workload, prepare
from tests.residency.builders import Call, one_layer, random_calls, run, some, totals, trace_of
from tests.residency.compare import calls_of, workload_of
from tests.residency.test_twins import INSTALLING, PAIRS, random_workload

SEEDS = range(5)


def fitting_banks(workload: Workload, contract: str) -> range:
    """The bank sizes that a contract takes for this workload in every layer."""
    largest = max(int(pool.requests.max()) for pool in workload.layer_pools)
    most = max(workload.n_experts)
    if contract not in ("runtime", "protected"):
        return range(1, most + 1)
    return range(largest, most + 1) if largest <= min(workload.n_experts) else range(0)


def distinct(workload: Workload) -> int:
    return sum(int((pool.requests_by_key > 0).sum()) for pool in workload.layer_pools)


@pytest.mark.parametrize(("contract", "policy"), PAIRS)
def test_bookkeeping(contract: str, policy: str) -> None:
    """Counts add up, in total and in each call; contents fit; a bank of everything misses only what is new."""
    for seed in SEEDS:
        workload = random_workload(seed)
        for slots in fitting_banks(workload, contract):
            result = run(workload, slots, policy, contract, record=True)
            counted = totals(result)
            assert counted["hits"] + counted["misses"] == counted["requests"]
            assert counted["calls"] == workload.trace.calls
            assert counted["refs"] == workload.trace.refs
            assert counted["full_hit_calls"] <= counted["calls"]
            assert all(value >= 0 for value in counted.values())
            held = np.array([len(keys) for keys in result.contents])
            room = np.minimum(slots, workload.n_experts)
            if policy in ("static:global", "placed", "hot-profile", "bounded-swaps"):  # one budget for all layers
                assert (held * workload.expert_bytes).sum() <= (room * workload.expert_bytes).sum()
            else:
                assert (held <= room).all()
            kind = POLICIES[policy]
            if issubclass(kind, EvictingPolicy):
                assert counted["cold"] + counted["evictions"] + counted["bypassed"] == counted["misses"]
                assert counted["cold"] == held.sum()
                if slots >= max(workload.n_experts) and "admits" not in kind.kernels:
                    expected = distinct(workload)
                    assert counted["misses"] == counted["cold"] == expected
            if issubclass(kind, ScheduledPolicy):
                assert counted["bypassed"] == counted["misses"]
                assert counted["cold"] == counted["evictions"] == 0
                assert counted["prefetch_issued"] == counted["prefetch_useful"] + counted["prefetch_wasted"]
            stream = result.stream
            assert (stream.hits + stream.misses == stream.requests).all()
            for name in ("requests", "hits", "misses", "cold", "evictions", "aliased", "bypassed", "prefetch_issued"):
                assert getattr(stream, name).sum() == counted[name], name


@pytest.mark.parametrize(
    ("contract", "policy"), [("atomic", "lru"), ("protected", "lru"), ("sequential", "lru"), ("atomic", "min")]
)
def test_a_larger_bank_never_hits_less(contract: str, policy: str) -> None:
    """The inclusion property of the stack policies."""
    for seed in SEEDS:
        workload = random_workload(seed)
        hits = [totals(run(workload, slots, policy, contract))["hits"] for slots in fitting_banks(workload, contract)]
        assert hits == sorted(hits)


def test_lru_contents_are_nested() -> None:
    for seed in SEEDS:
        workload = random_workload(seed)
        smaller: list[set[int]] = [set() for _ in workload.n_experts]
        for slots in fitting_banks(workload, "protected"):
            larger = [set(keys.tolist()) for keys in run(workload, slots, "lru", "protected").contents]
            assert all(a <= b for a, b in zip(smaller, larger, strict=True))
            smaller = larger


@pytest.mark.parametrize("slots", [1, 2, 5, 63])
@pytest.mark.parametrize("contract", ["runtime", "protected", "atomic", "sequential"])
def test_a_cycle_of_one_expert_more_than_slots_never_hits(contract: str, slots: int) -> None:
    cycle = trace_of(one_layer([[expert] for _ in range(4) for expert in range(slots + 1)]), slots + 1)
    assert some(run(cycle, slots, "lru", contract), "hits", "misses") == (0, 4 * (slots + 1))
    assert some(run(cycle, slots, "fifo", contract), "hits") == (0,)
    assert some(run(cycle, slots + 1, "lru", contract), "misses") == (slots + 1,)
    if contract in ("atomic", "sequential"):
        # min keeps the first experts it saw and lets the last of every cycle pass.
        assert totals(run(cycle, slots, "min", contract))["hits"] == 3 * slots


@pytest.mark.parametrize("contract", ["runtime", "protected", "atomic", "sequential"])
def test_beladys_anomaly(contract: str) -> None:
    """FIFO with four slots misses more than with three (Belady, Nelson and Shedler 1969)."""
    trace = trace_of(one_layer([[expert] for expert in (1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5)]), 6)
    assert totals(run(trace, 3, "fifo", contract))["misses"] == 9
    assert totals(run(trace, 4, "fifo", contract))["misses"] == 10
    assert totals(run(trace, 3, "lru", contract))["misses"] == 10
    assert totals(run(trace, 4, "lru", contract))["misses"] == 8


@pytest.mark.parametrize(
    "policy",
    [
        *("lru", "fifo", "random", "lfu", "lfu:count=restart", "clock", "sieve", "slru", "2q", "mq", "s3fifo"),
        *("class-lru", "arc", "lirs", "lru-k", "w-tinylfu", "lecar", "cacheus"),
    ],
)
def test_uniform_independent_requests_hit_in_proportion(policy: str) -> None:
    """No online policy can do better or worse: a request finds its expert with probability slots / experts.

    The share of 20,000 requests has a standard deviation below 0.0036; five of them are allowed, and the cold start.
    """
    rng = np.random.default_rng(7)
    n_experts, requests = 32, 20_000
    trace = trace_of(one_layer(rng.integers(0, n_experts, (requests, 1)).tolist()), n_experts)
    workload = prepare(trace)
    for slots in (1, 4, 16, 31):
        hits = totals(run(workload, slots, policy, "atomic"))["hits"]
        assert abs(hits / requests - slots / n_experts) < 5 * 0.0036 + n_experts / requests


def test_the_token_cycle_cliff() -> None:
    """A global LRU bank smaller than what one token needs hits exactly nothing; a bank for each layer does."""
    rng = np.random.default_rng(3)
    layers, top_k, n_experts = 6, 4, 32
    # Every layer keeps its favourites for a while: consecutive tokens share all but one expert.
    favourites = [list(rng.permutation(n_experts)[:top_k]) for _ in range(layers)]
    calls: list[Call] = []
    for token in range(50):
        for layer in range(layers):
            others = sorted(set(range(n_experts)) - set(favourites[layer]))
            favourites[layer][token % top_k] = rng.choice(others)
            calls.append((layer, [int(expert) for expert in favourites[layer]], 1))
    workload = prepare(trace_of(calls, n_experts))
    smaller = run(workload, top_k - 1, "lru", "atomic", scope="global")
    assert smaller.counts.slots == layers * (top_k - 1) < layers * top_k
    assert totals(smaller)["hits"] == 0
    # Between the same expert's uses lie all the others of a cycle: only a bank beyond the cycle hits.
    assert totals(run(workload, top_k, "lru", "atomic", scope="global"))["hits"] > 0
    assert totals(run(workload, top_k - 1, "lru", "atomic"))["hits"] > 0
    assert totals(run(workload, top_k - 1, "min", "atomic", scope="global"))["hits"] > 0


@pytest.mark.parametrize(
    ("contract", "policy"),
    [(contract, policy) for contract, policy in INSTALLING if "seeded" not in POLICIES[policy].ties],
)
def test_names_of_experts_do_not_matter(contract: str, policy: str) -> None:
    """Relabelled experts give the same counts: no tie is ever broken by number where last uses differ."""
    for seed in SEEDS:
        workload = random_workload(seed)
        rng = np.random.default_rng(seed)
        n_experts = max(workload.n_experts)
        relabel = rng.permutation(n_experts)
        calls = calls_of(workload.trace)
        layers = workload.trace.layers
        others = [(layer, relabel[experts].tolist(), tokens) for layer, experts, tokens in calls]
        before = workload_of(calls, dict.fromkeys(layers, n_experts))
        after = workload_of(others, dict.fromkeys(layers, n_experts))
        for slots in fitting_banks(before, contract):
            counted = [run(each, slots, policy, contract).counts.table for each in (before, after)]
            assert np.array_equal(*counted)


def test_protected_and_atomic_lru_agree_where_calls_fit() -> None:
    for seed in SEEDS:
        workload = random_workload(seed)
        for slots in fitting_banks(workload, "protected"):
            for stamp in ("first", "last", "hits-first", "hits-first-sorted"):
                results = [run(workload, slots, f"lru:stamp={stamp}", name) for name in ("protected", "atomic")]
                assert np.array_equal(results[0].counts.table, results[1].counts.table)
                for a, b in zip(results[0].contents, results[1].contents, strict=True):
                    assert a.tolist() == b.tolist()


# On the way to a victim these change other experts, or draw lots, so it matters that the newcomer is there by then.
SEES_THE_NEWCOMER = ("2q", "arc", "cacheus", "clock", "clock-hand", "random", "s3fifo", "sieve")


def test_one_token_at_top_1_is_the_same_under_every_contract() -> None:
    """Calls of one expert leave nothing for the contracts to differ in, but what `atomic` installs before it evicts."""
    differ = set()
    for seed in range(4):
        rng = np.random.default_rng(seed)
        workload = workload_of(random_calls(rng, n_experts=16, layers=2, steps=120, width=1), {0: 16, 1: 16})
        for policy in ("min:forced", *POLICIES):
            for slots in (1, 3, 4, 8, 16):
                tables = [run(workload, slots, policy, name).counts.table for name in POLICIES[policy].contracts]
                names = dict(zip(POLICIES[policy].contracts, tables, strict=True))
                late = names.pop("atomic", None)
                assert all(np.array_equal(table, next(iter(names.values()))) for table in names.values()), policy
                if late is not None and names and not np.array_equal(late, next(iter(names.values()))):
                    differ.add(policy)
    assert differ == set(SEES_THE_NEWCOMER)
    page = (Path(__file__).parents[2] / "docs" / "background" / "contracts.md").read_text()
    named = page.partition("differs from `protected` for ")[2].partition(" even where")[0]
    assert set(re.findall(r"`(.+?)`", named)) == differ


@pytest.mark.parametrize("policy", ["lru", "min:forced"])
def test_protection_leaves_nothing_to_prefetch_from_the_last_call(policy: str) -> None:
    """Without aliasing the whole union is still there when the call ends; in `runtime`, LRU re-installs the aliased."""
    for seed in SEEDS:
        workload = random_workload(seed)
        for slots in fitting_banks(workload, "protected"):
            counted = totals(run(workload, slots, policy, "protected", prefetch="temporal"))
            assert counted["prefetch_issued"] == counted["aliased"] == 0


def test_prefetching_the_last_call_installs_exactly_the_aliased() -> None:
    aliased = 0
    for seed in range(40):
        workload = random_workload(seed)
        for slots in fitting_banks(workload, "runtime"):
            counted = totals(run(workload, slots, "lru", "runtime", prefetch="temporal"))
            assert counted["prefetch_issued"] == counted["prefetch_useful"] + counted["prefetch_wasted"]
            assert counted["prefetch_issued"] == counted["aliased"]
            aliased += counted["aliased"]
    assert aliased > 50


def test_a_global_bank_of_everything_is_no_different() -> None:
    for seed in SEEDS:
        workload = random_workload(seed)
        most = max(workload.n_experts)
        for policy in ("lru", "fifo", "lfu", "min", "static"):
            tables = [run(workload, most, policy, scope=scope).counts.table for scope in ("layer", "global")]
            assert np.array_equal(*tables)


def test_a_bank_in_bytes_of_whole_slots_is_a_bank_in_slots() -> None:
    """If all experts weigh the same, both give the same counts."""
    for seed in range(4):
        workload = random_workload(seed, same_size=True)
        layers = len(workload.n_experts)
        for slots in fitting_banks(workload, "protected"):
            if slots > min(workload.n_experts):
                continue
            in_bytes = Bank(budget_bytes=slots * 48 * layers)
            for contract, policy in PAIRS:
                if policy == "hot-profile":  # takes whole MiB, which these experts are far from
                    continue
                tables = [run(workload, bank, policy, contract).counts.table for bank in (slots, in_bytes)]
                assert np.array_equal(*tables), (contract, policy)


def test_two_halves_that_share_nothing_add_up() -> None:
    """Counts of traces over different experts add to those of the traces one after another in a bank of everything."""
    first = [(0, [0, 1], 1), (0, [1, 2], 1)]
    second = [(0, [3, 4], 1), (0, [4, 3], 1)]
    whole, *parts = (run(trace_of(calls, 8), 8, "lru").counts for calls in (first + second, first, second))
    together = parts[0] + parts[1]
    assert np.array_equal(together.table, whole.table)
    assert together.total() == whole.total()
    assert int(whole.table[0, tally.HITS]) == 3
