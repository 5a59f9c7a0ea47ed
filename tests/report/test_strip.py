"""Speeds on an axis of plain characters."""

from __future__ import annotations

import math

import numpy as np

from flashmoe_sim.report.strip import AXIS, LABEL, Dots, Span, SpeedAxis, in_a_row, powers, strip


def axis_of(lines: list[str], least: float) -> dict[int, float]:
    """The columns of the ticks, and their speeds. least: the smallest speed that is drawn."""
    ticks = [tick * 10.0**power for power in range(-3, 5) for tick in (1, 2, 5)]
    first = max(number for number, tick in enumerate(ticks) if tick <= min(least, 1.0))
    columns = [at for at, cell in enumerate(lines[-2]) if cell == "+"]
    return dict(zip(columns, ticks[first:], strict=False))


def test_columns_are_logarithms() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        lo, mid, hi = np.sort(np.exp(rng.uniform(math.log(0.02), math.log(900), 3)))
        others = np.exp(rng.uniform(math.log(0.3), math.log(300), 4))
        drawn = strip(
            [Span("this computer", lo, mid, hi, first=True)], [Dots("another", others, "*")], "tokens a second"
        )
        lines = drawn.split("\n")
        assert all(len(line) <= 80 for line in lines)
        axis = axis_of(lines, min(lo, *others))
        (first, least), *_, (last, most) = sorted(axis.items())
        assert least < most
        step = math.log(most / least) / (last - first)

        def value(column: int) -> float:
            return least * math.exp(step * (column - first))  # noqa: B023  # called in this round

        for cell, speed in zip("[|]", (lo, mid, hi), strict=True):
            if cell in lines[0]:  # two may share a column
                assert abs(math.log(value(lines[0].index(cell)) / speed)) < 1.6 * step
        dots = [column for column, cell in enumerate(lines[1]) if cell == "*"]
        assert 1 <= len(dots) <= len(others)
        for speed in others:
            assert min(abs(math.log(value(column) / speed)) for column in dots) < 1.6 * step


CUT = (
    ("a" * 40, f"{'a' * (LABEL - 3)}..."),
    ("RTX 5090 + RTX 4090, leloch's", "RTX 5090 + RTX 4090, le..."),
    ("RTX 5090 + RTX 4090 + RTX 3090", "RTX 5090 + RTX 4090 + R..."),
    ("2x RTX 5090 + RTX 3090, llama.cpp", "2x RTX 5090 + RTX 3090..."),
    ("RTX 4070, Ollama up to 0.29", "RTX 4070, Ollama up to..."),
    ("RTX 3060, leloch's llama.c", "RTX 3060, leloch's llama.c"),
)


def test_a_long_name_is_cut_and_ends_with_dots() -> None:
    for label, says in CUT:
        (line, *_) = strip([Span(label, 2.0, 3.0, 4.0, first=False)], [], "tokens a second").split("\n")
        assert line.startswith(f"{says:<{LABEL}} ")
        assert len(line) <= LABEL + 1 + AXIS


def test_a_row_of_a_table_stands_under_its_powers_of_ten() -> None:
    axis = SpeedAxis(1.0, 100.0)
    assert powers(axis, 21) == "1         10      100"
    assert in_a_row(Span("", 1.0, 10.0, 100.0, first=True), axis, 21) == f"{'=' * 10}|{'=' * 10}"
    assert in_a_row(Span("", 0.1, 0.5, 2.0, first=True), axis, 21) == f"{'|===':<21}"
