"""A trace on disk, computed block by block, counts what it counts in memory."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput, TooLarge
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import NEVER, EvictingPolicy
from flashmoe_sim.policies.table import POLICIES, parse_policy
from flashmoe_sim.prefetchers.base import Memory, PastOnly, Predictions
from flashmoe_sim.prefetchers.last_call import Temporal
from flashmoe_sim.prefetchers.table import PREFETCHERS, parse_prefetcher
from flashmoe_sim.residency import capacity
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.curve import hit_curve
from flashmoe_sim.residency.many import count
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, prepare, why_not
from flashmoe_sim.trace import routing
from flashmoe_sim.trace.long_traces import cut_up, unpack
from flashmoe_sim.trace.routing import RoutingTrace
from tests.prefetchers.test_twins import random_trace
from tests.residency.builders import geometry_of, of_one_layer, one_layer, trace_of
from tests.residency.test_twins import PAIRS

EVICTING = [name for name, policy in POLICIES.items() if issubclass(policy, EvictingPolicy)]
PINNING = ["placed", "static", "static:profile=first-3"]
PAST_ONLY = ["none", *(name for name, one in PREFETCHERS.items() if issubclass(one, PastOnly))]
VARIANTS = ["eam:stored=2", "eam:reach=1:width=3", "hot:width=2", "markov:width=3", "next-layer:width=1"]
CONTRACTS = ["runtime", "protected", "atomic", "sequential"]


def cuts_of(trace: RoutingTrace, rng: np.random.Generator) -> list[int]:
    """Cuts anywhere: the same call twice, before the first and after the last included."""
    return sorted(rng.integers(0, trace.calls + 1, int(rng.integers(0, 8))).tolist())


def assert_same(found: Counts, expected: Counts) -> None:
    for item in fields(Counts):
        mine, whole = getattr(found, item.name), getattr(expected, item.name)
        same = np.array_equal(mine, whole) if isinstance(whole, np.ndarray) else mine == whole
        assert same, item.name


def random_setup(
    trace: RoutingTrace, rng: np.random.Generator, policy: str, contract: str, predictor: str
) -> tuple[Setup, ModelGeometry] | None:
    """A setup with a random bank and a random model; None if no call has tokens, or they cannot be combined."""
    if not trace.refs:
        return None
    in_bytes, scope = bool(rng.integers(2)), ["layer", "global"][rng.integers(2)]
    geometry = geometry_of({layer: int(rng.integers(1, 4)) * 100 for layer in trace.layers}, dict(trace.n_experts))
    most = max(trace.n_experts.values())
    bank = Bank(slots=int(rng.integers(1, most + 1)))
    if in_bytes and contract in ("atomic", "sequential"):
        bank = Bank(budget_bytes=len(trace.layers) * int(rng.integers(300, 300 * most + 1)))
    chosen, prefetch = parse_policy(policy), parse_prefetcher(predictor)
    if why_not(chosen, contract, prefetch):
        return None
    return Setup(bank, chosen, contract, prefetch, scope), geometry


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "BLOCK", 5)


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("policy", [*EVICTING, *PINNING])
def test_every_policy(policy: str, contract: str) -> None:
    if policy in EVICTING and (contract, policy) not in PAIRS:
        return
    for seed in range(12):
        _compare(seed, policy, contract, "none")


@pytest.mark.parametrize("contract", CONTRACTS[:3])
@pytest.mark.parametrize("predictor", [*PAST_ONLY, *VARIANTS])
def test_every_predictor(predictor: str, contract: str) -> None:
    for seed in range(12):
        _compare(seed, "lru", contract, predictor)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32 - 1),
    policy=st.sampled_from(["lru", "min", "min:forced", "lookahead-2", "lfu-decay", "arc", "demand"]),
    contract=st.sampled_from(CONTRACTS),
    predictor=st.sampled_from(PAST_ONLY),
)
def test_any_trace(seed: int, policy: str, contract: str, predictor: str) -> None:
    _compare(seed, policy, contract, predictor)


def on_disk(trace: RoutingTrace, rng: np.random.Generator) -> RoutingTrace:
    return unpack(cut_up(trace, cuts_of(trace, rng)))


def _compare(seed: int, policy: str, contract: str, predictor: str) -> None:
    rng = np.random.default_rng(seed)
    trace = random_trace(seed)
    if (drawn := random_setup(trace, rng, policy, contract, predictor)) is None:
        return
    setup, geometry = drawn
    found = prepare(on_disk(trace, rng), geometry)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routing, "BLOCK", 1 << 20)
        workload = prepare(trace, geometry)
        try:
            whole = replay(workload, setup)
        except BadInput as error:
            why = re.escape(str(error))
        else:
            why = ""
    if why:
        with pytest.raises(BadInput, match=f"^{why}$"):
            count(found, setup)
        return
    assert_same(count(found, setup), whole.counts)
    replayed = replay(found, setup)
    assert_same(replayed.counts, whole.counts)
    for mine, expected in zip(replayed.contents, whole.contents, strict=True):
        assert np.array_equal(mine, expected)


@pytest.mark.parametrize(
    ("policy", "contract"), [("lru", "protected"), ("lru", "atomic"), ("min", "atomic"), ("static", "runtime")]
)
def test_curves(policy: str, contract: str) -> None:
    for seed in range(40):
        trace, rng, chosen = random_trace(seed), np.random.default_rng(seed), parse_policy(policy)
        if not trace.refs:
            continue
        whole = hit_curve(prepare(trace), chosen, contract=contract)
        found = hit_curve(prepare(on_disk(trace, rng)), chosen, contract=contract)
        assert found.keys() == whole.keys()
        for slots, counts in whole.items():
            assert_same(found[slots], counts)


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_pools(scope: Any) -> None:
    for seed in range(40):
        trace, rng = random_trace(seed), np.random.default_rng(seed)
        if not trace.refs:
            continue
        for mine, whole in zip(prepare(on_disk(trace, rng)).pools(scope), prepare(trace).pools(scope), strict=True):
            for name in ("call", "row", "offset", "key", "step", "requests", "first_reference", "requests_by_key"):
                assert np.array_equal(getattr(mine, name), getattr(whole, name)), name
            assert np.array_equal(mine.next_call, whole.next_call)
            assert np.array_equal(mine.next_reference, whole.next_reference)


def test_next_uses_by_hand() -> None:
    """Layer 0 has the references 0 1 | 2 0 | 3 0 2, layer 1 has 2 2; each layer counts its own."""
    trace = trace_of([*one_layer([[0, 1], [2], [0], [3, 0]]), (1, [2, 2], 1), (0, [2], 1)], 4)
    pools = prepare(unpack(cut_up(trace, [1, 3]))).layer_pools
    never = [NEVER] * 2
    assert [pool.next_call.tolist() for pool in pools] == [[3, NEVER, 6, 5, NEVER, *never], never]


def test_more_references_than_hindsight_can_tell_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = trace_of(one_layer([[0, 1], [2], [0], [3, 0]]), 4)
    monkeypatch.setattr(capacity, "MOST_REFERENCES", trace.refs - 1)
    with pytest.raises(TooLarge, match="policy min takes at most 5 references of one bank"):
        replay(prepare(trace), Setup(Bank(slots=2), parse_policy("min"), "atomic"))
    replay(prepare(trace), Setup(Bank(slots=2), contract="atomic"))


@pytest.mark.parametrize("policy", ["lfru", "hyperbolic", "lru-k", "lecar", "cacheus"])
def test_more_uses_than_a_policy_counts(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POLICIES[policy], "most_uses", 4)
    with pytest.raises(TooLarge, match=f"policy {policy}: counts at most 4 uses in one bank"):
        replay(
            of_one_layer([[0, 1], [2], [0], [3, 0]], 4),
            Setup(Bank(slots=2), parse_policy(policy), "atomic"),
        )


@dataclass(frozen=True)
class Own(Temporal):
    """A predictor of a user's, right or wrong."""

    name: ClassVar[str] = "own"
    wrong: int = 0

    def follow(self, chunk: RoutingTrace, ends: NDArray[np.bool_], memory: Memory) -> tuple[Predictions, Memory]:
        made, memory = super().follow(chunk, ends, memory)
        return Predictions(made.after, made.row, made.offset, made.expert + np.int16(self.wrong)), memory


def test_a_predictor_of_ones_own() -> None:
    trace = random_trace(5)
    assert issubclass(Own, PastOnly)
    for wrong in (0, 99):
        setup, found = Setup(Bank(slots=2), prefetch=Own(wrong), contract="atomic"), []
        for one in (trace, unpack(cut_up(trace, [4]))):
            try:
                found.append(str(replay(prepare(one), setup).counts.total()))
            except BadInput as error:
                found.append(str(error))
        assert found[0] == found[1]
        assert ("an expert that its layer does not have" in found[0]) == bool(wrong)
