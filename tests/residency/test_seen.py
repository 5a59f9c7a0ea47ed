"""What a policy sees of each reference: exactly what its plain twin sees, under every contract."""

from __future__ import annotations

import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from flashmoe_sim.io.errors import Incomplete, Malformed
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import ALL_CONTRACTS, EvictingPolicy, PoolShape, State
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.prefetchers.table import parse_prefetcher
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.victims import total, victims
from flashmoe_sim.residency.workload import Setup, prepare
from flashmoe_sim.sweep.task import Task
from flashmoe_sim.trace.long_traces import cut_up, unpack
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.seen import SEEN
from flashmoe_sim.trace.statistics import inspect
from tests.policies.naive import Expert, Next, Twin
from tests.residency import naive
from tests.residency.builders import random_calls, trace_of
from tests.residency.compare import _assert_equal, calls_of, predictions_of
from tests.residency.test_victims import watched

LeastWeight: Any = runpy.run_path(str(Path(__file__).parents[1] / "guide" / "mine.py"))["LeastWeight"]
EXPERTS, WIDTH, MOST_TOKENS = 8, 2, 3


def on_use(
    state: Any,
    slot: int,
    key: int,
    now: int,
    upcoming: int,
    tokens: int,
    weight: float,
    rank: int,
    request: int,
    position: int,
    phase: int,
) -> None:
    state[0][slot] = weight + 4 * rank + 16 * request - 2 * position + 8 * phase + tokens + state[1][key]


def on_miss(
    state: Any, key: int, now: int, tokens: int, weight: float, rank: int, request: int, position: int, phase: int
) -> None:
    state[1][key] += weight * (tokens + phase)


def admits(
    state: Any, key: int, now: int, tokens: int, weight: float, rank: int, request: int, position: int, phase: int
) -> bool:
    return weight > 0.25 or rank == 0


def declines(
    state: Any,
    slot: int,
    key: int,
    now: int,
    upcoming: int,
    tokens: int,
    weight: float,
    rank: int,
    request: int,
    position: int,
    phase: int,
) -> bool:
    return state[0][slot] > 4 * weight + tokens


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    victim = -1
    for slot in range(len(slot_key)):
        if slot_key[slot] >= 0 and blocked[slot] != mark and (victim < 0 or state[0][slot] < state[0][victim]):
            victim = slot
    return victim


@dataclass(frozen=True)
class All(EvictingPolicy):
    """Evict by all that can be seen."""

    name: ClassVar[str] = "all-seen"
    sees: ClassVar[tuple[str, ...]] = ("tokens", "weight", "rank", "request", "position", "phase")
    bypass: ClassVar[bool] = True
    kernels: ClassVar[dict[str, Any]] = {
        "on_hit": on_use,
        "on_install": on_use,
        "on_miss": on_miss,
        "admits": admits,
        "declines": declines,
        "choose_victim": choose_victim,
    }

    def allocate(self, shape: PoolShape) -> State:
        return np.zeros(shape.slots), np.zeros(shape.keys)


class Seeing(Twin):
    """A twin that looks at a trace: the largest weight and lowest rank of the call, unless a reference is a use."""

    def __init__(self, trace: RoutingTrace) -> None:
        super().__init__(0)
        self.calls, self.trace = calls_of(trace), trace
        self.stamp: dict[int, tuple[float, ...]] = {}

    def seen(self, expert: Expert) -> dict[str, float]:
        if self.ahead is not None:
            return {"weight": 0, "rank": WIDTH, **self.of_call(self.ahead)}
        trace, (layer, experts, _) = self.trace, self.calls[self.number]
        start = int(trace.offset[self.number])
        weights = trace.weight[start : start + len(experts)].tolist()
        ranks: list[int] = []
        for first in range(0, len(experts), WIDTH):
            best = sorted(range(first, first + WIDTH), key=lambda place: -weights[place])
            ranks += [best.index(place) for place in range(first, first + WIDTH)]
        places = [place for place, one in enumerate(experts) if (layer, one) == expert]
        if self.reference is not None:
            places = [self.reference]
        return {
            "weight": max(weights[place] for place in places),
            "rank": min(ranks[place] for place in places),
            **self.of_call(self.number),
        }

    def of_call(self, number: int) -> dict[str, float]:
        if number < 0:
            return dict.fromkeys(("tokens", "request", "position", "phase"), 0)
        request = int(self.trace.sequence[number])
        return {
            "tokens": self.calls[number][2],
            "request": request,
            "position": self.step_of[number] - self.step_of[self.trace.sequence.tolist().index(request)],
            "phase": int(self.trace.phase[number]),
        }

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.stamp[slot] = self.seen(expert)["weight"], now

    def installed(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.used(slot, expert, now, coming)

    def victim(self, held: list[tuple[int, Expert]]) -> int:
        return min(held, key=lambda pair: (self.stamp[pair[0]], pair[0]))[0]


class SeeingAll(Seeing):
    bypass = True

    def __init__(self, trace: RoutingTrace) -> None:
        super().__init__(trace)
        self.missed_by: dict[Expert, float] = {}

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        s = self.seen(expert)
        score = s["weight"] + 4 * s["rank"] + 16 * s["request"] - 2 * s["position"] + 8 * s["phase"] + s["tokens"]
        self.stamp[slot] = (score + self.missed_by.get(expert, 0),)

    def missed(self, expert: Expert, now: int) -> None:
        s = self.seen(expert)
        self.missed_by[expert] = self.missed_by.get(expert, 0) + s["weight"] * (s["tokens"] + s["phase"])
        self.declining = 4 * s["weight"] + s["tokens"]

    def admits(self, expert: Expert, now: int) -> bool:
        s = self.seen(expert)
        return s["weight"] > 0.25 or s["rank"] == 0

    def declines(self, slot: int, coming: Next) -> bool:
        return self.stamp[slot][0] > self.declining


def random_trace(seed: int, *, layers: int = 2) -> RoutingTrace:
    """Interleaved requests, calls with several tokens or none, and weights of which many are equal."""
    rng = np.random.default_rng(seed)
    shape = {"n_experts": EXPERTS, "layers": layers, "steps": 25, "most_tokens": MOST_TOKENS, "width": WIDTH}
    trace = trace_of(random_calls(rng, **shape, missing=0.1, idle=0.1), EXPERTS)
    return trace.with_(
        weight=(rng.integers(0, 16, trace.refs) / 16).astype(np.float32),
        sequence=rng.integers(0, 3, int(trace.steps[-1]) + 1).astype(np.int32)[trace.steps],
        phase=rng.integers(0, 3, trace.calls).astype(np.uint8),
        step=trace.steps,
    )


PAIRS = [(LeastWeight(), Seeing), (All(), SeeingAll)]


@pytest.mark.parametrize("contract", ALL_CONTRACTS)
@pytest.mark.parametrize(("policy", "twin"), PAIRS, ids=lambda one: getattr(one, "name", ""))
def test_twins(policy: Any, twin: Any, contract: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(6):
        trace = random_trace(seed)
        workload, mapped = prepare(trace), prepare(unpack(cut_up(trace, [7, 20])))
        monkeypatch.setitem(naive.EVICTING, policy.name, lambda _, trace=trace: twin(trace))
        least = WIDTH * MOST_TOKENS if contract in ("runtime", "protected") else 1
        for slots in range(least, EXPERTS + 1):
            for scope in ("layer", "global"):
                asked = {"contract": contract, "policy": policy.name, "n_experts": trace.n_experts, "scope": scope}
                expected = naive.replay(calls_of(trace), slots=slots, **asked)
                setup = Setup(Bank(slots=slots), policy, contract, scope=scope)
                for given in (workload, mapped):
                    result = replay(given, setup, record=True)
                    _assert_equal(result, expected, trace, contract=contract, pinning=False)


@pytest.mark.parametrize("contract", ["runtime", "protected", "atomic"])
@pytest.mark.parametrize(("policy", "twin"), PAIRS, ids=lambda one: getattr(one, "name", ""))
@pytest.mark.parametrize("spec", ["markov", "next-layer", "oracle-1"])
def test_twins_beside_a_predictor(
    policy: Any, twin: Any, contract: str, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prediction has no weight, the last rank, and the rest of the call after which it was made."""
    predictor = parse_prefetcher(spec)
    for seed in range(4):
        trace = random_trace(seed)
        workload, foretold = prepare(trace), predictions_of(predictor, trace)
        monkeypatch.setitem(naive.EVICTING, policy.name, lambda _, trace=trace: twin(trace))
        least = WIDTH * MOST_TOKENS if contract != "atomic" else 1
        for slots in range(least, EXPERTS + 1):
            for scope in ("layer", "global"):
                asked = {"contract": contract, "policy": policy.name, "n_experts": trace.n_experts, "scope": scope}
                expected = naive.replay(calls_of(trace), slots=slots, predictions=foretold, **asked)
                result = replay(workload, Setup(Bank(slots=slots), policy, contract, predictor, scope), record=True)
                _assert_equal(result, expected, trace, contract=contract, pinning=False)
                assert expected.reads or spec != "oracle-1"


@pytest.mark.parametrize(("policy", "twin", "contract"), [(*PAIRS[0], "atomic"), (*PAIRS[1], "protected")])
def test_victims(policy: Any, twin: Any, contract: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Victims are judged in the same way whether or not the policy sees weights."""
    for seed in range(3):
        trace, choices = random_trace(seed), list[tuple[int, int]]()
        monkeypatch.setitem(naive.EVICTING, policy.name, lambda _, t=trace, c=choices: watched(twin(t), c))
        asked = {"contract": contract, "policy": policy.name, "n_experts": trace.n_experts}
        naive.replay(calls_of(trace), slots=WIDTH * MOST_TOKENS, **asked)
        found = total(victims(prepare(trace), Setup(Bank(slots=WIDTH * MOST_TOKENS), policy, contract)))
        assert (found.chosen, found.optimal) == (len(choices), sum(later == 0 for later, _ in choices))
        assert found.ranks == pytest.approx(sum(later / others for later, others in choices if others))
        assert found.chosen > 0


def test_stamped_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of the uses in a call changes nothing of what is seen of each."""
    trace = random_trace(1, layers=1)
    monkeypatch.setitem(naive.EVICTING, "least-weight", lambda _: Seeing(trace))
    asked = {"contract": "atomic", "policy": "least-weight:stamp=reverse", "n_experts": trace.n_experts}
    result = replay(prepare(trace), Setup(Bank(slots=3), LeastWeight(stamp="reverse"), "atomic"), record=True)
    _assert_equal(result, naive.replay(calls_of(trace), slots=3, **asked), trace, contract="atomic", pinning=False)


@pytest.mark.parametrize(
    ("absent", "without"),
    [("weight", "weight"), ("sequence", "request"), ("sequence", "position"), ("weight", "rank"), ("phase", "phase")],
)
def test_a_trace_without(absent: str, without: str) -> None:
    """A trace that lacks something is refused in one line, and its description says so."""
    trace = trace_of([(0, [0, 1], 1), (0, [2, 3], 1)], 4)
    full = trace.with_(weight=np.ones(4, np.float32), sequence=np.zeros(2, np.int32), phase=np.array([1, 2], np.uint8))
    assert inspect(full).seen == tuple(SEEN)
    lacking = full.with_(**{absent: None})
    assert without not in inspect(lacking).seen

    @dataclass(frozen=True)
    class Wants(Lru):
        sees: ClassVar[tuple[str, ...]] = (without,)

    with pytest.raises(Incomplete) as refused:
        replay(prepare(lacking), Setup(Bank(slots=2), Wants(), "atomic"))
    assert str(refused.value) == (
        f"policy lru needs the {without} of each reference, which written by hand does not have; "
        "`sim trace inspect` shows what a trace has"
    )


def test_tokens_of_different_width_have_no_ranks() -> None:
    trace = trace_of([(0, [0, 1, 2], 2)], 4).with_(weight=np.ones(3, np.float32))
    assert inspect(trace).seen == ("weight", "tokens")


def test_what_cannot_be_is_refused() -> None:
    def refused(sees: Any) -> str:
        kind = dataclass(frozen=True)(type("Wrong", (LeastWeight,), {"sees": sees}))
        with pytest.raises(Malformed) as error:
            Setup(Bank(slots=2), kind(), "atomic")
        return str(error.value)

    for sees in ("weight", ("height",), ("rank", "rank"), 3):
        assert "expected a tuple of some of weight, rank, request, position, phase, tokens" in refused(sees)
    assert "on_hit takes (state: " in refused(("rank",))
    assert refused(("weight", "rank")).endswith("expected (state, slot, key, now, upcoming, weight, rank)")
    assert refused(()).endswith("expected (state, slot, key, now, upcoming)")


def test_ids_cover_weights_only_if_they_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = random_trace(0)
    other = trace.with_(weight=trace.weight[::-1].copy())

    def ids(policy: EvictingPolicy) -> set[str | None]:
        return {Task(prepare(one), Setup(Bank(slots=6), policy)).strong_id for one in (trace, other)}

    assert len(ids(Lru())) == 1
    monkeypatch.setattr(Lru, "sees", ("weight",))
    assert len(ids(Lru())) == 2
    assert len(ids(LeastWeight())) == 2
