"""Hit rate, bytes per token and decode speed against the bank, with the best possible."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flashmoe_sim.policies.bank import MEANING, parse_bank
from flashmoe_sim.report.plotted import PALETTE, SHADE, mark, plain
from flashmoe_sim.sweep.summary import foresees

GREY, BEST = PALETTE.other, "optimum from an empty bank (min)"
MOST_TRACES = 8
MOST_MACHINES = 3
MOST_COLOURED = 8  # lines with their own colour; if there are more, only the best have one
BEST_COLOURED = 5
MOST_TICKS = 12
MOST_LETTERS = 40  # of a line of text
PANEL_INCHES = 4.6
HEIGHTS_INCHES = (4.2, 3.4, 2.8)  # of the panels for one, two, and three or more traces

Row = Mapping[str, Any]
Key = tuple[str, str]


class Style(NamedTuple):
    """The style of one line in every panel."""

    label: str
    colour: str
    marker: str


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw results, rows of schema.RESULT_COLUMNS, as a PNG: a row of panels for each of the first 8 traces.

    Each trace has a panel of hit rates, one of reads, and one of speeds for each of the first 3 machines. If there are
    more than 8 policies and predictors, lru and the 5 best without hindsight have colours.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    traces = list(dict.fromkeys((row["trace_id"], row["trace"]) for row in rows))
    machines = list(dict.fromkeys(row["machine"] for row in rows))
    timed = [] if machines == [None] else machines[:MOST_MACHINES]
    shown = traces[:MOST_TRACES]
    styles, banks = _styles(rows if timed else _beside_best(rows)), _banks(rows)
    height = HEIGHTS_INCHES[min(len(shown), len(HEIGHTS_INCHES)) - 1]
    with (
        rc_context({"text.parse_math": False}),  # a $ in a name is a $
        rc_context({"axes.titlelocation": "left", "axes.titlesize": "medium", "axes.titleweight": "bold"}),
    ):
        figure = Figure(figsize=(PANEL_INCHES * (2 + len(timed)) + 2, height * len(shown)), layout="constrained")
        FigureCanvasAgg(figure)
        left_out = [("traces", shown, traces), ("machines", timed, machines)]
        if cut := [f"the first {len(some)} of {len(all_)} {what}" for what, some, all_ in left_out if _cut(some, all_)]:
            figure.suptitle(f"{' and '.join(cut)}; results.csv has all")
        panels = figure.subplots(len(shown), 2 + len(timed), squeeze=False)
        for line, (trace_id, name) in zip(panels, shown, strict=True):
            of_trace = [row for row in rows if (row["trace_id"], row["trace"]) == (trace_id, name)]
            counted = [row for row in of_trace if row["machine"] == machines[0]]
            _draw_hits(line[0], counted, styles, banks, title=name)
            _draw_reads(line[1], counted, styles, banks)
            for panel, machine in zip(line[2:], timed, strict=True):
                _draw_speeds(panel, [row for row in of_trace if row["machine"] == machine], styles, banks)
                executions = {row["execution"] for row in of_trace if row["machine"] == machine}
                panel.set(title=", ".join([machine, *(executions if len(executions) == 1 else ())]))
        margin = 0.05 * max(len(banks) - 1, 1)
        for panel in panels.ravel():
            panel.set_xlim(-margin, len(banks) - 1 + margin)
            plain(panel)
            every = -(-len(banks) // MOST_TICKS)
            panel.set_xticks(range(0, len(banks), every), banks[::every])
        meaning = f"bank, {MEANING[parse_bank(banks[0]).unit]}"
        for panel in panels[-1]:
            panel.set_xlabel(meaning + (", in one bank" if rows[0]["scope"] == "global" else ""))
        lines = {line.get_label(): line for panel in panels.ravel() for line in panel.lines}
        labels = dict.fromkeys([*(style.label for style in styles.values() if style.colour != GREY), *lines])
        named = {label: lines[label] for label in labels if label in lines and not label.startswith("_")}
        figure.legend(named.values(), named.keys(), loc="outside right upper", frameon=False)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # missing letters are drawn as boxes
            figure.savefig(path, dpi=144)


def _cut(some: Sequence[Any], all_: Sequence[Any]) -> bool:
    return 0 < len(some) < len(all_)


def _banks(rows: Sequence[Row]) -> list[str]:
    """Every bank of any trace, ascending."""
    return sorted(dict.fromkeys(row["bank"] for row in rows), key=lambda bank: parse_bank(bank).size)


def _key(row: Row) -> Key:
    return row["policy"], row["prefetch"]


def _styles(rows: Sequence[Row]) -> dict[Key, Style]:
    """The style of each line: the same in all panels."""
    of_line: dict[Key, list[Row]] = {}
    for row in rows:
        of_line.setdefault(_key(row), []).append(row)
    usual = _usual_contract(rows)
    coloured = sorted(of_line, key=lambda key: foresees(of_line[key][0]))  # as in the page of a report
    if len(of_line) > MOST_COLOURED:
        worth = {key: _worth(some) for key, some in of_line.items() if not foresees(some[0])}
        best = sorted(worth, key=worth.__getitem__, reverse=True)[:BEST_COLOURED]
        coloured = [*best, *(key for key in of_line if key == ("lru", "none") and key not in best)]
    styles: dict[Key, Style] = {}
    others = len(of_line) - len(coloured)
    for key, some in of_line.items():
        if key not in coloured:
            styles[key] = Style(f"{others} others", GREY, "")
            continue
        number = coloured.index(key)
        under = {row["contract"] for row in some}
        other = f" ({', '.join(under)})" if usual not in under else ""
        label = " + ".join(name for name in key if name != "none") + other
        styles[key] = Style(textwrap.fill(label, MOST_LETTERS), mark(number)["color"], mark(number)["marker"])
    return dict(sorted(styles.items(), key=lambda item: coloured.index(item[0]) if item[0] in coloured else -1))


def _usual_contract(rows: Sequence[Row]) -> str:
    contracts: list[str] = [row["contract"] for row in rows]
    return max(contracts, key=contracts.count)


def _worth(rows: Sequence[Row]) -> float:
    """Mean hit rate; on machines, mean speed, 0 if the model does not fit."""
    timed = rows[0]["machine"] is not None
    return sum((row["tok_s"] or 0) if timed else row["hit_rate"] for row in rows) / len(rows)


def _draw_hits(panel: Any, rows: Sequence[Row], styles: Mapping[Key, Style], banks: list[str], *, title: str) -> None:
    _lines(panel, _beside_best(rows), styles, banks, lambda row: 100 * row["hit_rate"])
    _best(panel, rows, banks, lambda row: _scaled(row["best_hit_rate"], 100), above=True)
    panel.set(title=textwrap.fill(title, MOST_LETTERS), ylabel="hit rate, %", ylim=(0, 102))


def _draw_reads(panel: Any, rows: Sequence[Row], styles: Mapping[Key, Style], banks: list[str]) -> None:
    """Misses and reads ahead, in bytes if the model is known."""
    ahead = ", reads ahead included" if any(row["prefetch_issued"] for row in rows) else ""
    if any(row["bytes_read"] is None for row in rows):
        _lines(panel, rows, styles, banks, lambda row: _per_token(row, "misses", "prefetch_issued"))
        panel.set(ylabel=f"experts read per token{ahead}")
    else:
        unit, scale = _unit(max(_per_token(row, "bytes_read", "prefetch_bytes") or 0 for row in rows))
        shown = _beside_best(rows)
        _lines(panel, shown, styles, banks, lambda row: _scaled(_per_token(row, "bytes_read", "prefetch_bytes"), scale))
        _best(panel, rows, banks, lambda row: _scaled(row["best_bytes_per_token"], scale))
        panel.set(ylabel=f"{unit} read per token{ahead}")
    panel.set(title=f"contract {_usual_contract(rows)}", ylim=(0, None))


def _draw_speeds(panel: Any, rows: Sequence[Row], styles: Mapping[Key, Style], banks: list[str]) -> None:
    """Decode speeds, the coloured ones with their 90 % intervals."""
    _lines(panel, rows, styles, banks, lambda row: row["tok_s"])
    for key, style in styles.items():
        some = [row for row in rows if _key(row) == key and row["tok_s_lo"] is not None]
        if some and style.colour != GREY:
            ends = [[row["tok_s"] - row["tok_s_lo"] for row in some], [row["tok_s_hi"] - row["tok_s"] for row in some]]
            places = [banks.index(row["bank"]) for row in some]
            middles = [row["tok_s"] for row in some]
            panel.errorbar(places, middles, ends, fmt="none", ecolor=style.colour, elinewidth=0.8, capsize=2, alpha=0.6)
    if all(row["tok_s"] is None for row in rows):
        panel.text(0.5, 0.5, "does not fit", transform=panel.transAxes, ha="center")
    panel.set(ylabel="tokens a second, 90 % interval", ylim=(0, None))


def _lines(panel: Any, rows: Sequence[Row], styles: Mapping[Key, Style], banks: list[str], value: Any) -> None:
    for key, style in styles.items():
        points = {row["bank"]: value(row) for row in rows if _key(row) == key}
        known = {bank: point for bank, point in points.items() if point is not None}
        if known:
            panel.plot(
                [banks.index(bank) for bank in known],
                list(known.values()),
                color=style.colour,
                marker=style.marker or (None if len(known) > 1 else "."),
                markersize=4,
                linewidth=0.8 if style.colour == GREY else 1.5,
                label=style.label,
            )


def _beside_best(rows: Sequence[Row]) -> list[Row]:
    """The rows to draw: all but those of min, which has its own line; those of min if there are no others."""
    known = any(row["best_hit_rate"] is not None for row in rows)
    return [row for row in rows if not (known and _key(row) == ("min", "none"))] or list(rows)


def _best(panel: Any, rows: Sequence[Row], banks: list[str], value: Any, *, above: bool = False) -> None:
    """The best of each bank; above: what lies above it is shaded."""
    ceiling = {row["bank"]: point for row in rows if (point := value(row)) is not None}
    if ceiling:
        places = [banks.index(bank) for bank in ceiling]
        panel.plot(places, list(ceiling.values()), color=PALETTE.text, linestyle="--", linewidth=1.2, label=BEST)
        if above:
            panel.fill_between(places, list(ceiling.values()), 100, color=SHADE, linewidth=0)


def _per_token(row: Row, missed: str, ahead: str) -> float | None:
    return (row[missed] + row[ahead]) / row["tokens"] if row["tokens"] else None


def _scaled(number: float | None, scale: float) -> float | None:
    return None if number is None else number * scale


def _unit(largest: float) -> tuple[str, float]:
    """The unit for bytes of this size, and the factor from bytes."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if largest >= 1 << power:
            return unit, 1 / (1 << power)
    return "bytes", 1.0
