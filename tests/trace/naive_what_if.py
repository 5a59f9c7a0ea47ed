"""Plain twins of merging and of speculative decoding: lists of calls, one step after another."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from flashmoe_sim.trace.join import phases_of
from flashmoe_sim.trace.routing import PHASE_PROMPT, PHASE_UNKNOWN, RoutingTrace


class Call(NamedTuple):
    """A routed call; weights are None if none were recorded."""

    layer: int
    n_tokens: int
    experts: list[int]
    weights: list[float] | None
    phase: int
    sequence: int | None


Pass = dict[int, Call]
Step = list[Pass]


def steps_of(trace: RoutingTrace) -> list[Step]:
    """The passes of every step from the first, by layer; a step without calls has none."""
    numbers, phase = trace.steps.tolist(), phases_of(trace).tolist()
    steps: list[Step] = [[] for _ in range(max(numbers) - min(numbers) + 1)]
    for call in range(trace.calls):
        begin, end = int(trace.offset[call]), int(trace.offset[call + 1])
        layer = int(trace.layer[call])
        passes = steps[numbers[call] - min(numbers)]
        if not passes or layer <= max(passes[-1]):
            passes.append({})
        passes[-1][layer] = Call(
            layer,
            int(trace.n_tokens[call]),
            trace.expert[begin:end].tolist(),
            None if trace.weight is None else trace.weight[begin:end].tolist(),
            phase[call],
            None if trace.sequence is None else int(trace.sequence[call]),
        )
    return steps


def joined(steps: Sequence[Step]) -> Step:
    """Steps decoded together, their tokens in the order given; the sequence is -1 if several meet."""
    together = []
    for number in range(max(map(len, steps), default=0)):
        passes = [step[number] for step in steps if number < len(step)]
        together.append(
            {
                layer: _joined([one[layer] for one in passes if layer in one])
                for layer in sorted({layer for one in passes for layer in one})
            }
        )
    return together


def _joined(calls: list[Call]) -> Call:
    if len(calls) == 1:
        return calls[0]
    asking = [call for call in calls if call.experts]
    known = all(call.n_tokens > 0 and len(call.experts) % call.n_tokens == 0 for call in asking)
    widths = {len(call.experts) // call.n_tokens for call in asking} if known else set()
    phases, sequences = {call.phase for call in calls}, {call.sequence for call in calls}
    return Call(
        calls[0].layer,
        sum(call.n_tokens for call in calls) if len(widths) == 1 and widths != {0} else 0,
        [expert for call in calls for expert in call.experts],
        None if calls[0].weights is None else [weight for call in calls for weight in call.weights or []],
        phases.pop() if len(phases) == 1 else PHASE_UNKNOWN,
        sequences.pop() if len(sequences) == 1 else -1,
    )


def numbered(parts: Sequence[RoutingTrace]) -> list[list[Step]]:
    """The steps of all parts: every sequence has a number of its own, and weights only count if all have them."""
    weighted = all(part.weight is not None for part in parts)
    result, seen = [], 0
    for part in parts:
        steps = steps_of(part)
        known = sorted({call.sequence or 0 for step in steps for one in step for call in one.values()})
        for step in steps:
            for one in step:
                for layer, call in one.items():
                    weights = call.weights if weighted else None
                    one[layer] = call._replace(sequence=seen + known.index(call.sequence or 0), weights=weights)
        seen += len(known)
        result.append(steps)
    return result


def union(parts: Sequence[RoutingTrace], stagger: int = 0) -> list[Step]:
    streams = [
        steps[number * stagger % len(steps) :] + steps[: number * stagger % len(steps)]
        for number, steps in enumerate(numbered(parts))
    ]
    return [
        joined([steps[number] for steps in streams if number < len(steps)]) for number in range(max(map(len, streams)))
    ]


def concat(parts: Sequence[RoutingTrace]) -> list[Step]:
    return [step for steps in numbered(parts) for step in steps]


def interleave(parts: Sequence[RoutingTrace], every: int) -> list[Step]:
    left, result = numbered(parts), []
    while any(left):
        for steps in left:
            result += steps[:every]
            del steps[:every]
    return result


def batched(parts: Sequence[RoutingTrace], concurrency: int, chunk: int, arrivals: Sequence[int] | None) -> list[Step]:
    """Continuous batching; chunk: 0 for prompts as recorded. arrivals: in steps."""
    requests = [request for steps in numbered(parts) for request in _requests(steps)]
    if chunk:
        requests = [[unit for step in request for unit in _tokens(step)] for request in requests]
    came = arrivals or [0] * len(requests)
    waiting = sorted(range(len(requests)), key=lambda number: came[number])
    running: list[list[Step]] = []
    result, clock = [], 0
    while waiting or running:
        while waiting and len(running) < concurrency and came[waiting[0]] <= clock:
            running.append(requests[waiting.pop(0)])
        taken, left = [], chunk
        for request in running:
            if not (chunk and _prompt_token(request[0])):
                taken.append(request.pop(0))
                continue
            while left and request and _prompt_token(request[0]):
                taken.append(request.pop(0))
                left -= 1
        if running:
            result.append(joined(taken))
        running = [request for request in running if request]
        clock += 1
    return result


def _requests(steps: list[Step]) -> list[list[Step]]:
    """The steps of each sequence, in the order of their first calls."""
    texts: dict[int | None, list[Step]] = {}
    for step in steps:
        for text in dict.fromkeys(call.sequence for one in step for call in one.values()):
            own = [{layer: call for layer, call in one.items() if call.sequence == text} for one in step]
            texts.setdefault(text, []).append([one for one in own if one])
    return list(texts.values())


def _tokens(step: Step) -> list[Step]:
    """A step for each token of its prompt's passes, which end together; other passes stay together."""
    units: list[Step] = []
    stays = False
    for one in step:
        if not all(call.phase == PHASE_PROMPT and _clear(call) for call in one.values()):
            units = [*units[:-1], [*units[-1], one]] if stays else [*units, [one]]
            stays = True
            continue
        stays = False
        most = max(max(call.n_tokens, 1) for call in one.values())
        units += [
            [{layer: _token(call, left) for layer, call in one.items() if left <= max(call.n_tokens, 1)}]
            for left in range(most, 0, -1)
        ]
    return units


def _clear(call: Call) -> bool:
    return not call.experts or (call.n_tokens > 0 and len(call.experts) % call.n_tokens == 0)


def _token(call: Call, left: int) -> Call:
    """The token of a call with `left` tokens to its end, itself included."""
    if not call.experts:
        return call
    width = len(call.experts) // call.n_tokens
    begin = (call.n_tokens - left) * width
    weights = None if call.weights is None else call.weights[begin : begin + width]
    return call._replace(n_tokens=1, experts=call.experts[begin : begin + width], weights=weights)


def _prompt_token(step: Step) -> bool:
    return all(
        call.phase == PHASE_PROMPT and (call.n_tokens == 1 or not call.experts) for one in step for call in one.values()
    )


def _text(step: Step) -> int | None:
    return next(iter(step[0].values())).sequence


def _one_token(step: Step) -> bool:
    return all(call.n_tokens == 1 and call.phase != PHASE_PROMPT for one in step for call in one.values())


def _follows(step: Step, following: Step) -> bool:
    return _one_token(step) and _one_token(following) and _text(step) == _text(following)


def draftable(trace: RoutingTrace) -> bool:
    """Whether any step can be drafted for."""
    return any(itertools.starmap(_follows, itertools.pairwise(filter(None, steps_of(trace)))))


def speculate(trace: RoutingTrace, draft: int, accept: float, rejected: str, seed: int) -> list[Step]:
    steps = [step for step in steps_of(trace) if step]
    draws = np.random.default_rng(seed)
    drawn = draws.random(len(steps)).tolist()
    sources: list[list[int]] = []
    wrong: list[tuple[int, int]] = []
    at = 0
    while at < len(steps):
        source = [at]
        while len(source) <= draft and source[-1] + 1 < len(steps):
            if not _follows(steps[at], steps[source[-1] + 1]):
                break
            source.append(source[-1] + 1)
        accepted = 0
        while accepted < len(source) - 1 and drawn[at] < accept ** (accepted + 1):
            accepted += 1
        wrong += [(len(sources), place) for place in range(accepted + 1, len(source))]
        sources.append(source)
        at += 1 + accepted
    if rejected == "random":
        decode = [number for number, step in enumerate(steps) if _one_token(step)]
        for (number, place), other in zip(wrong, draws.choice(decode, len(wrong)).tolist(), strict=True):
            sources[number][place] = other
    result = []
    for source in sources:
        step = joined([steps[number] for number in source])
        base = _text(steps[source[0]])
        result.append([{layer: call._replace(sequence=base) for layer, call in one.items()} for one in step])
    return result


def equal(trace: RoutingTrace, steps: Sequence[Step]) -> bool:
    """Whether a trace says exactly what these steps do."""
    rows = [(number, call) for number, step in enumerate(steps) for one in step for _, call in sorted(one.items())]
    calls = [call for _, call in rows]
    sequences = [call.sequence for call in calls]
    weights = None if any(call.weights is None for call in calls) else [w for call in calls for w in call.weights or []]
    return (
        trace.layer.tolist() == [call.layer for call in calls]
        and trace.n_tokens.tolist() == [call.n_tokens for call in calls]
        and trace.offset.tolist() == np.cumsum([0, *(len(call.experts) for call in calls)]).tolist()
        and trace.expert.tolist() == [expert for call in calls for expert in call.experts]
        and (None if trace.weight is None else trace.weight.tolist()) == weights
        and trace.phase is not None
        and trace.phase.tolist() == [call.phase for call in calls]
        and (None if trace.sequence is None else trace.sequence.tolist())
        == (None if None in sequences or -1 in sequences else sequences)
        and trace.step is not None
        and trace.step.tolist() == [number for number, _ in rows]
        and trace.slot is None
        and trace.resident is None
    )
