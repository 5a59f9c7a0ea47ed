"""The hot sets, which change between steps: `hot-window` and `hot-profile`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashmoe_sim.io.errors import Conflict, Incomplete, Malformed, Unsupported
from flashmoe_sim.policies import hot_profile
from flashmoe_sim.policies._perf_profile import SCHEMAS, read_profile
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.hot_profile import request_starts, shuffled
from flashmoe_sim.policies.hot_window import HotWindow, decodes_of
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, PHASE_UNKNOWN
from tests.policies.naive import hot as naive
from tests.residency.builders import (
    Call,
    came_after,
    geometry_of,
    held,
    hits_of,
    one_layer,
    random_calls,
    run,
    some,
    trace_of,
)
from tests.residency.compare import assert_twins
from tests.support import refused

MIB = 2**20


def window(experts: Sequence[int], slots: int, **parameters: int) -> Replayed:
    """Decodes of one expert each, of one layer of 4 experts."""
    spec = ":".join(["hot-window", *(f"{name}={value}" for name, value in parameters.items())])
    return run(trace_of(one_layer([[expert] for expert in experts]), 4), slots, spec, record=True)


# --- hot-window -------------------------------------------------------------------------------------------------------


def test_filling_goes_in_router_order_and_ends_when_all_layers_are_full() -> None:
    """Two slots a layer and an interval of one decode: were a layer steady once it is full, it would rebalance."""
    calls = [
        (0, [3, 1, 0], 1),  # decode 1: all miss; slots for 3 and 1, in router order; none left for 0
        (1, [2], 1),  # misses; a slot for 2, one is left: filling goes on
        (0, [0, 1], 1),  # decode 2: 1 hits; layer 0 is full, so 0 gets nothing
        (1, [2], 1),  # hits
        (0, [3, 0], 1),  # decode 3: 3 hits
        (1, [0, 1], 1),  # both miss, for their own decode fills only after it; 0 gets the last slot, 1 none: full
        (0, [0, 2], 1),  # decode 4, steady: both miss
        (1, [0, 2], 1),  # both hit
    ]
    result = run(trace_of(calls, 4), 2, "hot-window:interval=1", record=True)
    assert hits_of(result) == [0, 0, 1, 1, 1, 0, 0, 2]
    assert came_after(result) == [2, 1, 0, 0, 0, 1, 0, 0]
    assert held(result) == [[1, 3], [0, 2]]
    # Of the four that came all were hit: 3, 1 and 2 in decodes 2 and 3, 0 of layer 1 in the last.
    assert some(result, "misses", "bypassed", "cold", "evictions") == (10, 10, 0, 0)
    assert some(result, "prefetch_calls", "prefetch_issued", "prefetch_useful", "prefetch_wasted") == (3, 4, 4, 0)


@pytest.mark.parametrize(
    ("slots", "interval", "steady", "first", "second"),
    [
        (32, 40, 10, 5, 7),  # 32 x 40 / 320 = 4; 7.5 rounded down
        (56, 40, 13, 6, 9),  # 7; 6.5 and 9.75 rounded down
        (32, 80, 14, 7, 10),
        (56, 80, 20, 10, 15),
        (1, 1, 6, 3, 4),  # never less than 6; 4.5
        (7, 40, 6, 3, 4),  # 0.875 rounded down
        (256, 40, 24, 12, 18),  # 32 + 6, never more than 24
    ],
)
def test_the_bonus_of_residents(slots: int, interval: int, steady: int, first: int, second: int) -> None:
    policy = HotWindow(interval=interval)
    assert [int(policy.bonus(np.array([slots]), number)[0]) for number in (1, 2, 3, 9)] == [
        first,
        second,
        steady,
        steady,
    ]


def test_the_first_bonus_is_half_and_a_tie_keeps_the_resident() -> None:
    """One slot, five decodes an interval; expert 0 fills it in decode 1. The bonus is 6, of it 3 at the first end."""
    swapped = window([0, 1, 1, 1, 1, 1], 1, interval=5)
    # 1 was used 4 times in decodes 2 to 5: 4 > 0 + 3.
    assert hits_of(swapped) == [0, 0, 0, 0, 0, 1]
    assert came_after(swapped) == [1, 0, 0, 0, 1, 0]
    assert held(swapped) == [[1]]
    # 0 came and was never hit, 1 came and was hit.
    assert some(swapped, "prefetch_useful", "prefetch_wasted") == (1, 1)
    # 3 = 0 + 3: the resident stays.
    assert held(window([0, 1, 1, 1, 2, 1], 1, interval=5)) == [[0]]
    assert held(window([3, 1, 1, 1, 2, 1], 1, interval=5)) == [[3]]  # whatever its number


def test_wide_calls_pass_the_bank_by() -> None:
    calls = [
        (0, [1, 2], 2),  # decode 1, two tokens: fills nothing
        (0, [0], 1),  # decode 2: fills the slot with 0
        (0, [0, 1], 2),  # decode 3: 0 is there and is not used; nothing is counted
        (0, [1], 1),
        (0, [1], 1),
        (0, [1], 1),  # decodes 4 to 6: 3 uses of 1
        (0, [1, 3], 2),  # decode 7 ends the first interval: 3 = 0 + 3; with its own it would be 4
        (0, [0], 1),
    ]
    result = run(trace_of(calls, 4), 1, "hot-window:interval=7:bypass_tokens=1", record=True)
    assert hits_of(result) == [0, 0, 0, 0, 0, 0, 0, 1]
    assert came_after(result) == [0, 1, 0, 0, 0, 0, 0, 0]
    assert result.hit.tolist() == [0] * (len(result.hit) - 1) + [1]
    assert held(run(trace_of(calls, 4), 1, "hot-window:interval=7:bypass_tokens=2")) == [[1]]
    assert held(run(trace_of(calls, 4), 1, "hot-window:interval=7")) == [[1]]


def test_a_bank_in_bytes_too_small_for_one_expert_of_a_layer() -> None:
    workload = prepare(trace_of([(0, [0], 1), (1, [0], 1)] * 3, 2), geometry_of({0: 10, 1: 30}, 2))
    result = run(workload, Bank(budget_bytes=40), "hot-window", record=True)
    assert hits_of(result) == [0, 0, 1, 0, 1, 0]
    assert held(result) == [[0], []]
    assert result.counts.resident_bytes == 20
    assert result.stream.prefetch_bytes.tolist() == [10, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("seed", range(3))
def test_long_traces_of_a_hot_window(seed: int) -> None:
    """Popular experts change every 50 steps, so that there is something to exchange."""
    rng = np.random.default_rng(seed)
    calls = [
        call
        for _ in range(4)
        for call in random_calls(rng, n_experts=12, layers=2, steps=50, most_tokens=2, width=2, missing=0.1)
    ]
    workload = prepare(trace_of(calls, {0: 12, 1: 14}), geometry_of({0: 16, 1: 48}, {0: 12, 1: 14}))
    loaded = 0
    for interval in (7, 12, 20):
        for bypass in (0, 1):
            for slots in range(1, 15):
                spec = f"hot-window:interval={interval}:bypass_tokens={bypass}"
                assert_twins(workload, Bank(slots=slots), spec, "atomic", scope="global" if bypass else "layer")
                loaded += some(run(workload, slots, spec), "prefetch_issued")[0] - min(slots, 12) - slots
    assert loaded > 100
    for budget in (40, 96, 400):
        assert_twins(workload, Bank(budget_bytes=budget), "hot-window:interval=12", "atomic")


# --- hot-window as the system has it ----------------------------------------------------------------------------------


def test_the_vectors_of_its_state_machine() -> None:
    """K 4, E 16. Slots 0 to 2 take 3, 7 and 11, each once; then slot 3 takes 15, and 2 finds none.

    In decodes 3 to 8 the uses are 7: 30, 11: 28, 9: 25, 4: 22, 3: 2, 15: 1; residents have 3 more. Of {3, 7, 11, 15}
    stay 7 and 11; 9 takes slot 0 from 3, and 4 slot 3 from 15.
    """
    uses = [7] * 30 + [11] * 28 + [9] * 25 + [4] * 22 + [3] * 2 + [15]
    parts = [uses[begin : begin + 18] for begin in range(0, 108, 18)]
    calls = [(0, [3, 7, 11, 11], 1), (0, [3, 15, 7, 2], 1), *((0, part, 18) for part in parts)]
    workload = prepare(trace_of(calls, 16))
    result = run(workload, 4, "hot-window:interval=8:count=reference", record=True)
    assert came_after(result) == [3, 1, 0, 0, 0, 0, 0, 2]
    assert held(result) == [[4, 7, 9, 11]]
    twin = naive.HotWindow([[call] for call in calls], naive.StepKinds(), {0: 4}, {0: 16}, "8", count="reference")
    slots = []
    for call in calls:
        twin.after_step([call], request_ends=False)
        slots.append(list(twin.held[0]))
    assert slots == [[3, 7, 11], *[[3, 7, 11, 15]] * 6, [9, 7, 11, 4]]
    # Counted once a decode, newcomers have 2 uses, and residents at least 1 and 3 more.
    assert held(run(workload, 4, "hot-window:interval=8")) == [[3, 7, 11, 15]]


def test_a_reference_is_a_use() -> None:
    """Decode 2 has five tokens that request 1."""
    calls = [(0, [0], 1), (0, [1] * 5, 5), (0, [2], 1), (0, [2], 1), (0, [2], 1)]
    assert held(run(trace_of(calls, 4), 1, "hot-window:interval=5")) == [[0]]  # 3 = 0 + 3
    assert held(run(trace_of(calls, 4), 1, "hot-window:interval=5:count=reference")) == [[1]]


@pytest.mark.parametrize(
    ("rows", "seen"),
    [
        ([1, 1, 1, 1], [True, True, True, True]),
        ([2, 2, 2, 1], [True, True, False, False]),
        ([3, 3, 3, 1], [True, False, False, True]),  # the last computes the row that is output
        ([5, 5, 5, 1], [False, False, False, True]),
        ([5, 5, 5, 5], [False, False, False, False]),
    ],
)
def test_of_a_micro_batch_so_many_rows_are_seen_as_there_are_layers(rows: list[int], seen: list[bool]) -> None:
    trace = trace_of([(layer, [0] * n, n) for layer, n in enumerate(rows)], 4)
    assert decodes_of(trace).observed.tolist() == seen


def test_a_prompt_is_one_decode_of_which_the_last_micro_batch_is_seen() -> None:
    """Steps of one layer: 300 and 300 tokens are two micro-batches, 300 and 200 one; 2048 tokens are a decode."""
    p, d = PHASE_PROMPT, PHASE_DECODE

    def found(steps: list[tuple[int, int, int]]) -> tuple[list[int], list[bool]]:
        """Of steps of so many tokens, a phase and a text."""
        sizes, phase, text = (list(column) for column in zip(*steps, strict=True))
        calls = [(layer, [0] * n, n) for n in sizes for layer in range(600)]
        trace = trace_of(calls, 4).with_(
            phase=np.repeat(phase, 600).astype(np.uint8), sequence=np.repeat(text, 600).astype(np.int32)
        )
        decodes = decodes_of(trace)
        return (decodes.ends // 600).tolist(), decodes.observed[::600].tolist()

    assert found([(300, p, 1), (300, p, 1), (1, d, 1)]) == ([2, 3], [False, True, True])
    assert found([(300, p, 1), (200, p, 1), (1, d, 1), (1, d, 1)]) == ([2, 3, 4], [True] * 4)
    assert found([(300, p, 1), (200, p, 2), (1, p, 2)]) == ([1, 3], [True] * 3)
    assert found([(512, p, 1)] * 4 + [(1, p, 1)] * 2) == ([4, 6], [False] * 3 + [True] * 3)
    assert found([(600, p, 1), (1, p, 1)]) == ([2], [False, True])
    assert found([(1, d, 1), (1, p, 2), (1, p, 2), (1, d, 2)]) == ([1, 3, 4], [True] * 4)


def test_the_decodes_before_the_first_request() -> None:
    """Two slots. Of four layers the first two begin full; of three the first, and the last, of one row."""
    calls = [(layer, [3], 1) for _ in range(2) for layer in range(4)]
    result = run(trace_of(calls, 4), 2, "hot-window:warm_up=True", record=True)
    assert held(result) == [[0, 1], [0, 1], [3], [3]]
    assert hits_of(result) == [0, 0, 0, 0, 0, 0, 1, 1]
    assert came_after(result)[:4] == [0, 0, 1, 1]
    calls = [(layer, [3], 1) for layer in range(3)]
    assert held(run(trace_of(calls, 4), 2, "hot-window:warm_up=True")) == [[0, 1], [3], [0, 1]]
    # Two decodes were before, so the third of the trace ends an interval of five: 4 > 0 + 3.
    calls = [(0, [3], 1), (0, [2, 2], 2), (0, [2, 2], 2), (0, [3], 1)]
    spec = "hot-window:interval=5:count=reference"
    result = run(trace_of(calls, 4), 1, f"{spec}:warm_up=True", record=True)
    assert came_after(result) == [0, 0, 1, 0]
    assert held(result) == [[2]]
    assert held(run(trace_of(calls, 4), 1, spec)) == [[3]]


def test_a_trace_that_begins_with_the_warm_up() -> None:
    """A step of two tokens with one output row, then a prompt, whose last layer computes nothing, then decoding."""
    calls = [(0, [2, 3, 2, 1], 2), (1, [2], 1)]
    calls += [(0, [0, 1], 1), (0, [0, 1], 1), (1, [0, 1], 1), (0, [1, 2], 1), (1, [1, 2], 1)]
    trace = trace_of(calls, 8)
    assert decodes_of(trace).warm_up == 2
    assert decodes_of(trace).ends.tolist() == [2, 5, 7]
    result = run(trace, 4, "hot-window:warm_up=True", record=True)
    # 2, 3 and 1 are what the trace knows of the router's order, 0 is the lowest number beside them.
    assert held(result) == [[0, 1, 2, 3], [0, 1, 2]]
    assert hits_of(result) == [0, 0, 2, 2, 0, 2, 1]
    assert came_after(result) == [4, 0, 0, 0, 2, 0, 1]


@pytest.mark.parametrize(("seed", "layers"), [(0, 4), (1, 1), (2, 5)])
def test_long_texts_of_the_system(seed: int, layers: int) -> None:
    """Prompts in steps of up to 400 tokens and decoding, in texts, with a warm-up or without."""
    rng = np.random.default_rng(seed)
    calls: list[Call] = []
    phase, text = [], []
    if seed:
        calls += [(layer, rng.integers(0, 9, 4).tolist(), 2) for layer in range(layers - 1)]
        calls += [(layers - 1, rng.integers(0, 9, 2).tolist(), 1)]
        phase += [PHASE_PROMPT]
        text += [0]
    for number in range(4):
        for _ in range(int(rng.integers(1, 9))):
            tokens = int(rng.choice([1, 1, 2, 3, 100, 400]))
            calls += [(layer, rng.integers(0, 9, 2 * tokens).tolist(), tokens) for layer in range(layers)]
            phase += [PHASE_PROMPT]
            text += [number]
        for _ in range(int(rng.integers(0, 30))):
            popular = rng.integers(0, 9, 3)
            calls += [(layer, rng.choice(popular, 2).tolist(), 1) for layer in range(layers)]
            phase += [PHASE_DECODE]
            text += [number]
    trace = trace_of(calls, 9)
    per_call = np.repeat(np.arange(len(phase)), np.bincount(trace.steps))
    sequenced = trace.with_(
        phase=np.array(phase, np.uint8)[per_call], sequence=np.array(text, np.int32)[per_call], step=trace.steps
    )
    for one in (trace, sequenced, sequenced.with_(phase=None)):
        for interval in (1, 2, 5, 12):
            for count in ("decode", "reference"):
                for slots in (1, 3, 9):
                    spec = f"hot-window:interval={interval}:count={count}:observe=last:warm_up=True:bypass_tokens=150"
                    assert_twins(prepare(one), Bank(slots=slots), spec, "atomic")


# --- hot-profile: what is loaded --------------------------------------------------------------------------------------


def write(folder: Path, layers: Any, schema: str = SCHEMAS[0]) -> Path:
    path = folder / "profile.json"
    path.write_text(json.dumps({"schema": schema, "layers": layers}))
    return path


def two_layers(first: int = MIB, second: int = MIB, *, calls: Sequence[Call] | None = None) -> Workload:
    """Layers 0 and 1 of four experts each, of so many bytes."""
    trace = trace_of(calls or [(0, [0], 1), (1, [0], 1)], 4)
    return prepare(trace, geometry_of({0: first, 1: second}, 4))


def loads(workload: Workload, budget: int, path: Path, **parameters: Any) -> list[list[int]]:
    spec = ":".join([f"hot-profile:profile={path}", *(f"{name}={value}" for name, value in parameters.items())])
    result = run(workload, Bank(budget_bytes=budget), spec)
    assert result.counts.resident_bytes <= budget
    return held(result)


def test_the_first_expert_of_a_layer_costs_two(tmp_path: Path) -> None:
    path = write(tmp_path, [{"layer": n, "experts": [[0, 9 - n], [1, 5 - n], [2, 1]]} for n in (0, 1)])
    # flat: expert 0 of layer 0, of layer 1, then expert 1 of both, then expert 2 of both
    assert loads(two_layers(), 1 * MIB, path) == [[], []]
    assert loads(two_layers(), 2 * MIB, path) == [[0], []]
    # 1 MiB is left: not enough for the first of layer 1, but for the second of layer 0.
    assert loads(two_layers(), 3 * MIB, path) == [[0, 1], []]
    assert loads(two_layers(), 4 * MIB, path) == [[0], [0]]
    assert loads(two_layers(), 5 * MIB, path) == [[0, 1], [0]]
    assert loads(two_layers(), 8 * MIB, path) == [[0, 1, 2], [0, 1, 2]]
    assert loads(two_layers(), 90 * MIB, path) == [[0, 1, 2], [0, 1, 2]]  # 3 was never used
    # An expert that does not fit is passed over for a smaller one: 2 x 3 > 5, then 2 x 1 and twice 1.
    assert loads(two_layers(3 * MIB, MIB), 5 * MIB, path) == [[], [0, 1, 2]]


def test_a_budget_in_bytes_is_rounded_down_to_mib(tmp_path: Path) -> None:
    path = write(tmp_path, [{"layer": 0, "experts": [[0, 2], [1, 1]]}])
    small = two_layers(MIB // 2 + 1)  # two of them are more than 1 MiB
    assert loads(small, 2 * MIB - 1, path) == [[], []]
    assert loads(small, 2 * MIB, path) == [[0, 1], []]
    # A bank in slots is as many experts of each layer, and is not rounded: 4 x (MIB / 2 + 1) and 4 MiB.
    result = run(small, 4, f"hot-profile:profile={path}")
    assert held(result) == [[0, 1], []]
    assert result.counts.resident_bytes == 3 * (MIB // 2 + 1)
    # Without a model, a bank of one slot each holds two experts, one of them the empty slot.
    assert held(run(trace_of([(0, [0, 1], 1), (1, [0], 1)], 4), 1, "hot-profile")) == [[0], []]


def test_what_is_loaded_stays_and_its_misses_are_served_without_installing(tmp_path: Path) -> None:
    calls = [(0, [0, 1], 1), (1, [0], 1), (0, [1, 1, 2], 1), (1, [3], 1)]
    path = write(tmp_path, [{"layer": 0, "experts": [[1, 2]]}, {"layer": 1, "experts": [[3, 1]]}], SCHEMAS[1])
    result = run(two_layers(calls=calls), Bank(budget_bytes=4 * MIB), f"hot-profile:profile={path}", record=True)
    assert hits_of(result) == [1, 0, 1, 1]
    assert some(result, "requests", "misses", "bypassed", "prefetch_issued") == (6, 3, 3, 0)
    assert some(result, "cold", "evictions", "full_hit_calls") == (0, 0, 1)
    assert held(run(two_layers(calls=calls), 2, f"hot-profile:profile={path}", scope="global")) == [[1, 4 + 3]]


def test_without_a_profile_the_trace_is_its_own() -> None:
    """Requests: expert 1 of layer 0 twice, its 0 and 2 once; 3 of layer 1 twice, 0 once."""
    calls = [(0, [0, 1], 1), (1, [0, 3], 1), (0, [1, 1, 2], 1), (1, [3], 1)]
    workload = two_layers(calls=calls)
    assert held(run(workload, Bank(budget_bytes=5 * MIB), "hot-profile")) == [[0, 1], [3]]
    assert held(run(workload, 3, "hot-profile")) == [[0, 1], [0, 3]]


@pytest.mark.parametrize(
    ("n", "first"),
    [
        (0, []),
        (1, [0]),
        (2, [1, 0]),
        (3, [2, 0, 1]),
        (8, [5, 2, 4, 0, 3, 6, 1, 7]),
        (17, [15, 13, 5, 6, 2, 12, 11, 14, 7, 16, 4, 9, 3, 0, 1, 10, 8]),
        (10_240, [1197, 2140, 4364, 8707, 4499, 7550, 6560, 818, 1342, 4858]),
        (65_535, None),
        (65_536, [14250, 25698, 61714, 40524, 5250, 47335, 43602, 57425, 61546, 11388]),  # one number, one place
        (100_000, [85697, 93440, 91627, 40524, 5250, 47335, 43602, 57425, 66262, 11388]),
    ],
)
def test_the_random_order_is_that_of_the_system(n: int, first: list[int] | None) -> None:
    """As printed by a C++ program of g++ 12 with std::shuffle and std::mt19937(0x6d6f65)."""
    order = shuffled(n, seed=0x6D6F65).tolist()
    assert sorted(order) == list(range(n))
    if first is not None:
        assert order[:10] == first[:10]
    if n < 2**16:
        assert naive.shuffled([(0, one) for one in range(n)]) == [(0, one) for one in order]


def test_a_random_fill_takes_the_room_that_is_left(tmp_path: Path) -> None:
    """The profile has 0 of layer 0; seven are left: 1, 2, 3 of layer 0 and all of layer 1."""
    path = write(tmp_path, [{"layer": 0, "experts": [[0, 2]]}])
    assert shuffled(7, seed=0x6D6F65).tolist() == [4, 0, 5, 6, 2, 3, 1]
    # 1 of layer 1 comes first, but opening a layer costs two; then 1 of layer 0, then 2 and 3 of layer 1.
    assert loads(two_layers(), 3 * MIB, path, fill="random") == [[0, 1], []]
    assert loads(two_layers(), 5 * MIB, path, fill="random") == [[0, 1], [1]]
    assert loads(two_layers(), 6 * MIB, path, fill="random") == [[0, 1], [1, 2]]
    assert loads(two_layers(), 2 * MIB, path, fill="random") == [[0], []]
    assert loads(two_layers(), 90 * MIB, path, fill="random") == [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert loads(two_layers(), 90 * MIB, path) == [[0], []]


# Two layers; the uses of their experts, the second with fewer experts but more uses.
UNEQUAL = [
    {"layer": 0, "experts": [[0, 5], [1, 7], [2, 2_000_000], [3, 1]]},
    {"layer": 1, "experts": [[3, 90], [0, 80]]},
]


def test_flat_interleaves_layers_and_balanced_prefers_the_longer_ranking(tmp_path: Path) -> None:
    path = write(tmp_path, UNEQUAL)
    # flat: 2 of layer 0 (score of the 999,999 most), 3 of layer 1 (rank 0 as well), 0 of layer 1 (80 > 7), 1 of layer 0
    assert loads(two_layers(), 5 * MIB, path) == [[2], [0, 3]]
    # balanced: 2, 1 of layer 0 (4 and 3 millions), then 3 of layer 1 and 0 of layer 0 (90 > 5)
    assert loads(two_layers(), 5 * MIB, path, weighting="balanced") == [[1, 2], [3]]
    assert loads(two_layers(), 3 * MIB, path, weighting="balanced") == [[1, 2], []]


def timed(**fields: list[float]) -> list[dict[str, Any]]:
    """Three layers with these fields, of one expert."""
    return [{"layer": n, "experts": [[0, 1]], **{name: values[n] for name, values in fields.items()}} for n in range(3)]


WAIT = "parallel_join_wait_time_per_call_us"
COLD, HOT = "parallel_cold_lane_wall_time_per_call_us", "parallel_hot_lane_wall_time_per_call_us"


@pytest.mark.parametrize(
    ("layers", "pressure"),
    [
        (timed(**{WAIT: [30, 10, 20]}), [30, 10, 20]),
        # no wait: by how much the cold lane is longer; if it is not, the cold slots of a call
        (timed(**{COLD: [50, 40, 5], HOT: [20, 30, 9], "cold_slots_per_call": [1, 1, 2.5]}), [30, 10, 2.5]),
        (timed(**{WAIT: [0, 7, 0], COLD: [9, 50, 0], HOT: [8, 1, 0], "cold_slots_per_call": [4, 4, 4]}), [1, 7, 4]),
        (timed(cold_slots_total=[60, 30, 0], calls=[20, 20, 0]), [3, 1.5, 0]),
    ],
)
def test_pressure(tmp_path: Path, layers: list[Any], pressure: list[float]) -> None:
    found = read_profile(write(tmp_path, layers))
    assert [found[n].pressure for n in range(3)] == pressure


@pytest.mark.parametrize(
    ("weighting", "measured", "weights"),
    [
        # The mean is 20, the curve 0.5: 1 + 0.5 (1.5 - 1), and below 1 not less than 1 - 0.3 x 0.5.
        ("pressure", [30, 10, 20], [1.25, 0.85, 1]),
        # Mean 40: 1 + 0.5 (2.25 - 1) = 1.625, at most 1.3; 0 is not known.
        ("pressure", [90, 10, 20, 0], [1.3, 0.85, 0.85, 1]),
        # The 10th and 90th of a hundred are 12 and 28: beyond them 0 and 1, between them the root of 1/2.
        ("smooth", [30, 10, 20], [1.15, 1, 1 + 0.15 * 0.5**0.5]),
        ("smooth", [10, 10, 0], [1, 1, 1]),
        # From 1 - 0.6 x 0.5 for the fastest to 1 + 0.8 x 0.5 for the slowest.
        ("time", [30, 10, 15], [1.4, 0.7, 0.875]),
        ("time", [30, 0, 10], [1.4, 1, 0.7]),
        ("time", [30, 30, 30], [1, 1, 1]),
    ],
)
def test_weights(weighting: str, measured: list[float], weights: list[float]) -> None:
    assert hot_profile.layer_weights(weighting, 0.5, measured) == pytest.approx(weights, rel=1e-12)


def test_the_curve_says_how_strong_weights_are() -> None:
    for weighting in ("pressure", "smooth", "time"):
        assert hot_profile.layer_weights(weighting, 0, [30, 10, 20]).tolist() == [1, 1, 1]
    assert hot_profile.layer_weights("time", 1, [30, 10, 20]) == pytest.approx([1.8, 0.4, 1.1])
    assert hot_profile.layer_weights("pressure", 1, [30, 10, 20]) == pytest.approx([1.5, 0.7, 1])


def test_each_timed_weighting_on_a_profile(tmp_path: Path) -> None:
    """Layer 0 has fewer hits but waits; layer 1 takes longer as a whole."""
    fields = {
        WAIT: (30, 10),  # pressure: mean 20, weights 1.25 and 0.85; smooth: 1.15 and 1
        "total_moe_time_per_call_us": (100, 300),  # time: weights 0.7 and 1.4
    }
    experts = {"hot_experts": [[0, 60]], "cold_experts": [[0, 20], [1, 50]]}, {"cold_experts": [[2, 92], [3, 40]]}
    layers = [{"layer": n, **{name: of[n] for name, of in fields.items()}, **experts[n]} for n in (0, 1)]
    path = write(tmp_path, layers)
    # Two experts' room is one expert, the best: 80 x 1.25 + 3 = 103 against 92 x 0.85 = 78
    assert loads(two_layers(), 2 * MIB, path, weighting="pressure") == [[0], []]
    # 80 x 1.15 + 3 = 95 against 92
    assert loads(two_layers(), 2 * MIB, path, weighting="smooth") == [[0], []]
    # 80 x 0.7 + 3 = 59 against 92 x 1.4 = 129
    assert loads(two_layers(), 2 * MIB, path, weighting="time") == [[], [2]]
    # flat knows no times: both are first in their layers, and 92 > 80.
    assert loads(two_layers(), 2 * MIB, path) == [[], [2]]
    # A curve of 0 leaves 80 + 3 against 92.
    assert loads(two_layers(), 2 * MIB, path, weighting="pressure", curve=0) == [[], [2]]
    # One more: 50 x 1.25 = 63 (62.5) of layer 0 before the first of layer 1, which would cost two.
    assert loads(two_layers(), 3 * MIB, path, weighting="pressure") == [[0, 1], []]


# --- hot-profile: the update ------------------------------------------------------------------------------------------


def test_an_update_after_each_request_but_the_last(tmp_path: Path) -> None:
    """Two experts of layer 0 may stay; the profile says 0 and 1. Three texts of two decodes."""
    calls = [(0, experts, 1) for experts in ([2], [2, 0], [2, 1], [2, 1], [3], [3])]
    trace = trace_of(calls, 4).with_(sequence=np.array([7, 7, 8, 8, 9, 9], np.int32))
    path = write(tmp_path, [{"layer": 0, "experts": [[0, 2], [1, 1]]}])
    workload = prepare(trace, geometry_of({0: MIB}, 4))
    bank = Bank(budget_bytes=3 * MIB)
    result = run(workload, bank, f"hot-profile:profile={path}:update_rate=0.5", record=True)
    # Text 7 asked twice for 2, once for 0, never for 1: 2 for 1. Text 8 twice for 2 and for 1, never for 0: 1 for 0.
    # After text 9 no request follows.
    assert hits_of(result) == [0, 1, 1, 1, 0, 0]
    assert came_after(result) == [0, 1, 0, 1, 0, 0]
    assert held(result) == [[1, 2]]
    assert some(result, "prefetch_issued", "prefetch_useful", "prefetch_wasted") == (2, 1, 1)
    assert came_after(run(workload, bank, f"hot-profile:profile={path}", record=True)) == [0] * 6


def test_where_requests_begin() -> None:
    calls = [(layer, [0], 1) for _ in range(6) for layer in (0, 1)]
    trace = trace_of(calls, 2)
    assert request_starts(trace).tolist() == []  # nothing tells
    assert request_starts(trace.with_(sequence=np.repeat([3, 3, 1, 1, 1, 2], 2).astype(np.int32))).tolist() == [4, 10]
    p, d, u = PHASE_PROMPT, PHASE_DECODE, PHASE_UNKNOWN
    phase = np.repeat([p, p, d, p, d, d], 2).astype(np.uint8)
    assert request_starts(trace.with_(phase=phase)).tolist() == [6]
    phase = np.repeat([p, d, u, p, d, p], 2).astype(np.uint8)
    assert request_starts(trace.with_(phase=phase)).tolist() == [10]
    # Without a record: a step without the last layer, and the one that ends such a run, are a prompt.
    steps = [(0,), (0, 1), (0, 1), (0, 1), (0,), (0, 1), (0, 1)]
    trace = trace_of([(layer, [0], 1) for layers in steps for layer in layers], 2)
    assert request_starts(trace).tolist() == [7]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("weighting", ["flat", "balanced", "pressure", "smooth", "time"])
def test_random_profiles_and_texts(tmp_path: Path, weighting: str, seed: int) -> None:
    """Profiles with some times missing, experts of up to 4 MiB, texts of some steps; each seed at half of all banks."""
    rng = np.random.default_rng(seed)
    layers, n_experts = 5, 7
    calls = random_calls(rng, n_experts=n_experts, layers=layers, steps=30, most_tokens=2, missing=0.1)
    numbers = sorted({layer for layer, _, _ in calls})
    trace = trace_of(calls, n_experts)
    text = np.cumsum(rng.random(int(trace.steps[-1]) + 1) < 0.2).astype(np.int32)
    trace = trace.with_(sequence=text[trace.steps])
    size = {layer: int(rng.integers(1, 4 * MIB)) for layer in numbers}
    workload = prepare(trace, geometry_of(size, n_experts))
    profile = []
    for layer in numbers:
        entry: dict[str, Any] = {"layer": layer}
        for name in ("hot_experts", "cold_experts") if rng.random() < 0.7 else ("experts",):
            entry[name] = [[expert, int(rng.integers(1, 60))] for expert in range(n_experts) if rng.random() < 0.7]
        for name in (WAIT, COLD, HOT, "cold_slots_per_call", "total_moe_time_per_call_us"):
            if rng.random() < 0.6:
                entry[name] = float(rng.random() * 100)
        profile.append(entry)
    profile[0] |= {WAIT: 50.0, "total_moe_time_per_call_us": 50.0}
    path = write(tmp_path, profile)
    for curve, rate, fill in ((0.5, 0.0, "random"), (1.0, 0.15, "none"), (0.3, 1.0, "none")):
        spec = f"hot-profile:profile={path}:weighting={weighting}:curve={curve}:update_rate={rate}:fill={fill}"
        for scope in ("layer", "global"):
            for slots in range(1 + seed % 2, n_experts + 1, 2):
                assert_twins(workload, Bank(slots=slots), spec, "atomic", scope=scope)
            for budget in (0.5, 3, 9.9, 20, 40, 70)[seed % 2 :: 2]:
                assert_twins(workload, Bank(budget_bytes=int(budget * MIB)), spec, "atomic", scope=scope)


# --- the profile's JSON -----------------------------------------------------------------------------------------------


def test_hot_and_cold_add_up_and_come_before_raw_counts(tmp_path: Path) -> None:
    layers = [
        {"layer": 4, "experts": [[0, 99]], "hot_experts": [[1, 10], [2, 1]], "cold_experts": [[1, 5], [3, 0]]},
        {"layer": 2, "experts": [[5, 3], [5, 4]], "hot_experts": [], "cold_experts": [[1, 0]]},
        {"layer": 3, "experts": []},
    ]
    found = read_profile(write(tmp_path, layers))
    assert list(found) == [2, 4]
    assert found[4].hits == {1: 15, 2: 1}
    assert found[4].hot_hits == {1: 10, 2: 1}
    assert found[2].hits == {5: 7}
    assert found[2].hot_hits == {}


GOOD = {"layer": 0, "experts": [[0, 1]]}


@pytest.mark.parametrize(
    ("layers", "says"),
    [
        ({}, "layers is {}; expected a list of layers"),
        ([3], "layers[0] is 3; expected an object"),
        ([GOOD, {"experts": []}], "layers[1]: layer is nothing; expected a layer number"),
        ([{"layer": True}], "layers[0]: layer is True; expected a layer number"),
        ([{"layer": -1}], "layers[0]: layer is -1; expected a layer number"),
        ([GOOD, GOOD], "layers[1]: layer 0 a second time; expected each layer once"),
        ([{"layer": 0, "experts": 5}], "layers[0]: experts is 5; expected a list of [expert, count]"),
        ([{"layer": 0, "experts": [[1]]}], "layers[0]: experts is [1]; expected [expert, count] in whole numbers"),
        ([{"layer": 0, "experts": [[1, 2.5]]}], "experts is [1, 2.5]; expected [expert, count] in whole numbers"),
        ([{"layer": 0, "hot_experts": [[-1, 2]]}], "hot_experts is [-1, 2]; expected [expert, count]"),
        ([{"layer": 0, "cold_experts": [[1, -2]]}], "cold_experts is [1, -2]; expected [expert, count]"),
        ([GOOD | {WAIT: "long"}], f"layers[0]: {WAIT} is 'long'; expected a number, 0 or more"),
        ([GOOD | {WAIT: -2}], f"layers[0]: {WAIT} is -2; expected a number, 0 or more"),
        ([], "counts no use of any expert; expected a profile as --moe-layer-perf-out writes it after a request"),
        ([{"layer": 0, "experts": [[0, 0]]}], "counts no use of any expert"),
    ],
)
def test_not_a_profile(tmp_path: Path, layers: Any, says: str) -> None:
    path = write(tmp_path, layers)
    with refused(Malformed, f"{path}: {says}" if says.startswith("layers") else says):
        parse_policy(f"hot-profile:profile={path}")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty; expected a profile as --moe-layer-perf-out writes it"),
        ("{", "not JSON ("),
        ('{"layers": [], "layers": []}', "not JSON (key 'layers' occurs twice)"),
        ("[1]", "the document is [1]; expected an object with `schema` and `layers`"),
        (
            '{"layers": []}',
            "schema is nothing; expected llama.cpp.moe_layer_opt_perf.v1 or llama.cpp.moe_layer_perf.v1",
        ),
        ('{"schema": "v2"}', "schema is 'v2'; expected llama.cpp.moe_layer_opt_perf.v1"),
    ],
)
def test_not_even_the_schema(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(Malformed, match=re.escape(f"{path}: {says}")):
        parse_policy(f"hot-profile:profile={path}")


def test_a_profile_without_times_has_no_timed_weighting(tmp_path: Path) -> None:
    path = write(tmp_path, [GOOD])
    says = f"policy hot-profile: weighting=time needs the times of a profile, and {path} has none"
    with pytest.raises(Incomplete, match=re.escape(says)):
        parse_policy(f"hot-profile:profile={path}:weighting=time")
    path = write(tmp_path, [GOOD | {WAIT: 5}])
    parse_policy(f"hot-profile:profile={path}:weighting=smooth")
    parse_policy(f"hot-profile:profile={path}:weighting=time")


def test_a_layer_without_its_time_has_its_wait_instead(tmp_path: Path) -> None:
    """Times 300 and 100, and a wait of 500, which is the most: weights 0.7 + 0.7 x (0.5, 0, 1)."""
    times: list[dict[str, float]] = [
        {"total_moe_time_per_call_us": 300},
        {"total_moe_time_per_call_us": 100},
        {WAIT: 500},
    ]
    path = write(tmp_path, [{"layer": n, "experts": [[0, 100]], **time} for n, time in enumerate(times)])
    calls = [(layer, [0], 1) for layer in range(3)]
    workload = prepare(trace_of(calls, 4), geometry_of(dict.fromkeys(range(3), MIB), 4))
    assert loads(workload, 2 * MIB, path, weighting="time") == [[], [], [0]]
    assert loads(workload, 4 * MIB, path, weighting="time") == [[0], [], [0]]


def test_a_profile_of_another_model(tmp_path: Path) -> None:
    path = write(tmp_path, [GOOD, GOOD | {"layer": 7}])
    says = f"{path}: has layer 7, which written by hand never routes; give a profile of the model that was traced"
    with pytest.raises(Conflict, match=re.escape(says)):
        run(two_layers(), 2, f"hot-profile:profile={path}")
    path = write(tmp_path, [{"layer": 1, "experts": [[3, 1], [4, 1]]}])
    says = f"{path}: layer 1 has expert 4, but written by hand has 4 experts there"
    with pytest.raises(Conflict, match=re.escape(says)):
        run(two_layers(), 2, f"hot-profile:profile={path}")


@pytest.mark.parametrize("contract", ["runtime", "protected", "sequential"])
@pytest.mark.parametrize("policy", ["hot-window", "hot-profile"])
def test_only_atomic(policy: str, contract: str) -> None:
    with pytest.raises(Unsupported, match=f"{policy} is undefined under the contract {contract}"):
        run(two_layers(), 2, policy, contract)
