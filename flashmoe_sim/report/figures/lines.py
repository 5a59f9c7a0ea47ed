"""Lines against the bank, one per policy and predictor: shared by hit rates and speeds."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from flashmoe_sim.io.errors import Conflict
from flashmoe_sim.io.sizes import GIB, size
from flashmoe_sim.policies.bank import parse_bank
from flashmoe_sim.report.figures.style import DASHES, SHAPES, Row, cleaned, labels, names_apart, values
from flashmoe_sim.sweep.summary import foresees, line_text, of_user

if TYPE_CHECKING:
    import altair

MOST_NAMED = 6  # lines with their names at their ends
MOST_COLOURED = 8
BEST_COLOURED = 5
MOST_MARKERS = 20  # of a line
MOST_TICKS = 24
LOGARITHMIC = 8  # if the largest bank is at least this many times the smallest
LEAST_POWERS = 3


@dataclass(frozen=True)
class Named:
    """Lines with their names. coloured: the names with their own colour, in order; others: how many have none."""

    of: dict[tuple[str, ...], str]
    coloured: tuple[str, ...]

    @property
    def few(self) -> bool:
        """Whether the lines can have their names at their ends."""
        return len(self.of) <= MOST_NAMED

    @property
    def others(self) -> int:
        return len(self.of) - len(self.coloured)


def line_of(row: Row) -> tuple[str, ...]:
    """The key of a line: the policy, the predictor and the contract."""
    return row["policy"], row["prefetch"], row["contract"]


def named(rows: Sequence[Row], worth: str) -> Named:
    """Name every line; if there are more than 8, lru and the 5 best by `worth` without hindsight have colours.

    The user's own policies are best of all. Lines with hindsight get their colours last, so that the others keep theirs
    in figures without them.
    """
    of_line: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        of_line.setdefault(line_of(row), []).append(row)
    contracts = [row["contract"] for row in rows]
    usual = max(dict.fromkeys(contracts), key=contracts.count)
    texts: dict[tuple[str, ...], str] = {}
    for line, (row, *_) in of_line.items():
        text = line_text(row)
        texts[line] = text if row["contract"] == usual else f"{text} ({row['contract']})"
    shown = labels(list(texts.values()))
    names = {line: shown[text] for line, text in texts.items()}
    lines = sorted(of_line, key=lambda line: foresees(of_line[line][0]))
    if len(lines) > MOST_COLOURED:
        mean = {line: sum(row[worth] for row in some) / len(some) for line, some in of_line.items()}
        real = [line for line, some in of_line.items() if not foresees(some[0])]
        best = sorted(real, key=lambda line: (not of_user(of_line[line][0]), -mean[line]))[:BEST_COLOURED]
        lines = [*best, *(line for line in lines if line[:2] == ("lru", "none") and line not in best)]
    return Named(names, tuple(names[line] for line in lines))


@dataclass(frozen=True)
class Axis:
    """The banks of a figure. of: the place of each bank's text. memory: its bytes as text, or empty."""

    title: list[str]
    of: dict[str, float]
    memory: dict[str, str]

    @property
    def logarithmic(self) -> bool:
        low, high = min(self.of.values()), max(self.of.values())
        return high >= LOGARITHMIC * low

    @property
    def ends(self) -> tuple[float, float]:
        """Where the axis begins and ends: at the smallest and the largest bank, or around a single one."""
        low, high = min(self.of.values()), max(self.of.values())
        return (low, high) if low < high else (low / 1.5, high * 1.5)

    def x(self, **more: Any) -> altair.X:
        """The channel of the banks, with their memory below their slots."""
        import altair

        ticks = self.ticks()
        texts = [[f"{place:,g}", *([self.memory[bank]] if self.memory[bank] else [])] for bank, place in ticks.items()]
        chosen = json.dumps([text if len(text) > 1 else text[0] for text in texts])
        return altair.X(
            "x:Q",
            scale=altair.Scale(type="log" if self.logarithmic else "linear", base=2, domain=self.ends, nice=False)
            if self.logarithmic
            else altair.Scale(domain=self.ends, nice=False, zero=False),
            axis=altair.Axis(
                title=self.title,
                values=list(ticks.values()),
                tickCount=len(ticks),
                labelExpr=f"{chosen}[indexof({json.dumps(list(ticks.values()))}, datum.value)]",
                labelOverlap="greedy",
                labelSeparation=6,
                labelFlush=False,
            ),
            **more,
        )

    def ticks(self) -> dict[str, float]:
        """The banks with a tick: all; if there are many, powers of two, or as many as fit, evenly spaced."""
        powers = {bank: place for bank, place in self.spaced(len(self.of)).items() if math.log2(place).is_integer()}
        if len(self.of) > MOST_TICKS and self.logarithmic and len(powers) >= LEAST_POWERS:
            return powers
        return self.spaced(MOST_TICKS)

    def spaced(self, most: int) -> dict[str, float]:
        """The banks in ascending order, at most `most` of them, evenly spaced on the axis and including both ends."""
        banks = sorted(self.of, key=self.of.__getitem__)
        if len(banks) > most:
            place = math.log if self.logarithmic else float
            low, high = place(self.of[banks[0]]), place(self.of[banks[-1]])
            wanted = [low + (high - low) * one / (most - 1) for one in range(most)]
            banks = list(dict.fromkeys(min(banks, key=lambda bank: abs(place(self.of[bank]) - one)) for one in wanted))
        return {bank: self.of[bank] for bank in banks}


def bank_axis(rows: Sequence[Row]) -> Axis:
    """The axis of all banks of some rows. Raises BadInput for banks in different units."""
    banks = {text: parse_bank(text) for text in dict.fromkeys(row["bank"] for row in rows)}
    units = {bank.unit for bank in banks.values()}
    if len(units) > 1:
        raise Conflict(f"banks in {' and in '.join(sorted(units))} have no axis in common; draw them one by one")
    unit = units.pop()
    memory = {row["bank"]: row["resident_bytes"] for row in rows}
    scope = ", in one bank" if rows[0]["scope"] == "global" else ""
    if unit == "bytes":
        places = {text: float(bank.size) / GIB for text, bank in banks.items()}
        return Axis([f"bank of all layers{scope}, GiB"], places, dict.fromkeys(banks, ""))
    known = all(one is not None for one in memory.values())
    what, scale = ("slots", 1) if unit == "slots" else ("% of the experts", 100)
    return Axis(
        [f"bank, {what} of each layer{scope}", *(["below: memory of all banks"] if known else [])],
        {text: float(scale * bank.size) for text, bank in banks.items()},
        {text: size(memory[text]) if known else "" for text in banks},
    )


def points(rows: Sequence[Row], names: Named, axis: Axis, value: str, scale: float, **more: str) -> list[Row]:
    """One row per point of a line: line, x, y, bank, memory, and the columns of `more` under its names, scaled."""
    return [
        {
            "line": names.of[line_of(row)],
            "x": axis.of[row["bank"]],
            "y": scale * row[value],
            "bank": cleaned(row["bank"]),
            "memory": axis.memory[row["bank"]] or "not known",
            **{name: scale * row[column] for name, column in more.items() if row[column] is not None},
        }
        for row in rows
        if row[value] is not None
    ]


def toggled_by_legend() -> Any:
    """The selection of lines by clicks on their names in the legend; without one, all are shown."""
    import altair

    return altair.selection_point(name="shown", fields=["line"], bind="legend", toggle="true")


class Upward(NamedTuple):
    """The y axis of lines: its channel, the name of its values, and those at its ends."""

    y: Any
    title: str
    low: float
    top: float


def line_layers(
    data: list[Row],
    names: Named,
    axis: Axis,
    upward: Upward,
    *,
    toggled: Any,
    chooses: bool = True,
    rules: Sequence[tuple[str, float]] = (),
) -> list[Any]:
    """The layers of coloured lines: lines, their markers, and names at their ends if there are few.

    toggled: the selection of lines in the legend; None to name lines at their ends, if there is room for a few.
    chooses: whether this panel holds the selection, as one of several does; it must be in a layer with colours.
    rules: texts and values of other names at the ends.
    """
    import altair

    y, title, low, top = upward
    marked = set(axis.spaced(MOST_MARKERS).values())
    coloured = [row for row in data if row["line"] in names.coloured]
    at_ends = toggled is None
    legend = None if at_ends else altair.Legend(title=None, symbolOpacity=1)
    order = list(names.coloured)
    scale = altair.Scale(domain=order)
    colour = altair.Color("line:N", scale=scale, legend=legend)
    shapes = [SHAPES[number % len(SHAPES)] for number in range(len(order))]
    shape = altair.Shape("line:N", scale=altair.Scale(domain=order, range=shapes), legend=legend)
    dashes = [DASHES[number % len(DASHES)] for number in range(len(order))]
    dash = altair.StrokeDash("line:N", scale=altair.Scale(domain=order, range=dashes), legend=None)
    faded = altair.value(1) if at_ends else altair.when(toggled).then(altair.value(1)).otherwise(altair.value(0.12))
    tooltip = [
        altair.Tooltip("line:N", title="policy"),
        altair.Tooltip("bank:N"),
        altair.Tooltip("memory:N"),
        altair.Tooltip("y:Q", title=title, format=".4g"),
    ]
    drawn = altair.Chart(values(coloured)).encode(x=axis.x(), y=y, color=colour, opacity=faded)
    # a legend would draw its markers dashed
    lines = drawn.mark_line().encode(strokeDash=dash) if at_ends else drawn.mark_line()
    layers = [lines if at_ends or not chooses else lines.add_params(toggled)]
    seen = altair.Chart(values(row for row in coloured if row["x"] in marked))
    layers.append(seen.mark_point().encode(x=axis.x(), y=y, color=colour, shape=shape, opacity=faded, tooltip=tooltip))
    ends = _last_points(coloured) if at_ends else []
    if ends or rules:
        layers += _end_labels([*ends, *rules], len(ends), axis, y, colour, shape, low=low, top=top)
    return layers


def _last_points(data: list[Row]) -> list[tuple[str, float]]:
    """The name of each line, and its value at its largest bank."""
    last: dict[str, Row] = {}
    for row in data:
        if row["line"] not in last or row["x"] > last[row["line"]]["x"]:
            last[row["line"]] = row
    return [(line, row["y"]) for line, row in last.items()]


def _end_labels(
    ends: list[tuple[str, float]], lines: int, axis: Axis, y: Any, colour: Any, shape: Any, *, low: float, top: float
) -> list[Any]:
    """Names right of the figure, moved so that none overlap; the first `lines` of them have markers."""
    import altair

    _, right = axis.ends
    rows = names_apart([{"line": name, "x": right, "ends_at": value} for name, value in ends], low, top)
    named_lines, others = (altair.Chart(values(some)).encode(x=axis.x(), y=y) for some in (rows[:lines], rows[lines:]))
    layers = []
    if lines:
        layers.append(named_lines.mark_point(xOffset=14).encode(color=colour, shape=shape))
        layers.append(named_lines.mark_text(align="left", dx=23, style="named").encode(text="line:N"))
    if len(rows) > lines:
        layers.append(others.mark_text(align="left", dx=9, style="note").encode(text="line:N"))
    return layers
