from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from flashmoe_sim.io.notes import GAP, SKIPPED, TORN, Note
from flashmoe_sim.trace.counting import count_overlap, fresh
from flashmoe_sim.trace.lint import Finding, lint
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.nulls import uniform_null
from flashmoe_sim.trace.phases import find_phases
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, PHASE_UNKNOWN, RoutingTrace
from flashmoe_sim.trace.statistics import inspect
from tests.trace import naive
from tests.trace.strategies import random_traces, trace_of


def found(trace: RoutingTrace, code: str, **options: Any) -> Finding | None:
    return next((finding for finding in lint(trace, **options) if finding.code == code), None)


def steps_of(*steps: tuple[int, ...]) -> list[tuple[int, list[int]]]:
    return [(layer, [layer, layer + 1]) for step in steps for layer in step]


def text_of(seed: int, tokens: int) -> list[tuple[int, list[int]]]:
    """Calls of one token in three layers, each with 4 of 64 experts, as a text routes them."""
    draw = np.random.default_rng(seed)
    return [(layer, draw.choice(64, 4, replace=False).tolist()) for _ in range(tokens) for layer in range(3)]


CLEAN = trace_of(*steps_of((0, 1), (0, 1), (0, 1)))
BEGIN, MIDDLE = text_of(1, 10), text_of(2, 200)
CHANGED = [*BEGIN[:-1], (2, [*BEGIN[-1][1][1:], int(BEGIN[-1][1][0] == 0)])]
TEXT, LONG = text_of(5, 40), text_of(3, 200)
PROMPT = [(layer, [expert for at in range(layer, 600, 3) for expert in LONG[at][1]]) for layer in range(3)]
TWICE = trace_of(*TEXT, *TEXT)
CUT_SHORT = trace_of(*steps_of((0, 1, 2), (0, 1, 2), (0,)))
LACKING = trace_of(*steps_of((0, 1, 2), (0, 2), (0, 1, 2)))
BEYOND = {"severity": "error", "count": 3, "call": 1, "step": 0, "layer": 1}
ALIASED = trace_of((0, [1, 2]), (0, [3, 4]), slots=[[0, 1], [2, 2]])
AFTER_PROMPT = trace_of(*PROMPT, *LONG[:30], n_tokens=[200] * 3 + [1] * 30)
IDLE = trace_of((0, [1, 2]), (1, []), n_tokens=[1, 0])


@pytest.mark.parametrize(
    ("trace", "options", "code", "finding"),
    [
        (CLEAN, {}, "experts-inferred", {"severity": "info"}),
        (CLEAN, {"n_experts": 8}, "experts-inferred", None),
        (CLEAN, {}, "smallest-bank", {"severity": "info", "count": 2}),
        (CLEAN, {}, "no-slots", {"severity": "info"}),
        (CLEAN, {}, "no-phases", {"severity": "info"}),
        *((CLEAN, {"n_experts": known}, "out-of-range", BEYOND) for known in (2, {0: 8, 1: 2})),
        (CLEAN.with_(n_experts={0: 2, 1: 2}, n_experts_known=True), {}, "out-of-range", BEYOND),
        (CLEAN, {"n_experts": {0: 8}}, "unknown-layer", {"severity": "error", "count": 3, "layer": 1}),
        (CLEAN, {"n_experts": dict.fromkeys(range(4), 8)}, "silent-layer", {"severity": "warning", "count": 2}),
        # a text that is there twice, with its last token and without; a prompt is compared token by token
        (trace_of(*BEGIN, *MIDDLE, *BEGIN), {}, "repeated-text", {"severity": "warning", "count": 10}),
        (trace_of(*BEGIN, *MIDDLE, *CHANGED), {}, "repeated-text", {"severity": "warning", "count": 9}),
        (trace_of(*BEGIN, *MIDDLE), {}, "repeated-text", None),
        (AFTER_PROMPT, {}, "repeated-text", {"severity": "warning", "count": 10}),
        # not if tokens are not known: no experts at the end, a broken number of them, two calls of a layer in a step
        (TWICE, {}, "repeated-text", {"severity": "warning"}),
        (trace_of(*TEXT, *TEXT, (0, []), (1, []), (2, [])), {}, "repeated-text", None),
        (trace_of(*TEXT, *TEXT, (0, [1, 2, 3]), n_tokens=[1] * 240 + [2]), {}, "repeated-text", None),
        (TWICE.with_(step=TWICE.steps // 2), {}, "repeated-text", None),
        (trace_of(*text_of(4, 300)), {}, "random-routing", {"severity": "warning"}),
        # two tokens of two: expert 1 comes in both, which is fine; 5 comes twice in the second of call 1
        (
            trace_of((0, [1, 2, 1, 3]), (1, [4, 6, 5, 5]), n_tokens=[2, 2]),
            {},
            "duplicate-expert",
            {"count": 1, "call": 1},
        ),
        (trace_of((0, [1, 2, 3]), n_tokens=[2]), {}, "wrong-length", {"severity": "error"}),
        (trace_of((0, [])), {}, "empty-call", {}),
        (trace_of((0, [1, 2])).with_(n_tokens=np.zeros(1, np.int32)), {}, "unknown-tokens", {}),
        (IDLE, {}, "no-tokens", {"severity": "info", "count": 1, "call": 1, "layer": 1}),
        (IDLE, {}, "unknown-tokens", None),
        (trace_of((0, [1, 2]), (0, [1, 2]), (1, [3])), {}, "top-k-varies", {"count": 1, "layer": 1}),
        (ALIASED, {}, "aliased-slots", {"severity": "warning", "count": 1, "call": 1}),
        (trace_of((0, [1, 2]), slots=[[0, 1]]), {}, "aliased-slots", None),
        (LACKING, {}, "missing-layer", {"severity": "warning", "count": 1, "step": 1}),
        (LACKING, {}, "fewer-calls", {"layer": 1}),
        (CUT_SHORT, {}, "missing-layer", None),
        (CUT_SHORT, {}, "incomplete-last-step", {}),
    ],
)
def test_findings(trace: RoutingTrace, options: dict[str, Any], code: str, finding: dict[str, Any] | None) -> None:
    """What is said of its severity, its number, and its first call, step and layer; none if it is not found."""
    one = found(trace, code, **options)
    assert (one is None) == (finding is None)
    assert {name: getattr(one, name) for name in finding or {}} == (finding or {})


def test_a_recording_does_not_look_like_chance() -> None:
    recorded = load_trace("gpt-oss-120b")
    assert found(recorded, "random-routing") is None
    assert found(uniform_null(recorded), "random-routing")


def test_messages_name_what_they_count() -> None:
    def message(trace: RoutingTrace, code: str, **options: Any) -> str:
        return next(finding.message for finding in lint(trace, **options) if finding.code == code)

    assert "asks for expert 2 of a layer that has 0..1" in message(CLEAN, "out-of-range", n_experts=2)
    assert "2-3" in message(CLEAN, "silent-layer", n_experts=dict.fromkeys(range(4), 8))
    assert "lacks 1" in message(LACKING, "missing-layer")


def test_a_clean_trace_has_only_information_and_errors_come_first() -> None:
    assert {finding.severity for finding in lint(CLEAN)} == {"info"}
    assert [finding.code for finding in lint(trace_of())] == ["no-calls"]
    skipped = trace_of((0, [1, 1]), (1, [5]), notes=(Note(SKIPPED, "skipped 1 line"),))
    order = [finding.severity for finding in lint(skipped, n_experts=4)]
    assert order == sorted(order, key=["error", "warning", "info"].index)
    assert order[0] == "error"


@given(random_traces())
@settings(max_examples=40)
def test_repeats_equal_the_plain_twin(trace: RoutingTrace) -> None:
    repeats = np.zeros(trace.calls, dtype=np.int32)
    count_overlap(trace.offset, trace.n_tokens, trace.expert, fresh(64), np.zeros(2, np.int64), repeats)
    assert repeats.tolist() == naive.repeats(trace)


def test_what_the_reader_lost_is_a_warning() -> None:
    lost = [Note(SKIPPED, "skipped 3 malformed lines"), Note(TORN, "the last line is torn"), Note(GAP, "seq has gaps")]
    notes = (*lost, "recorded from a-torn-one.gguf")
    findings = {finding.code: finding.severity for finding in lint(CLEAN.with_(notes=notes))}
    assert findings["skipped-lines"] == findings["torn-last-line"] == findings["seq-gap"] == "warning"
    assert findings["reader"] == "info"


# What a runtime does at one token per decode: two warm-up steps, a prompt of three tokens of which only the last
# reaches the last layer, and two decoded tokens.
NARROW = trace_of(*steps_of((0, 1), (0, 1, 2), (0, 1), (0, 1), (0, 1, 2), (0, 1, 2), (0, 1, 2)))
# The same with up to two tokens per decode: one warm-up step of two tokens.
WIDE = trace_of(
    *steps_of((0, 1, 2), (0, 1), (0, 1, 2), (0, 1, 2), (0, 1, 2)), n_tokens=[2, 2, 1, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1]
)


@pytest.mark.parametrize(
    ("trace", "prompt", "warm_up"), [(NARROW, [1, 1, 1, 1, 1, 2, 2], 2), (WIDE, [1, 1, 1, 2, 2], 1)]
)
def test_where_the_prompt_ends(trace: RoutingTrace, prompt: list[int], warm_up: int) -> None:
    phases = find_phases(trace)
    assert phases
    assert phases.phase.tolist() == prompt
    assert (phases.recorded, phases.warm_up_steps) == (False, warm_up)
    ends = found(trace, "prompt-ends")
    assert ends
    assert ends.step == prompt.index(PHASE_DECODE) - 1
    assert found(trace, "missing-layer") is None
    assert found(trace, "warm-up")


def test_a_call_without_tokens_is_like_none() -> None:
    """In the prompt of other architectures the last layer has calls without tokens where NARROW has none."""
    calls, tokens = [], []
    for number in range(7):
        for layer in (0, 1, 2):
            idle = layer == 2 and number in (0, 2, 3)
            calls.append((layer, [] if idle else [layer, layer + 1]))
            tokens.append(int(not idle))
    trace = trace_of(*calls, n_tokens=tokens)
    phases, without = find_phases(trace), find_phases(NARROW)
    assert phases
    assert without
    assert phases.phase.tolist() == without.phase.tolist()
    assert phases.warm_up_steps == without.warm_up_steps == 2
    assert not {"missing-layer", "fewer-calls"} & {finding.code for finding in lint(trace)}
    assert inspect(trace).prompt_share == inspect(NARROW).prompt_share == 5 / 7
    assert inspect(trace).overlap == inspect(NARROW).overlap


def test_phases_that_nothing_tells() -> None:
    assert find_phases(CLEAN) is None
    assert find_phases(trace_of()) is None


def test_a_lone_short_step_at_the_end_has_no_phase() -> None:
    phases = find_phases(trace_of(*steps_of((0, 1), (0, 1), (0,))))
    assert phases
    assert phases.phase.tolist() == [PHASE_DECODE, PHASE_DECODE, PHASE_UNKNOWN]


def test_recorded_phases_are_believed() -> None:
    phases = find_phases(CLEAN.with_(phase=np.array([1, 1, 2, 2, 2, 2], dtype=np.uint8)))
    assert phases
    assert phases.phase.tolist() == [PHASE_PROMPT, PHASE_DECODE, PHASE_DECODE]
    assert phases.recorded
    assert phases.prompt_ends == (0,)
