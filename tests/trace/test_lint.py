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


def found(trace: RoutingTrace, code: str, **options: object) -> Finding | None:
    return next((finding for finding in lint(trace, **options) if finding.code == code), None)  # type: ignore[arg-type]


def steps_of(*steps: tuple[int, ...]) -> list[tuple[int, list[int]]]:
    return [(layer, [layer, layer + 1]) for step in steps for layer in step]


CLEAN = trace_of(*steps_of((0, 1), (0, 1), (0, 1)))


def test_a_clean_trace_has_only_information() -> None:
    assert {finding.severity for finding in lint(CLEAN)} == {"info"}
    assert found(CLEAN, "experts-inferred")
    assert found(CLEAN, "experts-inferred", n_experts=8) is None
    smallest = found(CLEAN, "smallest-bank")
    assert smallest
    assert smallest.count == 2


def test_no_calls() -> None:
    assert [finding.code for finding in lint(trace_of())] == ["no-calls"]


def test_errors_come_first() -> None:
    order = [
        finding.severity
        for finding in lint(trace_of((0, [1, 1]), (1, [5]), notes=(Note(SKIPPED, "skipped 1 line"),)), n_experts=4)
    ]
    assert order == sorted(order, key=["error", "warning", "info"].index)
    assert order[0] == "error"


@pytest.mark.parametrize("n_experts", [2, {0: 8, 1: 2}])
def test_ids_beyond_the_model(n_experts: object) -> None:
    finding = found(CLEAN, "out-of-range", n_experts=n_experts)
    assert finding
    assert (finding.severity, finding.count, finding.call, finding.step, finding.layer) == ("error", 3, 1, 0, 1)
    assert "asks for expert 2 of a layer that has 0..1" in finding.message


def test_ids_beyond_what_the_trace_itself_says() -> None:
    assert found(CLEAN.with_(n_experts={0: 2, 1: 2}, n_experts_known=True), "out-of-range")


def test_layers_unlike_the_models() -> None:
    unknown = found(CLEAN, "unknown-layer", n_experts={0: 8})
    assert unknown
    assert (unknown.severity, unknown.count, unknown.layer) == ("error", 3, 1)
    silent = found(CLEAN, "silent-layer", n_experts={0: 8, 1: 8, 2: 8, 3: 8})
    assert silent
    assert (silent.severity, silent.count) == ("warning", 2)
    assert "2-3" in silent.message


def text_of(seed: int, tokens: int) -> list[tuple[int, list[int]]]:
    """Calls of one token in three layers, each with 4 of 64 experts, as a text routes them."""
    draw = np.random.default_rng(seed)
    return [(layer, draw.choice(64, 4, replace=False).tolist()) for _ in range(tokens) for layer in range(3)]


def test_text_that_is_there_twice() -> None:
    begin, middle = text_of(1, 10), text_of(2, 200)
    finding = found(trace_of(*begin, *middle, *begin), "repeated-text")
    assert finding
    assert (finding.severity, finding.count) == ("warning", 10)
    changed = [*begin[:-1], (2, [*begin[-1][1][1:], int(begin[-1][1][0] == 0)])]
    nine = found(trace_of(*begin, *middle, *changed), "repeated-text")
    assert nine
    assert nine.count == 9
    assert found(trace_of(*begin, *middle), "repeated-text") is None


def test_a_prompt_is_compared_token_by_token() -> None:
    text = text_of(3, 200)
    prompt = [(layer, [expert for at in range(layer, len(text), 3) for expert in text[at][1]]) for layer in range(3)]
    finding = found(trace_of(*prompt, *text[:30], n_tokens=[200] * 3 + [1] * 30), "repeated-text")
    assert finding
    assert finding.count == 10


def test_text_is_not_compared_if_tokens_are_not_known() -> None:
    """Calls without experts at the end, of a broken number of experts, and two calls of a layer in one step."""
    text = text_of(5, 40)
    assert found(trace_of(*text, *text, (0, []), (1, []), (2, [])), "repeated-text") is None
    assert found(trace_of(*text, *text, (0, [1, 2, 3]), n_tokens=[1] * 240 + [2]), "repeated-text") is None
    twice = trace_of(*text, *text)
    assert found(twice, "repeated-text")
    assert found(twice.with_(step=twice.steps // 2), "repeated-text") is None


def test_routing_that_looks_like_chance() -> None:
    assert found(trace_of(*text_of(4, 300)), "random-routing")
    recorded = load_trace("gpt-oss-120b")
    assert found(recorded, "random-routing") is None
    assert found(uniform_null(recorded), "random-routing")


def test_duplicates_within_a_token() -> None:
    # Two tokens of two: expert 1 comes in both, which is fine; 5 comes twice in the second of call 1.
    trace = trace_of((0, [1, 2, 1, 3]), (1, [4, 6, 5, 5]), n_tokens=[2, 2])
    finding = found(trace, "duplicate-expert")
    assert finding
    assert (finding.count, finding.call) == (1, 1)


@given(random_traces())
@settings(max_examples=40)
def test_repeats_equal_the_plain_twin(trace: RoutingTrace) -> None:
    repeats = np.zeros(trace.calls, dtype=np.int32)
    count_overlap(trace.offset, trace.n_tokens, trace.expert, fresh(64), np.zeros(2, np.int64), repeats)
    assert repeats.tolist() == naive.repeats(trace)


def test_lengths() -> None:
    wrong = found(trace_of((0, [1, 2, 3]), n_tokens=[2]), "wrong-length")
    assert wrong
    assert wrong.severity == "error"
    assert found(trace_of((0, [])), "empty-call")
    assert found(trace_of((0, [1, 2]), n_tokens=[0]).with_(n_tokens=np.zeros(1, dtype=np.int32)), "unknown-tokens")
    idle = found(trace_of((0, [1, 2]), (1, []), n_tokens=[1, 0]), "no-tokens")
    assert idle
    assert (idle.severity, idle.count, idle.call, idle.layer) == ("info", 1, 1, 1)
    assert not found(trace_of((0, [1, 2]), (1, []), n_tokens=[1, 0]), "unknown-tokens")
    varies = found(trace_of((0, [1, 2]), (0, [1, 2]), (1, [3])), "top-k-varies")
    assert varies
    assert (varies.count, varies.layer) == (1, 1)


def test_what_the_reader_lost_is_a_warning() -> None:
    notes = (
        Note(SKIPPED, "skipped 3 malformed lines"),
        Note(TORN, "the last line (9) is torn and was dropped"),
        Note(GAP, "seq has gaps: line 4"),
        "recorded from a-torn-one.gguf",
    )
    findings = {finding.code: finding.severity for finding in lint(CLEAN.with_(notes=notes))}
    assert findings["skipped-lines"] == findings["torn-last-line"] == findings["seq-gap"] == "warning"
    assert findings["reader"] == "info"


def test_slots() -> None:
    assert found(CLEAN, "no-slots")
    aliased = found(trace_of((0, [1, 2]), (0, [3, 4]), slots=[[0, 1], [2, 2]]), "aliased-slots")
    assert aliased
    assert (aliased.severity, aliased.count, aliased.call) == ("warning", 1, 1)
    assert found(trace_of((0, [1, 2]), slots=[[0, 1]]), "aliased-slots") is None


def test_missing_layers() -> None:
    finding = found(trace_of(*steps_of((0, 1, 2), (0, 2), (0, 1, 2))), "missing-layer")
    assert finding
    assert (finding.severity, finding.count, finding.step) == ("warning", 1, 1)
    assert "lacks 1" in finding.message
    fewer = found(trace_of(*steps_of((0, 1, 2), (0, 2), (0, 1, 2))), "fewer-calls")
    assert fewer
    assert fewer.layer == 1
    cut_short = trace_of(*steps_of((0, 1, 2), (0, 1, 2), (0,)))
    assert found(cut_short, "missing-layer") is None
    assert found(cut_short, "incomplete-last-step")


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
    assert found(CLEAN, "no-phases")


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
