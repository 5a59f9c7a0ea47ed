"""Speeds with their intervals, and what other people measured, on one axis of plain characters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

LABEL, AXIS = 26, 50  # columns
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


def strip(spans: Sequence[Span], dots: Sequence[Dots], unit: str) -> str:
    """The lines, at most 80 columns wide."""
    every = [value for span in spans for value in (span.lo, span.hi)] + [value for one in dots for value in one.tok_s]
    least, most = _ends(min(every), max(every))

    def place(value: float) -> int:
        share = math.log(value / least) / math.log(most / least)
        return round(min(max(share, 0.0), 1.0) * (AXIS - 1))

    lines = [_span(span, place) for span in spans]
    for one in dots:
        cells = [" "] * AXIS
        for value in one.tok_s:
            cells[place(value)] = one.mark
        lines.append(f"{_cut(one.label)} {''.join(cells)}".rstrip())
    rule, numbers = ["-"] * AXIS, [" "] * (AXIS + 4)
    for tick in _ticks(least, most):
        rule[place(tick)] = "+"
        text = f"{tick:g}"
        at = max(place(tick) - len(text) // 2, 0)
        if all(cell == " " for cell in numbers[max(at - 1, 0) : at + len(text) + 1]):
            numbers[at : at + len(text)] = text
    return "\n".join(
        [*lines, f"{'':{LABEL}} {''.join(rule)}", f"{_cut(unit)} {''.join(numbers).rstrip()}"],
    )


def _span(span: Span, place: Place) -> str:
    fill = "=" if span.first else "-"
    lo, mid, hi = (place(value) for value in (span.lo, span.tok_s, span.hi))
    cells = [" "] * AXIS
    cells[lo : hi + 1] = [fill] * (hi + 1 - lo)
    cells[lo], cells[hi] = "[", "]"
    cells[mid] = "|"
    return f"{_cut(span.label)} {''.join(cells)}".rstrip()


def _ends(least: float, most: float) -> tuple[float, float]:
    """The ends of the axis: numbers of TICKS times a power of ten."""
    low, high = LEAST, MOST
    if least < low:
        low = max((tick for tick in _every() if tick <= least), default=least)
    if most > high:
        high = min((tick for tick in _every() if tick >= most), default=most)
    return low, high


def _every() -> list[float]:
    return [tick * 10.0**power for power in range(-6, 7) for tick in TICKS]


def _ticks(least: float, most: float) -> list[float]:
    return [tick for tick in _every() if least * 0.999 <= tick <= most * 1.001]


def _cut(label: str) -> str:
    """As many of its words as fit."""
    while len(label) > LABEL:
        label, _, _ = label.rpartition(" ") if " " in label else (label[:LABEL], "", "")
    return f"{label.rstrip(' ,+'):<{LABEL}}"
