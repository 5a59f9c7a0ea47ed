"""The plain twins of the predictors, from their definitions, in lists and dicts.

A twin that learns is a function of the past alone: it is handed the calls up to now and works everything out again, so
that it cannot know what comes. Nothing here is fast, and nothing here knows how the kernels do it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from flashmoe_sim.prefetchers.base import Prefetcher
from flashmoe_sim.trace.routing import RoutingTrace

# The call after which it is made, -1 before the first; the layer; the experts.
Prediction = tuple[int, int, list[int]]


class Seen(NamedTuple):
    """A routed call: its layer, the step it belongs to, counted from 0 as they come, and its experts."""

    layer: int
    step: int
    experts: list[int]


@dataclass(frozen=True)
class Model:
    """What is known before the run. layers: those that route, ascending. width: experts that a token uses."""

    layers: Sequence[int]
    n_experts: dict[int, int]
    width: int


def seen_calls(trace: RoutingTrace) -> list[Seen]:
    calls: list[Seen] = []
    for number, (layer, recorded) in enumerate(zip(trace.layer.tolist(), trace.steps.tolist(), strict=True)):
        changes = number > 0 and recorded != int(trace.steps[number - 1])
        step = calls[-1].step + changes if calls else 0
        calls.append(Seen(layer, step, trace.expert[trace.offset[number] : trace.offset[number + 1]].tolist()))
    return calls


def distinct(experts: Sequence[int]) -> list[int]:
    return list(dict.fromkeys(experts))


def best(score: Counter[int], width: int) -> list[int]:
    """The largest scores first; of equal ones the lower number."""
    return sorted((expert for expert in score if score[expert] > 0), key=lambda expert: (-score[expert], expert))[
        :width
    ]


# --- what is learnt: predictions to make at the end of `past`, given whether a step has just ended --------------------


def last_call(past: list[Seen], ended: bool, model: Model, width: int | None) -> Iterator[tuple[int, list[int]]]:
    last = {call.layer: call.experts for call in past}
    if ended:
        yield from ((layer, last[layer][:width]) for layer in model.layers if last.get(layer))


def hot(past: list[Seen], ended: bool, model: Model, *, width: int) -> Iterator[tuple[int, list[int]]]:
    for layer in model.layers if ended else ():
        asked = Counter(expert for call in past if call.layer == layer for expert in set(call.experts))
        if asked:
            yield layer, best(asked, width or model.width)


def followers(pairs: Sequence[tuple[Seen, Seen]], now: Seen, width: int) -> list[int]:
    """The experts that in these pairs of calls most often came second when one of `now` came first."""
    counted = Counter(pair for first, second in pairs for pair in product(set(first.experts), set(second.experts)))
    score: Counter[int] = Counter()
    for (first, second), times in counted.items():
        if first in now.experts:
            score[second] += times
    return best(score, width)


def markov(past: list[Seen], ended: bool, model: Model, *, width: int) -> Iterator[tuple[int, list[int]]]:
    now = past[-1]
    own = [call for call in past if call.layer == now.layer]
    yield now.layer, followers(list(pairwise(own)), now, width or model.width)


def next_layer(past: list[Seen], ended: bool, model: Model, *, width: int) -> Iterator[tuple[int, list[int]]]:
    now = past[-1]
    for here, there in pairwise(model.layers):
        if here == now.layer:
            neighbours = [(a, b) for a, b in pairwise(past) if a.step == b.step and (a.layer, b.layer) == (here, there)]
            yield there, followers(neighbours, now, width or model.width)


def eam(
    past: list[Seen], ended: bool, model: Model, *, stored: int, reach: int, width: int
) -> Iterator[tuple[int, list[int]]]:
    steps: list[list[Seen]] = [[] for _ in range(past[-1].step + 1)]
    for call in past:
        steps[call.step].append(call)
    matrices = [{(call.layer, expert) for call in step for expert in call.experts} for step in steps]
    now = matrices[-1]
    likeness = {  # the square of the cosine, but for what all have in common
        step: Fraction(len(now & matrices[step]) ** 2, len(matrices[step]))
        for step in range(len(steps) - 1)[-stored:]
        if now & matrices[step]
    }
    if not likeness:
        return
    chosen = steps[max(likeness, key=lambda step: (likeness[step], step))]
    place = model.layers.index(past[-1].layer)
    for distance, layer in enumerate(model.layers[place + 1 :][:reach], start=1):
        experts = distinct([expert for call in chosen if call.layer == layer for expert in call.experts])
        yield layer, experts[: max((width or model.width) // distance, 1)]


LEARNING: dict[str, Callable[..., Iterator[tuple[int, list[int]]]]] = {
    "temporal": lambda past, ended, model: last_call(past, ended, model, None),
    "predict-prev": lambda past, ended, model: last_call(past, ended, model, None),
    "predict-top1": lambda past, ended, model: last_call(past, ended, model, 1),
    "hot": hot,
    "markov": markov,
    "next-layer": next_layer,
    "eam": eam,
}


# --- what knows the future --------------------------------------------------------------------------------------------


def before_step(calls: list[Seen], step: int) -> int:
    """The last call before a step begins, -1 if that is the start of the run."""
    return max((number for number, call in enumerate(calls) if call.step < step), default=-1)


def oracle_1(calls: list[Seen], model: Model) -> Iterator[Prediction]:
    for number, call in enumerate(calls):
        yield number - 1, call.layer, call.experts


def oracle_w(calls: list[Seen], model: Model, *, steps: int) -> Iterator[Prediction]:
    for call in calls:
        yield before_step(calls, call.step - steps + 1), call.layer, call.experts


def synthetic(
    calls: list[Seen], model: Model, *, recall: float, extra: int, steps: int, seed: int, layers: int, drafted: bool
) -> Iterator[Prediction]:
    """Takes the same draws as the predictor: one a reference, and `extra` a call (no more than experts there are).

    These traces have no drafts.
    """
    predicted = model.layers[: 0 if drafted else layers or None]
    rng = np.random.default_rng(seed)
    extra = min(extra, max(model.n_experts[layer] for layer in model.layers))
    right = iter(rng.random(sum(len(call.experts) for call in calls)).tolist())
    wrong = rng.random((len(calls), extra)).tolist()
    for call, wrong_draws in zip(calls, wrong, strict=True):
        drawn: dict[int, float] = {}
        for expert, draw in zip(call.experts, right, strict=False):
            drawn.setdefault(expert, draw)
        named = [expert for expert in drawn if drawn[expert] < recall]
        others = sorted(set(range(model.n_experts[call.layer])) - set(call.experts))
        for draw in wrong_draws[: len(others)]:
            named.append(others.pop(int(draw * len(others))))
        if call.layer in predicted:
            yield before_step(calls, call.step - steps + 1), call.layer, named


KNOWING: dict[str, Callable[..., Iterator[Prediction]]] = {
    "oracle-1": oracle_1,
    "oracle-w": oracle_w,
    "synthetic": synthetic,
}


def predictions(predictor: Prefetcher, trace: RoutingTrace) -> list[Prediction]:
    """What the twin of `predictor` predicts while `trace` runs."""
    calls = seen_calls(trace)
    width = trace.top_k or max(round(Fraction(trace.refs, sum(bool(call.experts) for call in calls) or 1)), 1)
    model = Model(sorted({call.layer for call in calls}), dict(trace.n_experts), width)
    parameters: dict[str, Any] = {name: value for name, value in vars(predictor).items() if name != "cost_us"}
    if predictor.name == "none":
        return []
    if predictor.name in KNOWING:
        return list(KNOWING[predictor.name](calls, model, **parameters))
    found = []
    for number, call in enumerate(calls):
        ended = number + 1 == len(calls) or calls[number + 1].step != call.step
        learnt = LEARNING[predictor.name](calls[: number + 1], ended, model, **parameters)
        found += [(number, layer, experts) for layer, experts in learnt]
    return found


# --- how right they were, and what a bank is told of them -------------------------------------------------------------


class Accuracy(NamedTuple):
    """Distinct experts of the predictions that were for a call, and those of them that the call requested."""

    predicted: int
    right: int


def accuracy(calls: list[Seen], made: list[Prediction], targets: Sequence[int] | None = None) -> dict[int, Accuracy]:
    """Of each layer. targets: the call each prediction is for; None for its layer's next one, and the latest counts.

    A call without tokens is a next one, too: what was predicted before it is not for the call after it.
    """
    total = {call.layer: Accuracy(0, 0) for call in calls}
    for number, call in enumerate(calls):
        idle = [place for place, one in enumerate(calls[:number]) if one.layer == call.layer and not one.experts]
        since = max(idle, default=-1)
        own = [
            experts
            for place, (after, layer, experts) in enumerate(made)
            if (layer == call.layer and since <= after < number if targets is None else targets[place] == number)
        ]
        if own:
            named, asked = set(own[-1]), set(call.experts)
            before = total[call.layer]
            total[call.layer] = Accuracy(before.predicted + len(named), before.right + len(named & asked))
    return total


def next_uses(calls: list[Seen], made: list[Prediction]) -> list[list[tuple[int, int] | None]]:
    """For every expert of every prediction the call that requests it next, and its first place there."""
    return [
        [
            next(
                (
                    (number, call.experts.index(expert))
                    for number, call in enumerate(calls)
                    if number > after and call.layer == layer and expert in call.experts
                ),
                None,
            )
            for expert in experts
        ]
        for after, layer, experts in made
    ]
