"""Slots by layer: replays miss what is promised, and no other slots in the memory miss fewer bytes."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import pytest

from flashmoe_sim.api import load_trace
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import ScheduledPolicy
from flashmoe_sim.policies.table import POLICIES, parse_policy
from flashmoe_sim.prefetchers.last_call import Temporal
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.trace.bundled import catalog
from flashmoe_sim.trace.cut import cut
from flashmoe_sim.tune.layers import LayerBanks, allocate
from flashmoe_sim.tune.miss_curves import ladder
from tests.residency.compare import workload_of
from tests.residency.test_laws import fitting_banks
from tests.residency.test_twins import PAIRS, random_workload

ALONE = [(contract, name) for contract, name in PAIRS if not POLICIES[name].by_budget]
ALONE = [(contract, name) for contract, name in ALONE if not issubclass(POLICIES[name], ScheduledPolicy)]


def misses_of(workload: Workload, setup: Setup) -> tuple[int, ...]:
    return tuple(replay(workload, setup).counts.table[:, tally.MISSES].tolist())


def weight(numbers: tuple[int, ...], workload: Workload) -> int:
    return sum(n * size for n, size in zip(numbers, workload.expert_bytes or (1,) * len(numbers), strict=True))


def assert_promised(workload: Workload, setup: Setup, found: LayerBanks) -> None:
    """Replays have exactly the predicted misses, in no more memory, and no more misses than the given bank."""
    assert misses_of(workload, setup) == found.asked_misses
    assert misses_of(workload, replace(setup, bank=found.bank)) == found.misses
    assert weight(found.misses, workload) <= weight(found.asked_misses, workload)
    budget = setup.bank.budget_bytes or weight(found.asked_slots, workload)
    assert weight(found.slots, workload) <= budget
    assert found.avoided >= 0
    assert found.gap == 0


@pytest.mark.parametrize(("contract", "policy"), ALONE)
def test_every_policy(contract: str, policy: str) -> None:
    workload = random_workload(1)
    for slots in fitting_banks(workload, contract):
        setup = Setup(Bank(slots=slots), parse_policy(policy), contract)
        try:
            replay(workload, setup)
        except BadInput:  # under `runtime` only a replay shows that a call does not fit
            continue
        assert_promised(workload, setup, allocate(workload, setup))


@pytest.mark.parametrize("policy", ["lru", "fifo", "min"])
def test_no_other_slots_miss_fewer_bytes(policy: str) -> None:
    for seed in (1, 3, 5):
        workload = random_workload(seed)
        for slots in range(1, max(workload.n_experts)):
            setup = Setup(Bank(slots=slots), parse_policy(policy), "atomic")
            found = allocate(workload, setup, least=1)
            missed = [
                misses_of(workload, replace(setup, bank=Bank(slots=n))) for n in range(1, max(workload.n_experts) + 1)
            ]
            best = min(
                weight(tuple(missed[n - 1][place] for place, n in enumerate(chosen)), workload)
                for chosen in product(*(range(1, n + 1) for n in workload.n_experts))
                if weight(chosen, workload) <= weight(found.asked_slots, workload)
            )
            assert weight(found.misses, workload) == best


@pytest.mark.parametrize("name", catalog())
def test_bundled_traces(name: str) -> None:
    workload = load_trace(name)
    setup = Setup(Bank(slots=max(workload.n_experts) // 4), contract="atomic")
    found = allocate(workload, setup)
    complete = 17  # of the ladder, with which LRU counts what cannot hold the largest call
    assert found.every_size == (max(pool.largest_call for pool in workload.layer_pools) <= complete)
    assert found.avoided > 0
    assert_promised(workload, setup, found)


def test_a_bank_in_bytes() -> None:
    workload = load_trace("gemma-4-26b-phone")
    setup = Setup(Bank(budget_bytes=4 * 2**30), contract="atomic")
    found = allocate(workload, setup)
    assert len(set(workload.expert_bytes or ())) == 2
    assert_promised(workload, setup, found)
    assert found.to_dict()["bytes"] > found.to_dict()["asked_bytes"]  # shares rounded down to experts leave some over


def test_a_bank_by_layer_is_asked_for_like_any() -> None:
    workload = load_trace("python-256")
    asked = Setup(Bank(by_layer=tuple((layer, 32 + 16 * (layer % 2)) for layer in workload.trace.layers)))
    found = allocate(workload, asked)
    assert found.asked_slots == (32, 48, 32, 48, 32, 48)
    assert_promised(workload, asked, found)
    assert allocate(workload, replace(asked, bank=found.bank)).misses == found.misses


def test_a_bank_whose_slots_hold_only_their_own_layers_calls() -> None:
    """Two slots do for layer 0 but not for layer 1, so no replay with two everywhere counts them."""
    calls = [call for step in range(5) for call in ((0, [step % 3], 1), (1, [step % 2, 2, 3], 3))]
    workload = workload_of(calls, {0: 4, 1: 4})
    asked = Setup(Bank(by_layer=((0, 2), (1, 4))), parse_policy("fifo"))
    assert_promised(workload, asked, allocate(workload, asked))
    few = replace(asked, bank=Bank(by_layer=((0, 4), (1, 2))))
    for contract in ("protected", "runtime"):
        with pytest.raises(BadInput, match="slot-bank overflow"):
            allocate(workload, replace(few, contract=contract))


def test_by_hand() -> None:
    """Layer 0 requests three experts in turn, layer 1 one: two slots each hit there never, three and one always."""
    calls = [call for step in range(6) for call in ((0, [step % 3], 1), (1, [0], 1))]
    workload = workload_of(calls, {0: 4, 1: 4})
    found = allocate(workload, Setup(Bank(slots=2)))
    assert (found.asked_misses, found.misses) == ((6, 1), (3, 1))
    assert (found.slots, str(found.bank)) == ((3, 1), "0:3+1:1")
    assert found.avoided == 1 - 4 / 7
    assert found.held_out == 0  # in each half, the three are requested once
    assert [row["slots"] for row in found.as_rows()] == [3, 1]


def test_least() -> None:
    """What every layer keeps: the experts per token, or the given number, or what the given bank has."""
    workload = load_trace("python-256")
    small = allocate(workload, Setup(Bank(slots=10), contract="atomic"))
    assert min(small.slots) >= 8
    assert min(allocate(workload, Setup(Bank(slots=4), contract="atomic")).slots) == 4
    assert min(allocate(workload, Setup(Bank(slots=10), contract="atomic"), least=10).slots) == 10
    with pytest.raises(BadInput, match="bank 10: does not hold 11 slots of every layer"):
        allocate(workload, Setup(Bank(slots=10), contract="atomic"), least=11)


def test_the_other_half() -> None:
    workload = load_trace("prose-256")
    setup = Setup(Bank(slots=64), contract="atomic")
    half = (int(workload.trace.steps[-1]) + 1) // 2
    first, second = (Workload(cut(workload.trace, steps=part), workload.geometry) for part in ((0, half), (half, None)))
    chosen = allocate(first, setup).bank
    before, after = (sum(misses_of(second, replace(setup, bank=bank))) for bank in (setup.bank, chosen))
    assert allocate(workload, setup).held_out == pytest.approx(1 - after / before)


def test_a_ladder() -> None:
    assert ladder(9) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert ladder(41) == [*range(1, 17), *range(18, 33, 2), 36, 40, 41]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"scope": "global"}, "one bank for all layers has no slots by layer; leave out --scope global"),
        (
            {"policy": parse_policy("hot-window"), "contract": "atomic"},
            "policy hot-window: what a layer misses depends",
        ),
        ({"policy": parse_policy("static:global")}, "policy static:global: what a layer misses depends"),
        ({"prefetch": Temporal()}, "predictor temporal: slots by layer are found without one; leave it out"),
        ({"bank": Bank(slots=4)}, "slot-bank overflow"),
        ({"bank": Bank(slots=300)}, "give at most --bank 256"),
    ],
)
def test_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(BadInput, match=re.escape(says)):
        allocate(load_trace("python-256"), Setup(**{"bank": Bank(slots=64)} | options))  # type: ignore[arg-type]
