"""Scores of estimators on the same questions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from flashmoe_sim.field.estimators import OneEstimate, Question
from flashmoe_sim.field.rows import WAYS

TWO = math.log(2)
COLUMNS = ("estimator", "answered", "factor", "bias", "in 2", "inside")
MEANING = """Factor: the median of predicted over measured, or its inverse if that is above 1. Bias: the median of
predicted over measured. In 2: the share within a factor of two. Inside: the share in the estimator's own interval, and
how far its ends are apart.
"""


class AnswerBeside(NamedTuple):
    """An answer beside what was measured."""

    question: Question
    estimate: OneEstimate


class Score(NamedTuple):
    """How far answers are off.

    asked, answered: questions. factor: the median of predicted over measured or its inverse, whichever is above 1.
    bias: the median of predicted over measured. within_2: the share within a factor of two. inside, apart: the share
    inside the interval, and the median of its upper end over its lower one; None without intervals. All but `asked` are
    of the answered ones.
    """

    asked: int
    answered: int
    factor: float
    bias: float
    within_2: float
    inside: float | None
    apart: float | None


def score(outcomes: Iterable[AnswerBeside]) -> Score:
    """The score of one estimator; NaN where it answered nothing."""
    every = list(outcomes)
    answered = [one for one in every if one.estimate.value]
    logs = [math.log((one.estimate.value or 0.0) / one.question["tok_s"]) for one in answered]
    ranged = [one for one in answered if one.estimate.lo and one.estimate.hi]
    if not logs:
        return Score(len(every), 0, math.nan, math.nan, math.nan, None, None)
    held = [(one.estimate.lo or 0.0) <= one.question["tok_s"] <= (one.estimate.hi or 0.0) for one in ranged]
    return Score(
        len(every),
        len(answered),
        math.exp(statistics.median(map(abs, logs))),
        math.exp(statistics.median(logs)),
        statistics.fmean(abs(log) <= TWO for log in logs),
        statistics.fmean(held) if held else None,
        statistics.median((one.estimate.hi or 0.0) / (one.estimate.lo or 1.0) for one in ranged) if ranged else None,
    )


def cells(of: Score) -> tuple[str, ...]:
    """A score for a table with COLUMNS, without the estimator."""
    answered = f"{of.answered} of {of.asked}"
    if not of.answered:
        return answered, "-", "-", "-", "-"
    inside = "-" if of.inside is None else f"{of.inside:.0%}, {of.apart:.1f} times"
    return answered, f"{of.factor:.2f}", f"{of.bias:.2f}", f"{of.within_2:.0%}", inside


def of_way(outcomes: Sequence[AnswerBeside], way: str) -> list[AnswerBeside]:
    """The outcomes whose model was run in one of WAYS."""
    return [one for one in outcomes if one.question["strategy"] in WAYS[way]]


def answered_by_all(outcomes: dict[str, list[AnswerBeside]]) -> dict[str, list[AnswerBeside]]:
    """The outcomes of questions that every estimator answered."""
    answered = [{one.question["id"] for one in each if one.estimate.value} for each in outcomes.values()]
    common = set.intersection(*answered)
    return {name: [one for one in each if one.question["id"] in common] for name, each in outcomes.items()}
