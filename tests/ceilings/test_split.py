"""What misses are due to, by hand and as laws: the parts add up to the misses, and `min` bounds every policy."""

from __future__ import annotations

import pytest

from flashmoe_sim.ceilings.gap import Gap, MissSplit, gap_to_min, split_misses
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import EvictingPolicy
from flashmoe_sim.policies.table import POLICIES
from flashmoe_sim.residency.workload import Workload, prepare
from tests.residency.builders import geometry_of, of_one_layer, run, trace_of
from tests.residency.test_laws import fitting_banks
from tests.residency.test_twins import PAIRS, byte_banks, random_workload


def split(
    workload: Workload, bank: int | Bank, policy: str, contract: str, scope: str = "layer"
) -> tuple[MissSplit, Gap]:
    own = run(workload, bank, policy, contract, scope=scope, record=True)
    gap = gap_to_min(workload, own)
    return split_misses(workload, own, gap), gap


@pytest.mark.parametrize("contract", ["runtime", "protected", "atomic", "sequential"])
def test_victims(contract: str) -> None:
    # Two slots, 0 1 2 0 1 2. LRU always evicts what comes next: 6 misses.
    # min:forced: 2 takes the place of 1 (0 comes first), 0 hits, 1 takes the place of 0, 2 hits: 4.
    # min: 2 is not admitted, 0 and 1 hit, 2 misses: 4. So declining gains nothing here.
    found, gap = split(of_one_layer([[0], [1], [2], [0], [1], [2]], 3), 2, "lru", contract)
    assert found == MissSplit(6, compulsory=3, capacity=1, policy=2, conflict=0, aliased_refs=0, loaded_ahead=0)
    assert (gap.policy, gap.forced, gap.minimum, gap.victim_choice, gap.admission) == (6, 4, 4, 2, 0)
    assert (gap.victim_choice_points, gap.admission_points) == (100 * 2 / 6, 0)
    assert gap.contract == ("protected" if contract == "runtime" else contract)
    assert gap.optimum_contract == ("sequential" if contract == "sequential" else "atomic")


def test_admission() -> None:
    # One slot, 0 1 0: who must admit 1 misses 0 again; min lets 1 pass.
    found, gap = split(of_one_layer([[0], [1], [0]], 2), 1, "lru", "atomic")
    assert found == MissSplit(3, compulsory=2, capacity=0, policy=1, conflict=0, aliased_refs=0, loaded_ahead=0)
    assert (gap.victim_choice, gap.admission) == (0, 1)


def test_capacity() -> None:
    # One slot, 0 1 0 1: min keeps one of them and misses the other twice.
    found, _ = split(of_one_layer([[0], [1], [0], [1]], 2), 1, "min", "atomic")
    assert found == MissSplit(3, compulsory=2, capacity=1, policy=0, conflict=0, aliased_refs=0, loaded_ahead=0)


def test_aliasing_can_hide_misses() -> None:
    # The trace of tests/residency/test_hand.py: under `runtime` 5 misses and 3 aliased hits, under `protected` 6.
    # min: [0,1] misses both; of 2 0 it keeps 0 and 1 (used next), misses 2; hits 0 1; misses 2; hits 0 1: 4.
    found, gap = split(of_one_layer([[0, 1], [2, 0], [0, 1], [1, 2], [0, 1]], 4), 2, "lru", "runtime")
    assert found == MissSplit(5, compulsory=3, capacity=1, policy=2, conflict=-1, aliased_refs=3, loaded_ahead=0)
    assert (gap.contract, gap.policy) == ("protected", 6)


def test_aliasing_can_cause_misses() -> None:
    # Two slots. [0,1] misses. [2,0]: 2 takes slot 0 from 0, whose hit is aliased; 1 stays in slot 1.
    # [0]: misses under `runtime`, taking slot 1 (the older use) from 1; hits under `protected`, where 1 made room.
    # [2]: hits under both.
    found, _ = split(of_one_layer([[0, 1], [2, 0], [0], [2]], 3), 2, "lru", "runtime")
    assert found == MissSplit(4, compulsory=3, capacity=0, policy=0, conflict=1, aliased_refs=1, loaded_ahead=0)


def test_what_is_loaded_before_the_run() -> None:
    # Three slots hold 0, 1 and 3 (see tests/residency/test_hand.py): only 2 misses, of four first uses.
    # min misses just those four, so counting the loads nothing is left for capacity or policy.
    found, gap = split(of_one_layer([[3, 1], [2, 3], [1, 0]], 5), 3, "static", "runtime")
    assert found == MissSplit(1, compulsory=4, capacity=0, policy=0, conflict=0, aliased_refs=0, loaded_ahead=3)
    assert (gap.contract, gap.policy, gap.loaded_ahead) == ("runtime", 4, 3)
    # One slot holds 1 (a tie with 3, the lower number): its two hits are one load and one hit.
    # With one slot min hits once too: 3 in the second call, or 1 in the last, and so does min:forced.
    found, gap = split(of_one_layer([[3, 1], [2, 3], [1, 0]], 5), 1, "static", "runtime")
    assert found == MissSplit(4, compulsory=4, capacity=1, policy=0, conflict=0, aliased_refs=0, loaded_ahead=1)
    assert (gap.policy, gap.forced, gap.minimum) == (5, 5, 5)


def test_the_optimum_of_bytes_that_unequal_experts_share_is_not_known() -> None:
    calls = [(0, [0], 1), (1, [0], 1), (0, [1], 1), (1, [0], 1)]
    workload = prepare(trace_of(calls, 2), geometry_of({0: 10, 1: 30}, 2))
    found, gap = split(workload, Bank(budget_bytes=40), "lru", "atomic", "global")
    assert (found.misses, found.compulsory, found.capacity, found.policy, found.conflict) == (3, 3, None, None, 0)
    assert (gap.policy, gap.forced, gap.minimum, gap.victim_choice, gap.admission_points) == (3, None, None, None, None)
    known, _ = split(workload, Bank(budget_bytes=80), "lru", "atomic", "layer")
    assert (known.misses, known.capacity, known.policy) == (3, 0, 0)
    # In slots a bank of unequal experts is one like any other, but static:global packs even that by bytes.
    assert split(workload, 1, "lru", "atomic", "global")[0].policy is not None
    assert split(workload, 1, "static:global", "atomic", "global")[0].policy is None


@pytest.mark.parametrize(("contract", "policy"), PAIRS)
def test_the_parts_add_up(contract: str, policy: str) -> None:
    """In bytes on one or two of five workloads, with the next pair on others."""
    for seed in (0, 3):
        workload = random_workload(seed)
        scopes = ("global",) if policy == "static:global" else ("layer", "global")
        for scope in scopes:
            for bank in [Bank(slots=slots) for slots in fitting_banks(workload, contract)]:
                check(*split(workload, bank, policy, contract, scope), policy)
    for seed in range(PAIRS.index((contract, policy)) % 5, 5, 3):
        fixed = contract in ("runtime", "protected") and issubclass(POLICIES[policy], EvictingPolicy)
        for same_size in (True,) if fixed else (False, True):
            workload = random_workload(seed, same_size=same_size)
            largest = max(int(pool.requests.max()) for pool in workload.layer_pools)
            for scope in ("layer", "global"):
                if scope == "layer" and policy == "static:global":
                    continue
                for bank in byte_banks(workload, "layer"):
                    sizes = workload.expert_bytes or ()
                    if fixed and largest * max(sizes) * len(sizes) > (bank.budget_bytes or 0):
                        continue
                    check(*split(workload, bank, policy, contract, scope), policy)


def check(found: MissSplit, gap: Gap, policy: str) -> None:
    """All that must hold of a split, whatever the setup."""
    if found.capacity is None or found.policy is None:
        assert gap.forced is gap.minimum is gap.victim_choice is gap.admission is None
        return
    parts = found.compulsory + found.capacity + found.policy + found.conflict - found.loaded_ahead
    assert parts == found.misses
    assert gap.victim_choice + gap.admission == found.policy
    assert found.misses - found.conflict + found.loaded_ahead == gap.policy
    assert min(found.compulsory, found.capacity, found.policy, found.loaded_ahead, gap.admission) >= 0
    if issubclass(POLICIES[policy], EvictingPolicy):
        assert found.loaded_ahead == 0
        assert gap.victim_choice >= 0 or POLICIES[policy].bypass or "admits" in POLICIES[policy].kernels
    if policy == "min":
        assert found.policy == 0
    if policy == "min:forced":
        assert gap.victim_choice == 0
