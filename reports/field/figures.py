"""The figures of the field report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from reports.field.scores import Judged, grouped
from reports.field.tune import engine_of
from reports.plotted import COLOURS, SHADE, mark, plain, save, sheet

LEAST_ROWS = 3
TICKS = (0.1, 1, 10, 100)
OFF = (0.25, 0.5, 1, 2, 4)


def draw(rows: Sequence[Judged], folder: Path) -> None:
    """Draw predicted.png and engines.png."""
    save(folder, predicted=predicted(rows), engines=engines(rows))


def predicted(rows: Sequence[Judged]) -> Figure:
    """Predicted against measured speed, each row tuned without its machine, with its interval."""
    figure = sheet(9, 6.2)
    panel = figure.add_subplot()
    ends = np.array([0.05, 500])
    panel.fill_between(ends, ends / 2, ends * 2, color=SHADE, zorder=0)
    panel.plot(ends, ends, color="black", linewidth=0.8)
    for number, (strategy, group) in enumerate(grouped(rows, lambda row: row.strategy).items()):
        real = np.array([one.row.decode_tok_s for one in group])
        ours, lo, hi = (
            np.array([getattr(one.without_machine, name) for one in group]) for name in ("tok_s", "lo", "hi")
        )
        panel.errorbar(
            real,
            ours,
            yerr=[ours - lo, hi - ours],
            linestyle="none",
            markersize=5,
            elinewidth=0.5,
            alpha=0.75,
            label=f"{strategy} ({len(group)})",
            **mark(number),
        )
    panel.set(xscale="log", yscale="log", xlim=ends, ylim=(0.03, 800))
    panel.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    panel.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    panel.set(xlabel="measured, tokens a second", ylabel="predicted without the row's machine, tokens a second")
    plain(panel, grid="both")
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    return figure


def engines(rows: Sequence[Judged]) -> Figure:
    """Predicted over measured by engine: each row, and the median."""
    groups = {name: group for name, group in grouped(rows, engine_of).items() if len(group) >= LEAST_ROWS}
    figure = sheet(9, 0.28 * len(groups) + 1.2)
    panel = figure.add_subplot()
    panel.axvspan(0.5, 2, color=SHADE, zorder=0)
    panel.axvline(1, color="black", linewidth=0.8)
    for place, group in enumerate(reversed(groups.values())):
        for kind, colour, size, shift in (
            ("without_machine", COLOURS[1], 18, -0.14),
            ("in_sample", COLOURS[0], 18, 0.14),
        ):
            ratios = [(getattr(one, kind).tok_s or math.nan) / (one.row.decode_tok_s or math.nan) for one in group]
            label = {"without_machine": "without its machine", "in_sample": "with all rows"}[kind]
            panel.scatter(
                np.clip(ratios, 1 / 12, 12),
                [place + shift] * len(ratios),
                s=size,
                facecolors="none",
                edgecolors=colour,
                label=label if place == 0 else None,
            )
            panel.plot(
                [np.median(ratios)] * 2, [place + shift - 0.14, place + shift + 0.14], color=colour, linewidth=2.5
            )
    panel.set_yticks(range(len(groups)), [f"{name} ({len(group)})" for name, group in reversed(groups.items())])
    panel.set(xscale="log", xlim=(1 / 13, 13), xlabel="predicted over measured speed; bars: medians")
    panel.set_xticks(OFF, [f"{tick:g}" for tick in OFF])
    panel.minorticks_off()
    plain(panel, grid="x")
    figure.legend(loc="outside upper right", frameon=False, fontsize=9, ncols=2)
    return figure
