"""The figures of the field report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from reports.field.residuals import known, on_parts
from reports.plotted import COLOURS, SHADE, mark, plain, save, sheet

LEAST_ROWS = 3
TICKS = (0.1, 1, 10, 100)
OFF = (0.25, 0.5, 1, 2, 4)
ENDS = np.array([0.05, 500])


def draw(lines: pl.DataFrame, folder: Path) -> None:
    """Draw predicted.png and engines.png. lines: residuals.csv."""
    parts = on_parts(lines)
    save(folder, predicted=predicted(known(parts)), engines=engines(parts))


def predicted(lines: pl.DataFrame) -> Figure:
    """Predicted against measured speed of systems, each with its interval, without who measured it."""
    figure = sheet(9, 6.2)
    panel = figure.add_subplot()
    panel.fill_between(ENDS, ENDS / 2, ENDS * 2, color=SHADE, zorder=0)
    panel.plot(ENDS, ENDS, color="black", linewidth=0.8)
    for number, (name, group) in enumerate(_groups(lines, "strategy")):
        tok_s, lo, hi = (group[f"without_source_{name}"].to_numpy() for name in ("tok_s", "lo", "hi"))
        panel.errorbar(
            group["measured_tok_s"].to_numpy(),
            tok_s,
            yerr=[tok_s - lo, hi - tok_s],
            linestyle="none",
            markersize=5,
            elinewidth=0.5,
            alpha=0.75,
            label=f"{name} ({len(group)})",
            **mark(number),
        )
    panel.set(xscale="log", yscale="log", xlim=ENDS, ylim=(0.03, 800))
    panel.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    panel.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    panel.set(xlabel="measured, tokens a second", ylabel="predicted, tokens a second")
    plain(panel, grid="both")
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    return figure


def engines(lines: pl.DataFrame) -> Figure:
    """Predicted without who measured it over measured, by system: each row, and the median."""
    named = lines.with_columns(pl.col("system").fill_null("any other engine"))
    groups = [(name, group) for name, group in _groups(named, "system") if len(group) >= LEAST_ROWS]
    figure = sheet(9, 0.28 * len(groups) + 1.2)
    panel = figure.add_subplot()
    panel.axvspan(0.5, 2, color=SHADE, zorder=0)
    panel.axvline(1, color="black", linewidth=0.8)
    for place, (_, group) in enumerate(reversed(groups)):
        ratios = (group["without_source_tok_s"] / group["measured_tok_s"]).to_numpy()
        panel.scatter(
            np.clip(ratios, 1 / 12, 12), [place] * len(ratios), s=18, facecolors="none", edgecolors=COLOURS[0]
        )
        panel.plot([np.median(ratios)] * 2, [place - 0.3, place + 0.3], color=COLOURS[1], linewidth=2.5)
    panel.set_yticks(range(len(groups)), [f"{name} ({len(group)})" for name, group in reversed(groups)])
    panel.set(xscale="log", xlim=(1 / 13, 13), xlabel="predicted over measured speed; bars: medians")
    panel.set_xticks(OFF, [f"{tick:g}" for tick in OFF])
    panel.minorticks_off()
    plain(panel, grid="x")
    return figure


def _groups(lines: pl.DataFrame, column: str) -> list[tuple[str, pl.DataFrame]]:
    """By a column, the largest group first."""
    found = [(str(name), group) for (name,), group in lines.group_by(column)]
    return sorted(found, key=lambda item: (-len(item[1]), item[0]))
