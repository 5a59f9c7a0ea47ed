"""The figures of the field report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from flashmoe_sim.field.rows import WAYS
from reports.field.residuals import known, on_parts
from reports.plotted import COLOURS, PALETTE, SHADE, plain, save, sheet

LEAST_ROWS = 3
TICKS = (0.1, 1, 10, 100)
OFF = (0.25, 0.5, 1, 2, 4)
ENDS = np.array([0.05, 500])


def draw(lines: pl.DataFrame, folder: Path) -> None:
    """Draw predicted.png and engines.png. lines: residuals.csv."""
    parts = on_parts(lines)
    save(folder, predicted=predicted(known(parts)), engines=engines(parts))


def predicted(lines: pl.DataFrame) -> Figure:
    """Predicted against measured speed of systems, without who measured it: a panel for each way to run a model."""
    name = "without_source"
    measured, tok_s = lines["measured_tok_s"].to_numpy(), lines[f"{name}_tok_s"].to_numpy()
    inside = lines["measured_tok_s"].is_between(lines[f"{name}_lo"], lines[f"{name}_hi"]).to_numpy()
    figure = sheet(9, 6.4)
    for number, (way, strategies) in enumerate(WAYS.items()):
        panel = figure.add_subplot(2, 3, number + 1)
        own = lines["strategy"].is_in(strategies).to_numpy()
        panel.fill_between(ENDS, ENDS / 2, ENDS * 2, color=SHADE, zorder=0)
        panel.plot(ENDS, ENDS, color="black", linewidth=0.8, zorder=1)
        panel.scatter(measured[~own], tok_s[~own], s=2, color=PALETTE.other, zorder=2)
        for held, colour, marker in ((True, COLOURS[0], "o"), (False, COLOURS[1], "x")):
            shown = own & (inside == held)
            panel.scatter(measured[shown], tok_s[shown], s=11, color=colour, marker=marker, linewidth=0.9, zorder=3)
        panel.set(xscale="log", yscale="log", xlim=ENDS, ylim=ENDS)
        panel.set_title(
            f"{way}\n{own.sum()} speeds, {inside[own].mean():.0%} in their interval", fontsize=9, loc="left"
        )
        panel.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
        panel.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
        plain(panel, grid="both")
    figure.supxlabel(
        "measured, tokens a second (band: within a factor of two; crosses: outside their 90% interval)", fontsize=9
    )
    figure.supylabel("predicted, tokens a second", fontsize=9)
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
