"""Whether a trace is long enough for a choice of size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Incomplete
from flashmoe_sim.machines.anchors import SPEED_SD
from flashmoe_sim.machines.belief import SD_90
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import NEAR, Compared
from flashmoe_sim.trace.cut import cut
from flashmoe_sim.trace.phases import find_phases
from flashmoe_sim.trace.routing import PHASE_DECODE, RoutingTrace
from flashmoe_sim.tune.across import Scores, score
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.proof import kept_bytes, pick
from flashmoe_sim.tune.search import FINE

# How often the chosen size took over 10% longer on the whole trace than the best size, over eight stretches of the
# bundled traces for each of 46 to 60 pairs of a system and a machine: with 32 tokens 49%, with 64 35%, 128 20%, 256
# 5%, 512 1%. It never happened if the choice was the largest size that fits: large banks do not fill in a short
# trace, so its errors favour small ones. `Convergence.settled` on other stretches: of settled choices below the
# largest, 7% lost over 10% with 256 tokens and 3% with 512; of unsettled ones, 20% and 7%, and 58% with 64
# tokens.
LEAST_TOKENS = 64
TRUSTED_TOKENS = 256
PART_TOKENS = 32
PARTS = (16, 8, 4, 2)
# Of 20 choices that still changed and took over 3% longer, twice the tokens settled 9, four times the tokens 14. The
# standard error of paired blocks suggested 16 to 64 tokens for them, because it ignores that banks have not filled.
MORE = 4
MOST_SIZES = 12
SPEED_ERROR = math.expm1(SD_90 * SPEED_SD)  # how much a run may differ from its prediction


@dataclass(frozen=True, eq=False)
class FirstTokens:
    """What the first tokens of a trace would have led to; None if nothing can be timed on them.

    tokens: decoded tokens. chosen: the setting. tok_s: its speed as predicted from this part alone.
    seconds_more: how much longer it takes on the whole trace than the setting that the whole trace leads to, as a
        share; as low as -0.03, since the smallest setting near the fastest is chosen.
    """

    tokens: int
    chosen: System | None = None
    tok_s: float | None = None
    seconds_more: float | None = None

    @property
    def near(self) -> bool:
        return self.seconds_more is not None and self.seconds_more <= NEAR

    def as_row(self) -> dict[str, Any]:
        """schema.PARTS."""
        return {
            "tokens": self.tokens,
            "setting": None if self.chosen is None else self.chosen.spec,
            "tok_s": self.tok_s,
            "seconds_more": self.seconds_more,
        }


@dataclass(frozen=True, eq=False)
class Convergence:
    """How the choice of a size develops over more and more of a trace.

    parts: the first 1/16, 1/8, 1/4 and 1/2 of it, if that is 32 tokens or more, and all of it.
    largest: whether the choice is the largest setting that runs, or within one step of it.
    settings: how many there were to choose from.
    """

    parts: tuple[FirstTokens, ...]
    largest: bool
    settings: int

    @property
    def whole(self) -> FirstTokens:
        return self.parts[-1]

    @property
    def since_tokens(self) -> int:
        """The tokens from which on every part leads to the choice, or within 3% of it."""
        since = self.whole.tokens
        for part in reversed(self.parts):
            if not part.near:
                break
            since = part.tokens
        return since

    @property
    def settled(self) -> bool:
        """Whether a longer trace is unlikely to lead to another choice.

        It is if no larger size runs, or if a quarter and half of the trace lead to it, and the trace has 256 tokens.
        """
        agree = len(self.parts) > 2 and all(part.near for part in self.parts[-3:])
        return self.largest or (agree and self.whole.tokens >= TRUSTED_TOKENS)

    @property
    def speed_change(self) -> float | None:
        """The speed predicted from all of the trace over that from half, less 1; None if half is too short."""
        half = self.parts[-2].tok_s if len(self.parts) > 1 else None
        return None if half is None or self.whole.tok_s is None else self.whole.tok_s / half - 1

    @property
    def speed_moves(self) -> bool:
        """Whether the speed changed more since half of the trace than a run may differ from its prediction.

        If not, it still holds only for more of the same work: other work can be half or twice as fast.
        """
        return self.speed_change is not None and abs(self.speed_change) > SPEED_ERROR

    @property
    def wanted_tokens(self) -> int | None:
        """How many tokens would probably settle the choice; None if it is settled.

        Four times as many, a rule of thumb: in seven of ten cases that was enough.
        """
        return None if self.settled else MORE * self.whole.tokens

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences for the user: on the choice, and on the speed if it still changes."""
        assert self.whole.chosen is not None
        spec, tokens = self.whole.chosen.spec, self.whole.tokens
        sentences = []
        if self.largest:
            why = "fills the memory that it may take" if self.settings > 1 else "is the only setting"
            sentences.append(f"{spec} {why}; a longer trace is unlikely to change the choice")
        elif self.settled:
            sentences.append(
                f"{spec} is the choice from {self.since_tokens:,} of {tokens:,} tokens on, within 3%; a longer trace "
                "is unlikely to change it"
            )
        else:
            sentences.append(f"{self._unsettled()}; record about {_round(self.wanted_tokens or 0):,} tokens")
            sentences.append("in a short trace large banks do not fill: more may prefer a larger size")
        if self.speed_change is not None and self.speed_moves:
            sentences.append(
                f"the predicted speed moved by {100 * self.speed_change:+.0f}% from half of the trace to all of it, "
                "and may move again"
            )
        return tuple(sentences)

    def _unsettled(self) -> str:
        moved = [part for part in self.parts[:-1][-2:] if not part.near]
        if not moved:
            return f"{self.whole.tokens:,} decoded tokens are too few to choose below the largest size"
        last = moved[-1]
        if last.chosen is None or last.seconds_more is None:
            return f"the first {last.tokens:,} tokens do not lead to a choice"
        return (
            f"the choice still moves: the first {last.tokens:,} tokens lead to {last.chosen.spec}, which takes "
            f"{100 * last.seconds_more:.0f}% longer on all {self.whole.tokens:,}"
        )


def check_length(workload: Workload) -> None:
    """Raise BadInput if a trace has too few decoded tokens to base any choice on."""
    if (tokens := int(_decoded(workload.trace)[1].sum())) < LEAST_TOKENS:
        raise Incomplete(
            f"{workload.trace.name or 'trace'}: has {tokens} decoded tokens; a recommendation needs "
            f"{LEAST_TOKENS} or more, better {TRUSTED_TOKENS}",
            advice="record a longer answer, such as with `sim trace capture`",
        )


def converged(
    workload: Workload,
    case: Case,
    tried: Sequence[Compared],
    *,
    objective: Objective,
    progress: Callable[[int, int], None] | None = None,
) -> Convergence:
    """What parts of a trace would have led to, among the settings tried on all of it.

    tried: settings of one system that ran, each on the whole trace, as in `Searched.tried`; if there are more than 12,
        the choice, the fastest and others evenly spread are used. The replays of each setting add up to less than one
        trace.
    """
    best = pick(tried, objective)
    assert best is not None
    fastest = min(tried, key=lambda one: objective.seconds(one) or math.inf)
    kept = _some(sorted(tried, key=kept_bytes), (best, fastest))
    whole = Scores(workload.trace.name, {one.system: one for one in kept})
    steps, tokens = _decoded(workload.trace)
    so_far, total = np.cumsum(tokens), int(tokens.sum())
    within = {int(np.searchsorted(so_far, total // part)) for part in PARTS if total // part >= PART_TOKENS}
    lasts = sorted(last for last in within if so_far[last] < total)  # one step of many tokens may be the whole trace
    ends = [int(steps[last]) + 1 for last in lasts]
    parts = []
    for number, (last, end) in enumerate(zip(lasts, ends, strict=True)):
        if progress is not None:
            progress(number, len(lasts))
        each = score(_cut(workload, end), case, whole.each, objective=objective)
        parts.append(_part(int(so_far[last]), each.pick(objective), whole, objective))
    return Convergence((*parts, _part(total, best, whole, objective)), _is_largest(best, tried), len(tried))


def _part(tokens: int, chosen: Compared | None, whole: Scores, objective: Objective) -> FirstTokens:
    if chosen is None:
        return FirstTokens(tokens)
    return FirstTokens(tokens, chosen.system, chosen.tok_s, whole.seconds_more(chosen.system, objective))


def _is_largest(best: Compared, tried: Sequence[Compared]) -> bool:
    most = max(tried, key=kept_bytes)
    if best.system == most.system:
        return True
    less, more = sorted(getattr(one.system, one.system.size) for one in (best, most))
    return bool(less >= (1 - FINE) * more)


def _some(tried: Sequence[Compared], always: Sequence[Compared]) -> list[Compared]:
    spread = np.linspace(0, len(tried) - 1, min(len(tried), MOST_SIZES)).round().astype(int)
    return [one for number, one in enumerate(tried) if number in spread or one in always]


def _decoded(trace: RoutingTrace) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The steps of a trace, and the decoded tokens of each: none of a prompt, and all if no phase is known."""
    steps, first = np.unique(trace.steps, return_index=True)
    tokens = np.maximum.reduceat(trace.text, first).astype(np.int64) if len(first) else np.zeros(0, np.int64)
    if (phases := find_phases(trace)) is not None:
        tokens[phases.phase != PHASE_DECODE] = 0
    return steps, tokens


def _cut(workload: Workload, end: int) -> Workload:
    return prepare(cut(workload.trace, steps=(None, end)), workload.geometry)


def _round(tokens: int) -> int:
    """Round to halves of the first digit."""
    unit: int = max(10 ** (len(str(tokens)) - 1) // 2, 1)
    return round(tokens / unit) * unit
