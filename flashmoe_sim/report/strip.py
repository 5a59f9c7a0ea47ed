"""Speeds with their intervals, and what other people measured, on one axis of plain characters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

LABEL, AXIS = 26, 50  # columns
DOTS = "..."  # behind a label that is cut
LEAST, MOST = 1.0, 100.0  # tokens a second, unless there are others
TICKS = (1, 2, 5)
Place: TypeAlias = Callable[[float], int]  # the column of a speed


class Span(NamedTuple):
    """A speed with its interval, in tokens a second. first: whether it is the answer."""

    label: str
    lo: float
    tok_s: float
    hi: float
    first: bool


class Dots(NamedTuple):
    """Speeds of other people. mark: what stands for each."""

    label: str
    tok_s: Sequence[float]
    mark: str


class SpeedAxis(NamedTuple):
    """A logarithmic axis of speeds, from `least` to `most`."""

    least: float
    most: float

    def share(self, value: float) -> float:
        """How far along the axis a speed is: 0 to 1."""
        share = math.log(max(value, self.least) / self.least) / math.log(self.most / self.least)
        return min(share, 1.0)

    @property
    def ticks(self) -> list[float]:
        """1, 2, 5, 10 and so on."""
        return [tick for tick in _every() if self.least * 0.999 <= tick <= self.most * 1.001]


def axis_of(spans: Sequence[Span], dots: Sequence[Dots]) -> SpeedAxis:
    """The axis that holds them all: LEAST to MOST, or to the next ticks beyond."""
    every = [value for span in spans for value in (span.lo, span.hi)] + [value for one in dots for value in one.tok_s]
    least, most = min(every), max(every)
    low = LEAST if least >= LEAST else max((tick for tick in _every() if tick <= least), default=least)
    high = MOST if most <= MOST else min((tick for tick in _every() if tick >= most), default=most)
    return SpeedAxis(low, high)


def strip(spans: Sequence[Span], dots: Sequence[Dots], unit: str, *, length: int = AXIS, label: int = LABEL) -> str:
    """The lines, with so many columns of names before so many of the axis; at most 80 in all."""
    axis = axis_of(spans, dots)

    def place(value: float) -> int:
        return round(axis.share(value) * (length - 1))

    def named(text: str, cells: Sequence[str]) -> str:
        return f"{_cut(text, label)} {''.join(cells)}".rstrip()

    lines = [named(span.label, _span(span, place, length)) for span in spans]
    for one in dots:
        cells = [" "] * length
        for value in one.tok_s:
            cells[place(value)] = one.mark
        lines.append(named(one.label, cells))
    rule, numbers = ["-"] * length, [" "] * (length + 4)
    for tick in axis.ticks:
        rule[place(tick)] = "+"
        text = f"{tick:g}"
        at = max(place(tick) - len(text) // 2, 0)
        if all(cell == " " for cell in numbers[max(at - 1, 0) : at + len(text) + 1]):
            numbers[at : at + len(text)] = text
    return "\n".join([*lines, named("", rule), named(unit, numbers)])


def in_a_row(span: Span, axis: SpeedAxis, width: int) -> str:
    """A speed with its interval as a cell of a table."""
    lo, mid, hi = (round(axis.share(value) * (width - 1)) for value in (span.lo, span.tok_s, span.hi))
    return "".join("|" if at == mid else "=" if lo <= at <= hi else " " for at in range(width))


def powers(axis: SpeedAxis, width: int) -> str:
    """1, 10, 100 and so on, as the heading of such cells."""
    cells = [" "] * width
    for tick in axis.ticks:
        text = f"{tick:g}"
        if text.strip("0") == "1":
            at = min(round(axis.share(tick) * (width - 1)), width - len(text))
            cells[at : at + len(text)] = text
    return "".join(cells)


def _span(span: Span, place: Place, length: int) -> list[str]:
    fill = "=" if span.first else "-"
    lo, mid, hi = (place(value) for value in (span.lo, span.tok_s, span.hi))
    cells = [" "] * length
    cells[lo : hi + 1] = [fill] * (hi + 1 - lo)
    cells[lo], cells[hi] = "[", "]"
    cells[mid] = "|"
    return cells


def _every() -> list[float]:
    return [tick * 10.0**power for power in range(-6, 7) for tick in TICKS]


def _cut(text: str, width: int) -> str:
    """As much of it as fits, and dots for the rest."""
    short = text if len(text) <= width else f"{text[: width - len(DOTS)].rstrip(' ,+')}{DOTS}"
    return f"{short:<{width}}"
