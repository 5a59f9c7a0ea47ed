"""What a user should know about a trace before trusting numbers made from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.notes import MISREAD, code_of
from flashmoe_sim.trace.check import ASK, LEAST_TOKENS, always_used, ask_shared, begins_at_1
from flashmoe_sim.trace.counting import count_overlap, fresh
from flashmoe_sim.trace.cut import shown_layers
from flashmoe_sim.trace.lines import counted
from flashmoe_sim.trace.phases import Phases, find_phases
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_UNKNOWN, RoutingTrace, offsets
from flashmoe_sim.trace.statistics import aliased_by_call, union_by_call

SEVERITIES = ("error", "warning", "info")
REPEATED = 0.02  # share of repeated tokens from which they are reported
MOST_PAIRS = 100  # consecutive tokens of a layer that are compared
LEAST_EXPECTED, CHANCE_SD = 50.0, 3.0


@dataclass(frozen=True)
class Finding:
    """One finding. count: how often; call, step, layer: where it first occurs, or None for the whole trace.

    message: what was found. advice: what to do about it.
    """

    severity: str
    code: str
    count: int
    message: str
    advice: str = ""
    call: int | None = None
    step: int | None = None
    layer: int | None = None


def lint(
    trace: RoutingTrace,
    *,
    n_experts: Mapping[int, int] | int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Finding, ...]:
    """All findings in a trace: errors first, then warnings, then information.

    n_experts: the experts of each layer, or of all layers, of the model that the trace should fit; by default the
    trace's own, if it records them.
    progress: called after each check with how many are done, and of how many.
    """
    if not trace.calls:
        return (Finding("error", "no-calls", 1, "the trace has no routed calls", "record it again"),)
    phases = find_phases(trace)
    checks = (
        _ids(trace, n_experts),
        _first_id(trace),
        _shared(trace),
        _shapes(trace),
        _reader(trace),
        _slots(trace),
        _missing_layers(trace, phases),
        _unequal_layers(trace),
        _prompt(phases),
        _repeated(trace),
        _random(trace),
        _smallest_bank(trace),
    )
    findings: list[Finding] = []
    for number, check in enumerate(checks):
        findings += check
        if progress:
            progress(number + 1, len(checks))
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def _at(
    trace: RoutingTrace, severity: str, code: str, calls: NDArray[np.bool_], count: int, message: str, advice: str
) -> Finding:
    """A finding at the first of the calls (bool [calls])."""
    call = int(np.flatnonzero(calls)[0])
    return Finding(severity, code, count, message, advice, call, int(trace.steps[call]), int(trace.layer[call]))


def _calls(
    trace: RoutingTrace, severity: str, code: str, calls: NDArray[np.bool_], what: str, advice: str = ""
) -> Iterator[Finding]:
    """A finding at the first of the calls (bool [calls]) if there are any. what: the words behind their number."""
    if count := int(calls.sum()):
        yield _at(trace, severity, code, calls, count, f"{counted(count, 'call')} {what}", advice)


def _ids(trace: RoutingTrace, n_experts: Mapping[int, int] | int | None) -> Iterator[Finding]:
    given = n_experts if n_experts is not None else (trace.n_experts if trace.n_experts_known else None)
    if given is None:
        most = max(trace.n_experts.values(), default=0)
        yield Finding(
            "info",
            "experts-inferred",
            1,
            f"the trace does not say how many experts a layer has; {most} holds every id seen",
            "give --model to check the ids against a model",
        )
        return
    by_layer = given if isinstance(given, Mapping) else dict.fromkeys(trace.layers, given)
    experts = np.array([by_layer.get(layer, 0) for layer in trace.layers], dtype=np.int64)
    of_call = experts[np.searchsorted(trace.layers, trace.layer)]
    if (unknown := of_call == 0).any():
        message = f"layers {shown_layers([one for one in trace.layers if not by_layer.get(one)])} are not in the model"
        yield _at(trace, "error", "unknown-layer", unknown, int(unknown.sum()), message, "check that --model is right")
    outside = trace.expert >= np.repeat(np.where(of_call == 0, 1 << 15, of_call), np.diff(trace.offset))
    if outside.any():
        at = int(np.flatnonzero(outside)[0])
        calls = np.diff(offsets(outside)[trace.offset]) > 0
        limit = int(of_call[np.flatnonzero(calls)[0]])
        message = (
            f"{counted(int(outside.sum()), 'reference')} beyond the model: the first asks for expert "
            f"{trace.expert[at]} of a layer that has 0..{limit - 1}"
        )
        yield _at(trace, "error", "out-of-range", calls, int(outside.sum()), message, "check that --model is right")
    if silent := sorted(set(by_layer) - set(trace.layers)):
        yield Finding(
            "warning",
            "silent-layer",
            len(silent),
            f"the model's layers {shown_layers(silent)} have no calls",
            "the trace covers only part of the model, or --model is another one",
        )


def _first_id(trace: RoutingTrace) -> Iterator[Finding]:
    if begins_at_1(trace):
        message = f"no layer asks for expert 0, but they ask for 1 to {trace.expert.max()}"
        yield Finding("warning", "no-expert-0", 1, message, ASK)


def _shared(trace: RoutingTrace) -> Iterator[Finding]:
    if (expert := always_used(trace)) is not None:
        message, _, advice = ask_shared(expert).partition(": ")
        yield Finding("warning", "shared-expert", 1, message, advice)


def _shapes(trace: RoutingTrace) -> Iterator[Finding]:
    length = np.diff(trace.offset)
    known, empty = trace.n_tokens > 0, length == 0
    uneven = known & (length % np.maximum(trace.n_tokens, 1) != 0)
    what = "whose references are not a whole number per token"
    yield from _calls(trace, "error", "wrong-length", uneven, what, "record the trace again")
    yield from _calls(trace, "error", "empty-call", known & empty, "without experts", "record the trace again")
    what = "without tokens: they count as calls and ask for nothing"
    advice = "as it should be in a prompt: the last layer computes only the output rows"
    yield from _calls(trace, "info", "no-tokens", ~known & empty, what, advice)
    what = "of unknown tokens: counted as requests, but not as tokens"
    yield from _calls(trace, "info", "unknown-tokens", ~known & ~empty, what)
    repeats = np.zeros(trace.calls, dtype=np.int32)
    last_token = fresh(int(trace.expert.max(initial=0)) + 1)
    count_overlap(trace.offset, trace.n_tokens, trace.expert, last_token, np.zeros(2, np.int64), repeats)
    if repeats.any():
        message = (
            f"{counted(int(repeats.sum()), 'reference')} to an expert that the same token already names, "
            "which a router never does"
        )
        yield _at(
            trace, "error", "duplicate-expert", repeats > 0, int(repeats.sum()), message, "record the trace again"
        )
    width = np.where(known, length // np.maximum(trace.n_tokens, 1), 0)
    widths = np.unique(width[known])
    if len(widths) > 1:
        common = int(np.bincount(width[known]).argmax())
        other = known & (width != common)
        seen = ", ".join(map(str, widths[:8]))
        what = f"without the usual {common} experts per token (seen: {seen})"
        advice = "right if the layers differ; otherwise record it again"
        yield from _calls(trace, "warning", "top-k-varies", other, what, advice)


def _reader(trace: RoutingTrace) -> Iterator[Finding]:
    for note in trace.notes:
        code = code_of(note)
        if code is None:
            yield Finding("info", "reader", 1, note)
        else:
            wrong = "record it again with a corrected recorder, or cut its prompts off"
            advice = wrong if code == MISREAD else "the missing calls are absent from all counts"
            yield Finding("warning", code, 1, note, advice)


def _slots(trace: RoutingTrace) -> Iterator[Finding]:
    if trace.slot is None:
        message = "no slots recorded: a replay cannot be checked against the run, and aliasing cannot be seen"
        yield Finding("info", "no-slots", 1, message)
        return
    yield Finding("info", "slots", 1, f"slots recorded, up to number {trace.slot.max(initial=0)}")
    aliased = aliased_by_call(trace)
    if aliased.any():
        message = (
            f"{counted(int(aliased.sum()), 'reference')} in a slot that another expert of the same call has: one of "
            "the two was computed with the other's weights, and so was all that was routed afterwards"
        )
        advice = "for policy studies record with a bank that holds every expert"
        yield _at(trace, "warning", "aliased-slots", aliased > 0, int(aliased.sum()), message, advice)


def _missing_layers(trace: RoutingTrace, phases: Phases | None) -> Iterator[Finding]:
    number, step = np.unique(trace.steps, return_inverse=True)
    present = np.zeros((len(number), len(trace.layers)), dtype=np.bool_)
    present[step, np.searchsorted(trace.layers, trace.layer)] = True
    absent = ~present
    if phases is not None:
        absent[phases.phase != PHASE_DECODE, -1] = False
    incomplete: NDArray[np.bool_] = np.any(absent, axis=1)
    if incomplete[-1] and len(number) > 1:
        message = f"the last step lacks layers {_layers_of(trace, absent[-1])}: the trace ends within it"
        yield Finding("info", "incomplete-last-step", 1, message, "", None, int(number[-1]))
        incomplete[-1] = False
    if incomplete.any():
        calls = incomplete[step]
        first = int(np.flatnonzero(incomplete)[0])
        message = (
            f"{counted(int(incomplete.sum()), 'step')} without all layers; "
            f"the first lacks {_layers_of(trace, absent[first])}"
        )
        advice = "calls were lost, or these layers do not route; hit rates of such steps are not comparable"
        yield _at(trace, "warning", "missing-layer", calls, int(incomplete.sum()), message, advice)


def _layers_of(trace: RoutingTrace, absent: NDArray[np.bool_]) -> str:
    return shown_layers(np.array(trace.layers)[absent].tolist())


def _unequal_layers(trace: RoutingTrace) -> Iterator[Finding]:
    calls = {view.layer: len(view.call) for view in trace.by_layer}
    most = max(calls.values())
    fewer = [layer for layer, count in calls.items() if count < most]
    if not fewer:
        return
    only_last = fewer == [trace.layers[-1]]
    message = f"fewer calls than the others in layers {shown_layers(fewer)} ({calls[fewer[0]]:,} of {most:,})"
    advice = "as it should be: in a prompt the last layer computes only the output rows" if only_last else ""
    yield Finding("info", "fewer-calls", len(fewer), message, advice, layer=fewer[0])


def _prompt(phases: Phases | None) -> Iterator[Finding]:
    if phases is None:
        yield Finding("info", "no-phases", 1, "phases are not recorded; every step counts as decode")
        return
    if phases.warm_up_steps:
        first = "first step looks" if phases.warm_up_steps == 1 else f"first {phases.warm_up_steps} steps look"
        message = f"the {first} like the decode that a runtime makes while loading"
        advice = f"`sim trace cut --steps {phases.warm_up_steps}:` leaves that out"
        yield Finding("info", "warm-up", phases.warm_up_steps, message, advice, 0, int(phases.number[0]))
    how = "as recorded" if phases.recorded else "inferred from the last layer and the tokens per call"
    if ends := phases.prompt_ends:
        more = f", and {counted(len(ends) - 1, 'more prompt')} after it" if len(ends) > 1 else ""
        message = f"the prompt ends at step {ends[0]}{more} ({how})"
        yield Finding("info", "prompt-ends", len(ends), message, "", step=ends[0])
    else:
        only = "decode" if (phases.phase == PHASE_DECODE).any() else "prompt"
        unknown = int((phases.phase == PHASE_UNKNOWN).sum())
        rest = f", or unknown ({unknown:,} of {len(phases.phase):,})" if unknown else ""
        yield Finding("info", "one-phase", 1, f"every step is {only}{rest} ({how})")


def _repeated(trace: RoutingTrace) -> Iterator[Finding]:
    """Tokens that route in all layers like an earlier one of the trace: only the same text before them does that."""
    if trace.tokens < LEAST_TOKENS:
        return
    step, numbers = np.unique(trace.steps, return_inverse=True)
    most = np.zeros(len(step), np.int64)
    np.maximum.at(most, numbers, trace.n_tokens)
    start = np.append(0, np.cumsum(most))
    content, layers = np.zeros(start[-1], np.uint64), np.zeros(start[-1], np.int64)
    for view in trace.by_layer:
        tokens = trace.n_tokens[view.call].astype(np.int64)
        width = np.diff(view.offset) // np.maximum(tokens, 1)
        whole_calls = (width * tokens == np.diff(view.offset)) & ((width > 0) | (tokens == 0))
        if not len(view.expert) or not whole_calls.all() or len(np.unique(numbers[view.call])) < len(view.call):
            return  # what belongs to which token is not known
        token = np.arange(tokens.sum()) + np.repeat(start[numbers[view.call]] - np.cumsum(tokens) + tokens, tokens)
        first = np.append(0, np.cumsum(np.repeat(width, tokens)))[:-1]
        drawn = np.random.PCG64(view.layer).random_raw(int(view.expert.max()) + 1)
        content[token] += np.add.reduceat(drawn[view.expert], first)
        layers[token] += 1
    whole = content[layers >= layers.max(initial=0) - 1]  # the last layer of a prompt computes only what is output
    again = len(whole) - len(np.unique(whole))
    if again >= REPEATED * len(whole):
        message = f"{again:,} of {len(whole):,} tokens route in all layers like an earlier token"
        advice = "a template or text that is there twice, or a model that repeats itself; new text hits less"
        yield Finding("warning", "repeated-text", again, message, advice)


def _random(trace: RoutingTrace) -> Iterator[Finding]:
    """Steps that have no more experts in common with the one before than chance gives them."""
    expected = shared = 0.0
    for view in trace.by_layer:
        single = (trace.n_tokens[view.call] == 1) & (np.diff(view.offset) > 0)
        pairs = np.flatnonzero(single[1:] & single[:-1])[:MOST_PAIRS]
        experts = trace.n_experts[view.layer]
        for at in pairs.tolist():
            before, now = (view.expert[view.offset[one] : view.offset[one + 1]] for one in (at, at + 1))
            shared += len(np.intersect1d(before, now))
            expected += len(before) * len(now) / experts
    if expected >= LEAST_EXPECTED and shared <= expected + CHANCE_SD * expected**0.5:
        message = (
            f"consecutive tokens share {shared:,.0f} experts, and {expected:,.0f} if each were drawn at random: the "
            "routing looks like chance"
        )
        yield Finding(
            "warning", "random-routing", 1, message, "caches cannot help such routing; was a router recorded?"
        )


def _smallest_bank(trace: RoutingTrace) -> Iterator[Finding]:
    union = union_by_call(trace)
    most = int(union.max())
    message = f"the smallest bank that can run this trace has {most} slots: its largest union"
    yield _at(trace, "info", "smallest-bank", union == most, most, message, "")
