"""One answer as a card to send: the speed, its range beside what others measured, the line, and what would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

from flashmoe_sim.io.provenance import program, today
from flashmoe_sim.io.sections import WAITS
from flashmoe_sim.machines.basis import heading
from flashmoe_sim.report import advice
from flashmoe_sim.report.first_screen import (
    MARKS,
    OTHER,
    READS,
    SAME,
    SMALLEST,
    dots_of,
    doubt_of,
    get_of,
    held_of,
    helps_of,
    in_words,
    likely,
    needs_of,
    number,
    prompt_in_words,
    short_name,
    spans_of,
)
from flashmoe_sim.report.strip import axis_of
from flashmoe_sim.systems.compare import Compared
from flashmoe_sim.tune.evidence import how_sure
from flashmoe_sim.tune.objective import ANSWER_TOKENS
from flashmoe_sim.tune.others import nearest
from flashmoe_sim.tune.recommend import Recommendation

COMPUTED = "The speed is computed, not measured on your computer; nine of ten measured ones should lie in its range."
LONG = 4  # letters of a speed that is written smaller
KINDS = {SAME: "same", OTHER: "other", READS: "reads"}
OTHERS_HUE = 4
HUES = {  # of parts of a token's time, by their words
    **{WAITS[group][1]: hue for group, hue in {"cpu": 3, "compute": 1, "upload": 2, "read": 5}.items()},
    WAITS["host"][1]: OTHERS_HUE,
    advice.OTHER_COMPUTING: 1,
}


class Band(NamedTuple):
    """A speed with its interval. lo, mid, hi: per cent of the strip's width; words: for those who cannot see it."""

    label: str
    lo: float
    mid: float
    hi: float
    ends: tuple[str, str]
    words: str
    first: bool


class SeenElsewhere(NamedTuple):
    """What others measured on one computer. at: per cent of the strip's width. kind: of KINDS. url: of one of them."""

    label: str
    at: tuple[float, ...]
    words: str
    kind: str
    url: str


class Filled(NamedTuple):
    """Memory that the answer takes. share: per cent of all there is."""

    label: str
    share: float
    words: str


class OtherEngine(NamedTuple):
    """Another engine at its best. speed: with its range."""

    title: str
    speed: str
    line: str


class PartOfToken(NamedTuple):
    """A part of a token's time. share: per cent. hue: its number in the page's colours."""

    label: str
    share: float
    hue: int


class Help(NamedTuple):
    """A change of the computer. width, before: per cent of the widest bar."""

    change: str
    speed: str
    gain: str
    width: float
    before: float


@dataclass(frozen=True)
class AnswerCard:
    """Everything on it, as it is written.

    says: what a preview says. lines: names and command lines; the answer's first. get: where the engine and the model
    are from. needs: memory, in words. engines: other ones. sure: what the range rests on. ticks: speeds, and per cent
    of the strip's width. asked: the command that gives the same answer.
    """

    title: str
    under: str
    says: str
    speed: str
    likely: str
    engine: str
    plain: str
    doubt: str
    bands: tuple[Band, ...]
    seen: tuple[SeenElsewhere, ...]
    ticks: tuple[tuple[str, float], ...]
    legend: tuple[tuple[str, str], ...]
    lines: tuple[tuple[str, str], ...]
    get: tuple[str, ...]
    needs: str
    memory: tuple[Filled, ...]
    engines: tuple[OtherEngine, ...]
    parts: tuple[PartOfToken, ...]
    waits: str
    helps: tuple[Help, ...]
    sure: tuple[str, ...]
    day: date
    program: str
    asked: str

    @property
    def is_long(self) -> bool:
        """Whether the speed is written smaller."""
        return len(self.speed) > LONG


def card_of(found: Recommendation, asked: str) -> AnswerCard:
    """The card of an answer. asked: the command that gives it."""
    best, plain = found.best.best, found.plain
    assert best.launch is not None
    machine, _, rest = heading(found.case.machine).partition(", ")
    groups = nearest(best.system, found.case)
    spans, dots = spans_of(best, plain), dots_of(groups)
    axis = axis_of(spans, dots)

    def at(value: float) -> float:
        return round(100 * axis.share(value), 2)

    seen = tuple(
        SeenElsewhere(one.label, tuple(map(at, one.tok_s)), _list(one.tok_s), KINDS[one.mark], group.speeds[0].url)
        for one, group in zip(dots, groups, strict=True)
    )
    bands = tuple(
        Band(
            short_name(one),
            at(span.lo),
            at(span.tok_s),
            at(span.hi),
            (number(span.lo), number(span.hi)),
            f"{number(span.tok_s)} tokens a second, {number(span.lo)} to {number(span.hi)}",
            span.first,
        )
        for span, one in zip(spans, filter(None, (best, plain)), strict=True)
    )
    parts = _parts(best)
    lines = [(best.system.title, best.launch.line)]
    if plain is not None and plain.launch is not None:
        lines.append((f"{in_words(plain)}, with {short_name(plain)}, nothing to build", plain.launch.line))
    return AnswerCard(
        f"{found.case.model.name} on {machine}",
        rest,
        f"{in_words(best)}, with {best.system.title}",
        number(best.tok_s or 0.0),
        likely(best.tok_s_lo, best.tok_s_hi),
        best.system.title,
        _plain(found, best),
        doubt_of(found),
        bands,
        seen,
        tuple((f"{tick:g}", at(tick)) for tick in axis.ticks),
        tuple((KINDS[mark], MARKS[mark]) for mark in KINDS if KINDS[mark] in {one.kind for one in seen}),
        tuple(lines),
        tuple(get_of(found)),
        needs_of(found),
        tuple(_filled(found)),
        tuple(_engines(found)),
        parts,
        f"{parts[0].share:.0f}% of a token's time is {parts[0].label}" if parts else "",
        _helps(found),
        (COMPUTED, *how_sure(found)),
        today(),
        program(),
        asked,
    )


def _list(speeds: Sequence[float]) -> str:
    return f"{', '.join(map(number, sorted(speeds)))} tokens a second"


def _plain(found: Recommendation, best: Compared) -> str:
    """How long an answer takes."""
    if prompt := prompt_in_words(found):
        return f"{prompt}."
    return f"An answer of {ANSWER_TOKENS} tokens takes about {number(ANSWER_TOKENS / (best.tok_s or 1.0))} s."


def _filled(found: Recommendation) -> Iterator[Filled]:
    for one in held_of(found):
        if one.of_gib:
            yield Filled(one.label, round(min(100 * one.gib / one.of_gib, 100), 1), one.words)


def _engines(found: Recommendation) -> Iterator[OtherEngine]:
    """Other engines whose line the card has not yet."""
    for one in found.by_engine:
        if one is not found.main_line and one.best.launch is not None:
            yield OtherEngine(one.best.system.title, in_words(one.best), one.best.launch.line)


def _parts(best: Compared) -> tuple[PartOfToken, ...]:
    """The parts of a token's time, small ones as one."""
    shares = advice.shares_of(best, least=SMALLEST)
    parts = [PartOfToken(what, 100 * share, HUES[what]) for what, share in shares.items()]
    rest = 100 - sum(one.share for one in parts)
    return (*parts, *([PartOfToken("everything else", rest, OTHERS_HUE)] if parts and rest >= 1 else []))


def _helps(found: Recommendation) -> tuple[Help, ...]:
    helps = helps_of(found)
    most = max((one.after.tok_s or 0.0 for _, one in helps), default=1.0)
    return tuple(
        Help(
            change,
            number(one.after.tok_s or 0.0),
            f"{one.gain:+.0%}",
            round(100 * (one.after.tok_s or 0.0) / most, 1),
            round(100 * (one.before.tok_s or 0.0) / most, 1),
        )
        for change, one in helps
    )
