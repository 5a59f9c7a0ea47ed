"""The jobs of a plan together count what one replay of each setup counts, whatever the setups share."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.table import POLICIES, parse_policy
from flashmoe_sim.prefetchers.base import Predictions, Prefetcher
from flashmoe_sim.prefetchers.last_call import PredictTop1
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.many import PARTS, count, plan_jobs
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.trace.routing import RoutingTrace
from tests.residency.builders import random_calls
from tests.residency.compare import workload_of
from tests.residency.test_twins import INSTALLING, PAIRS, byte_banks, every_bank, random_workload


def fits(workload: Workload, setup: Setup) -> bool:
    try:
        replay(workload, setup)
    except BadInput:
        return False
    return True


def joined(results: Iterable[dict[Setup, Counts]]) -> dict[Setup, Counts]:
    found: dict[Setup, Counts] = {}
    for result in results:
        for setup, counts in result.items():
            found[setup] = found[setup].joined(counts) if setup in found else counts
    return found


def assert_planned(workload: Workload, setups: Sequence[Setup]) -> None:
    found = joined(job() for job in plan_jobs(workload, setups))
    assert set(found) == set(setups)
    for setup in setups:
        counts = replay(workload, setup).counts
        assert np.array_equal(found[setup].table, counts.table), setup
        assert found[setup].total() == counts.total()
        assert found[setup].by_layer() == counts.by_layer()


@pytest.mark.parametrize("scope", ["layer", "global"])
@pytest.mark.parametrize(("contract", "policy"), PAIRS)
def test_every_policy(contract: str, policy: str, scope: str) -> None:
    """All sizes of one policy, in slots (some more than a layer has experts) and bytes, with and without predictor."""
    ahead: list[Prefetcher] = [NoPrefetch()]
    if (contract, policy) in INSTALLING and contract in PredictTop1.contracts:
        ahead.append(PredictTop1())
    kinds = set()
    for seed in (0, 3):
        workload = random_workload(seed, same_size=scope == "global" and seed % 2 == 0)
        setups = [
            Setup(bank, parse_policy(policy), contract, prefetch, scope=scope)
            for bank in (*every_bank(workload), *byte_banks(workload, scope))
            for prefetch in ahead
        ]
        setups = [setup for setup in setups if fits(workload, setup)]
        kinds |= {(setup.bank.in_slots, setup.prefetch) for setup in setups}
        assert_planned(workload, setups)
    assert len(kinds) == 2 * len(ahead)


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_policies_and_contracts_together(scope: str) -> None:
    """Any choice of sizes, policies and contracts, whichever passes serve them."""
    chosen = ("demand", "lru", "fifo", "static", "static:global", "hot-window", "min", "min:forced")
    for seed in range(10):
        rng = np.random.default_rng(seed)
        workload = random_workload(seed)
        setups = [
            Setup(bank, parse_policy(policy), contract, scope=scope)
            for policy in chosen
            for contract in POLICIES[policy].contracts
            for bank in every_bank(workload)
            if rng.random() < 0.5
        ]
        assert_planned(workload, [setup for setup in setups if fits(workload, setup)])


@pytest.mark.parametrize("layers", [PARTS // 3, PARTS, 2 * PARTS + 1])
@pytest.mark.parametrize("policy", ["lru", "min", "fifo"])
def test_many_layers(policy: str, layers: int) -> None:
    """Layers, or if they are few also sizes, are shared among jobs, whose number does not grow with the sizes."""
    calls = random_calls(np.random.default_rng(layers), n_experts=8, layers=layers, steps=12, width=2)
    workload = workload_of(calls, dict.fromkeys(range(layers), 8))
    setups = [Setup(Bank(slots=slots), parse_policy(policy), "atomic") for slots in range(2, 9)]
    assert_planned(workload, setups)
    assert len(plan_jobs(workload, setups)) <= PARTS


@pytest.mark.parametrize("steps", [5, 60, 400])
def test_global_lru_in_bytes_and_slots(steps: int) -> None:
    """A walk over a bank for all layers equals replays, for experts of different sizes."""
    for seed in range(4):
        calls = random_calls(np.random.default_rng(seed), n_experts=12, layers=3, steps=steps, most_tokens=2)
        layers = sorted({layer for layer, _, _ in calls})
        workload = workload_of(calls, dict.fromkeys(layers, 12), {layer: 16 + 24 * layer for layer in layers})
        banks = [*every_bank(workload), *byte_banks(workload, "global")]
        assert_planned(workload, [Setup(bank, parse_policy("lru"), "atomic", scope="global") for bank in banks])


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_min_at_few_and_many_sizes(scope: str) -> None:
    """A layer's sizes come from one curve; several walks serve the sizes of one bank for all layers."""
    n_experts = 130
    calls = random_calls(np.random.default_rng(1), n_experts=n_experts, layers=2, steps=90, most_tokens=2, width=6)
    workload = workload_of(calls, {0: n_experts, 1: n_experts})
    setups = [Setup(Bank(slots=slots), parse_policy("min"), "atomic", scope=scope) for slots in range(1, n_experts + 1)]
    assert_planned(workload, setups)
    assert_planned(workload, setups[3::8])


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_min_with_next_uses_far_apart(scope: str) -> None:
    """Next uses many words of bits away, among them none at all, are kept in order and found again."""
    rng = np.random.default_rng(2)
    rare = [(0, part.tolist(), 1) for part in np.split(rng.permutation(np.arange(40, 64)), 6)]
    often = [(0, rng.choice(12, 4, replace=False).tolist(), 1) for _ in range(3_000)]
    calls = [*rare, *often, *rare[:4], *often[:1_500], *rare[1:3], (0, [30, 31], 1), *often[:40]]
    setups = [
        Setup(Bank(slots=slots), parse_policy("min"), "atomic", scope=scope) for slots in (1, 4, 8, 12, 14, 20, 36, 64)
    ]
    assert_planned(workload_of(calls, {0: 64}), setups)


@pytest.mark.parametrize("scope", ["layer", "global"])
@pytest.mark.parametrize(
    ("contract", "policy"), [pair for pair in PAIRS if pair[1] in {"lru", "fifo", "static", "min"}]
)
def test_count_is_what_a_replay_counts(contract: str, policy: str, scope: str) -> None:
    """One setup, from every kind of pass; progress is of its passes."""
    workload = random_workload(2)
    setup = Setup(Bank(slots=max(workload.n_experts)), parse_policy(policy), contract, scope=scope)
    done: list[tuple[int, int]] = []
    counts = count(workload, setup, progress=lambda *passes: done.append(passes))
    assert np.array_equal(counts.table, replay(workload, setup).counts.table)
    assert done == [(number + 1, len(done)) for number in range(len(done))]
    ended: list[tuple[int, int]] = []
    replay(workload, setup, progress=lambda *banks: ended.append(banks))
    assert ended[-1] == (len(workload.pools(setup.scope)),) * 2


def test_predictions_are_worked_out_once() -> None:
    """Jobs that run at the same time and need the same predictions wait for them."""
    asked = []

    @dataclass(frozen=True)
    class Slow(PredictTop1):
        name: ClassVar[str] = "slow"

        def predict(self, trace: RoutingTrace) -> Predictions:
            asked.append(trace)
            time.sleep(0.05)
            return super().predict(trace)

    workload = workload_of(
        random_calls(np.random.default_rng(1), n_experts=8, layers=6, width=2), dict.fromkeys(range(6), 8)
    )
    setups = [Setup(Bank(slots=slots), contract="runtime", prefetch=Slow()) for slots in range(3, 9)]
    jobs = plan_jobs(workload, setups)
    with ThreadPoolExecutor(4) as threads:
        found = joined(threads.map(lambda job: job(), jobs))
    assert len(jobs) > 4
    assert len(asked) == 1
    assert set(found) == set(setups)
