"""Slots of each layer whose experts are swapped by a score of recent and lifetime use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import inlined, jit
from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.policies.base import Candidates, LayerBanks, ScheduledPolicy
from flashmoe_sim.trace.routing import RoutingTrace

MOST_TOKENS = 31  # of a call that is counted: more are a prompt's batch


@dataclass(frozen=True)
class ScoredSwaps(ScheduledPolicy):
    """Swap a few missed experts in after each step, if they score higher than the residents they displace.

    Under either scope every layer has its own bank. An expert scores its references in the last tokens of its layer,
    plus `weight` times its references so far over the most that an expert of the layer has. After each step, the
    experts that a layer missed take empty slots, the highest score first. If no slot is empty, an expert displaces the
    resident with the lowest score. The layers take turns in being first, since they share the swaps of a step. A
    displaced expert is gone from the next step on. A newcomer is uploaded beside the next step, and is resident from
    the step after it. Newcomers count as prefetched.

    Calls of more than 31 tokens find residents, but are not counted. The engine counts each of their experts once, and
    keeps some of those that it copied to the GPU for them.

    swaps: the most residents displaced after a step, in all layers together. The engine has as many as its link uploads
        in a quarter of a token's time, and 8 in its deterministic mode.
    lead: how much higher than the resident's its score must be.
    admit: references in the last tokens without which it displaces nobody.
    recent: the tokens that count as last. One call's tokens leave together.
    weight: of the share of all time.
    profile_steps: the first steps of the trace, whose references count as of an earlier run: the most referenced
        experts are there at the start. 0: none, and banks are empty.
    """

    name: ClassVar[str] = "scored-swaps"
    ties: ClassVar[str] = "lower expert number"
    source: ClassVar[str] = "neurall/llama.cpp: src/llama-moecache.cpp@00ad6f44, docs/fork-knobs.md@0ccd2690"

    swaps: int = 8
    lead: float = 0.0
    admit: int = 2
    recent: int = 64
    weight: float = 16.0
    profile_steps: int = 0

    def __post_init__(self) -> None:
        least = {"swaps": 0, "lead": 0, "admit": 0, "recent": 1, "weight": 0, "profile_steps": 0}
        for name, at_least in least.items():
            if not at_least <= (value := getattr(self, name)) < 2**31:
                raise OutOfRange(f"policy scored-swaps: {name}={value} is not {at_least} or more")

    def schedule(
        self, trace: RoutingTrace, key: NDArray[np.uint32], candidates: Candidates
    ) -> Iterator[tuple[int, NDArray[np.bool_]]]:
        banks = candidates.banks
        row = np.searchsorted(trace.layers, trace.layer)
        tokens = np.maximum(trace.n_tokens, 1)  # if the recording does not say
        counted = tokens <= MOST_TOKENS
        calls = SwapCalls(key, trace.offset, row, tokens, _following(row, counted))
        ends = np.append(np.flatnonzero(np.diff(trace.steps)) + 1, trace.calls)[: trace.calls].tolist()

        layers, keys = len(banks.slots), int(banks.first_key[-1])
        recently, lifetime = np.zeros((2, keys), np.int64)
        resident = np.zeros(keys, np.bool_)
        if self.profile_steps and ends:
            of_call = np.diff(trace.offset[: ends[min(self.profile_steps, len(ends)) - 1] + 1])
            profile = key[: trace.offset[len(of_call)]][np.repeat(counted[: len(of_call)], of_call)]
            lifetime = np.bincount(profile, minlength=keys)
            resident = _most_used(lifetime, banks)
        yield 0, resident.copy()

        missed, arriving = np.zeros((2, keys), np.bool_)
        oldest, held_tokens = np.full(layers, -1), np.zeros(layers, np.int64)
        state = SwapState(recently, lifetime, oldest, held_tokens, resident, missed, arriving, np.zeros(keys))
        rules, begin = SwapRules(self.swaps, self.lead, self.admit, self.recent, self.weight), 0
        for number, end in enumerate(ends, start=1):
            _serve(calls, begin, end, banks, number % layers, rules, state)
            yield end, resident.copy()
            begin = end


class SwapCalls(NamedTuple):
    """The calls of a trace, as kernels count them.

    key: u32 [references]. offset: i64 [calls + 1]. row: i64 [calls], the layer's place in `trace.layers`. tokens: i32
    [calls]. following: i64 [calls], for each counted call the next one of its layer.
    """

    key: NDArray[np.uint32]
    offset: NDArray[np.int64]
    row: NDArray[np.int64]
    tokens: NDArray[np.int32]
    following: NDArray[np.int64]


class SwapState(NamedTuple):
    """What is known of experts and layers between steps; the kernels change all arrays.

    recently, lifetime: i64 [keys], references in the last tokens and of all time. oldest: i64 [layers], the first call
    among each layer's last tokens, -1 before any; held_tokens: i64 [layers], the tokens of these calls.
    resident, missed, arriving: bool [keys], of this step, and from the next one on. score: f64 [keys], scratch.
    """

    recently: NDArray[np.int64]
    lifetime: NDArray[np.int64]
    oldest: NDArray[np.int64]
    held_tokens: NDArray[np.int64]
    resident: NDArray[np.bool_]
    missed: NDArray[np.bool_]
    arriving: NDArray[np.bool_]
    score: NDArray[np.float64]


class SwapRules(NamedTuple):
    """The parameters of `ScoredSwaps` that hold after each step."""

    swaps: int
    lead: float
    admit: int
    recent: int
    weight: float


def _following(row: NDArray[np.int64], counted: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each counted call the next one of its layer, if there is one: i64 [calls]."""
    calls = np.flatnonzero(counted)
    calls = calls[np.argsort(row[calls], kind="stable")]
    following = np.zeros(len(row), np.int64)
    following[calls[:-1]] = calls[1:]
    return following


def _most_used(uses: NDArray[np.int64], banks: LayerBanks) -> NDArray[np.bool_]:
    """As many experts of each layer as it has slots, the most used first, and none that was never used: bool [keys]."""
    resident = np.zeros(len(uses), np.bool_)
    for layer, first in enumerate(banks.first_key[:-1].tolist()):
        ranked = first + np.argsort(-uses[first : banks.first_key[layer + 1]], kind="stable")[: banks.slots[layer]]
        resident[ranked[uses[ranked] > 0]] = True
    return resident


@jit
def _serve(calls: Any, begin: int, end: int, banks: Any, first_layer: int, rules: Any, state: Any) -> None:
    """Serve the step of the calls from `begin` to `end` (exclusive), then swap; `first_layer` has the first turn."""
    _count(calls, begin, end, rules.recent, state)
    for k in range(len(state.resident)):
        state.resident[k] |= state.arriving[k]
        state.arriving[k] = False
    _swap(banks, first_layer, rules, state)


@inlined
def _count(calls: Any, begin: int, end: int, recent: int, state: Any) -> None:
    """Count the references of a step's calls, and set `missed`."""
    key, offset, row, tokens, following = calls
    recently, lifetime, oldest, held_tokens, resident, missed, _, _ = state
    for call in range(begin, end):
        if tokens[call] > MOST_TOKENS:
            continue
        layer = row[call]
        for r in range(offset[call], offset[call + 1]):
            recently[key[r]] += 1
            lifetime[key[r]] += 1
            if not resident[key[r]]:
                missed[key[r]] = True
        if oldest[layer] < 0:
            oldest[layer] = call
        held_tokens[layer] += tokens[call]
        while held_tokens[layer] > recent and oldest[layer] != call:
            gone = oldest[layer]
            for r in range(offset[gone], offset[gone + 1]):
                recently[key[r]] -= 1
            held_tokens[layer] -= tokens[gone]
            oldest[layer] = following[gone]


@inlined
def _swap(banks: Any, first_layer: int, rules: Any, state: Any) -> None:
    """Give missed experts the empty slots, then slots of residents, which leave at once; clear `missed`."""
    swaps, layers = rules.swaps, len(banks.slots)
    for turn in range(layers):
        layer = (first_layer + turn) % layers
        own = slice(banks.first_key[layer], banks.first_key[layer + 1])
        resident, missed, arriving = state.resident[own], state.missed[own], state.arriving[own]
        recently, lifetime, score = state.recently[own], state.lifetime[own], state.score[own]
        candidates, free = 0, banks.slots[layer]
        for k in range(len(missed)):
            missed[k] = missed[k] and not resident[k]
            candidates += missed[k]
            free -= resident[k]
        if free <= 0 and swaps == 0:
            candidates = 0
        if candidates:
            most = 1
            for k in range(len(missed)):
                most = max(most, lifetime[k])
            for k in range(len(missed)):
                score[k] = recently[k] + rules.weight * (lifetime[k] / most)
        for _ in range(candidates):
            best, worst = -1, -1
            for k in range(len(missed)):
                if missed[k] and (best < 0 or score[k] > score[best]):
                    best = k
                if resident[k] and (worst < 0 or score[k] < score[worst]):
                    worst = k
            missed[best] = False
            if free > 0:
                free -= 1
            elif worst < 0 or swaps == 0 or score[best] < score[worst] + rules.lead:
                break
            elif recently[best] < rules.admit:
                continue
            else:
                resident[worst] = False
                swaps -= 1
            arriving[best] = True
        for k in range(len(missed)):
            missed[k] = False
