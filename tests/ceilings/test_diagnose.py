"""The whole diagnosis: put together from its parts, at every bank size, the same for the same seed."""

from __future__ import annotations

from dataclasses import fields

import orjson
import pytest

from flashmoe_sim.ceilings.diagnose import Diagnosis, diagnose
from flashmoe_sim.ceilings.gap import gap_to_min, split_misses
from flashmoe_sim.ceilings.larger import larger_bank
from flashmoe_sim.ceilings.popularity import nulls_of, stationarity_of
from flashmoe_sim.ceilings.regime import cliff_of, regime_of
from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.io.errors import Incomplete, OutOfRange, Unsupported
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import EvictingPolicy
from flashmoe_sim.policies.table import POLICIES, parse_policy
from flashmoe_sim.prefetchers.table import parse_prefetcher
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from flashmoe_sim.trace.bundled import catalog
from flashmoe_sim.trace.load import load_trace
from tests.residency.builders import run
from tests.residency.test_laws import fitting_banks
from tests.residency.test_twins import PAIRS, byte_banks, random_workload


@pytest.mark.parametrize(("contract", "policy"), PAIRS)
def test_every_policy_at_bank_sizes(contract: str, policy: str) -> None:
    """Each at every fourth size of one of two workloads, with the next pair at the next sizes."""
    number = PAIRS.index((contract, policy)) % 4
    workload = random_workload(number % 2)
    sizes = fitting_banks(workload, contract)
    for slots in sizes[number::4] or sizes[-1:]:
        check(workload, Bank(slots=slots), policy, contract, scope=("layer", "global")[slots // 2 % 2])


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_banks_of_bytes(scope: str) -> None:
    for seed in range(4):
        workload = random_workload(seed)
        for bank in byte_banks(workload, scope):
            check(workload, bank, "lru", "atomic", scope)
            check(workload, bank, "static:global", "runtime", scope)


def check(workload: Workload, bank: Bank, policy: str, contract: str, scope: str) -> None:
    setup = Setup(bank, parse_policy(policy), contract, scope="global" if POLICIES[policy].pooled else scope)
    found = diagnose(workload, Setup(bank, parse_policy(policy), contract, scope=scope))
    own = run(workload, bank, policy, contract, scope=setup.scope, record=True)
    total = own.counts.total()
    assert (found.trace, found.policy, found.contract) == (workload.trace.name, policy, contract)
    assert (found.bank, found.scope) == (str(bank), setup.scope)
    assert (found.hits, found.misses, found.hit_rate) == (total["hits"], total["misses"], total["hit_rate"])
    assert found.hits + found.misses == found.requests
    gap = gap_to_min(workload, own)
    assert found.gap == gap
    assert found.split == split_misses(workload, own, gap)
    assert found.regime == regime_of(workload, setup)
    assert found.cliff == cliff_of(workload, setup)
    assert (found.cliff is None) == (setup.scope == "layer")
    assert found.nulls == nulls_of(workload, setup, hit_rate=found.hit_rate, seed=1)
    assert found.stationarity == stationarity_of(workload, setup)
    assert found.larger == larger_bank(workload, own)
    assert (found.lookahead is None) == (gap.forced is None or gap.policy <= gap.forced)


def test_as_a_document() -> None:
    workload = random_workload(1)
    found = diagnose(workload, Setup(Bank(slots=2), contract="atomic"))
    document = found.to_dict()
    assert list(document) == [item.name for item in fields(Diagnosis)]
    assert document["split"]["compulsory"] == found.split.compulsory
    assert orjson.loads(orjson.dumps(document)) == document


def test_a_seed_says_which_null_traces() -> None:
    workload, setup = random_workload(1), Setup(Bank(slots=2), contract="atomic")
    assert diagnose(workload, setup) == diagnose(workload, setup, seed=1)
    assert diagnose(workload, setup, seed=2).nulls.seed == 2
    assert len({diagnose(workload, setup, seed=seed).nulls.shuffled for seed in range(9)}) > 1
    with pytest.raises(OutOfRange, match="seed -1"):
        diagnose(workload, setup, seed=-1)


def test_a_predictor_is_refused() -> None:
    setup = Setup(Bank(slots=8), contract="runtime", prefetch=parse_prefetcher("temporal"))
    with pytest.raises(Unsupported, match="predictor temporal: a diagnosis is of a policy alone"):
        diagnose(random_workload(1), setup)


def test_a_bank_that_does_not_hold_the_largest_call_is_refused() -> None:
    with pytest.raises(OutOfRange, match="slot-bank overflow"):
        diagnose(random_workload(1), Setup(Bank(slots=1), contract="runtime"))
    with pytest.raises(Incomplete, match="needs the size of an expert"):
        diagnose(prepare(random_workload(1).trace), Setup(Bank(budget_bytes=100), contract="atomic"))


def test_a_policy_that_does_not_evict_needs_no_room_for_a_call() -> None:
    for policy in (name for name, kind in POLICIES.items() if not issubclass(kind, EvictingPolicy)):
        contract = POLICIES[policy].contracts[0]
        assert diagnose(random_workload(1), Setup(Bank(slots=1), parse_policy(policy), contract)).misses > 0


def test_the_bundled_trace_from_python() -> None:
    """Frozen: any change is a change of a result, for the changelog."""
    sample = catalog()["python-256"]
    workload = prepare(load_trace(sample.path), load_model(str(sample.model)))
    found = diagnose(workload, Setup(Bank(slots=64), contract="runtime"))
    assert found.verdict.kind == "policy"
    split, gap, nulls = found.split, found.gap, found.nulls
    assert (split.misses, split.compulsory, split.capacity, split.policy) == (10_812, 1_287, 3_805, 5_742)
    assert (split.conflict, split.aliased_refs) == (-22, 298)
    assert (gap.policy, gap.forced, gap.minimum) == (10_834, 5_306, 5_092)
    assert (round(nulls.shuffled, 4), round(nulls.uniform, 4), nulls.closed_form) == (0.6763, 0.2539, 0.25)
    halves = found.stationarity
    assert (round(halves.profile, 4), round(halves.hindsight, 4)) == (0.5845, 0.8956)
    assert (found.larger.halves, found.larger.unaliased) == ("95", "185")
