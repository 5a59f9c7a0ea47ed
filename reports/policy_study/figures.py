"""The figures of the policy study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.figure import Figure

from flashmoe_sim.io.sections import signed
from reports.plotted import PALETTE, mark, plain, save, sheet
from reports.policy_study.measure import (
    FIRST_HALF,
    HINDSIGHT,
    MIDDLE,
    ONLINE,
    SHARES,
    STEPS,
    against_lru,
    best_online,
    lookahead,
    ranked,
)

STRONGEST = 6.0
DARK = 4.5


def draw(results: pl.DataFrame, folder: Path) -> None:
    """Draw curves.png, points.png and lookahead.png."""
    against = against_lru(results)
    save(folder, curves=curves(against), points=points(against), lookahead=ahead(results))


def curves(against: pl.DataFrame) -> Figure:
    """Hit rate against the bank, a panel for each trace."""
    best = best_online(ranked(against))
    shown = ("min", "min:forced", best, "lru", FIRST_HALF, "fifo")
    figure, panels = _figure(5.6, rows=2, columns=4, sharey=True)
    traces = against["trace"].unique(maintain_order=True)
    for panel, trace in zip(panels.flat, traces, strict=True):
        for number, policy in enumerate(shown):
            of = against.filter((pl.col("trace") == trace) & (pl.col("policy") == policy))
            hits = [of.filter(pl.col("share") == share)["hit_rate"].item() * 100 for share in SHARES]
            style = mark(number - 1) | {"markersize": 4}
            if policy == "min":
                style = {"color": PALETTE.text, "linestyle": "--", "linewidth": 1.2}
            panel.plot(range(len(SHARES)), hits, label=policy, **style)
        panel.set_title(trace, fontsize=11, fontweight="bold", loc="left")
        panel.set_xticks(range(len(SHARES)), [f"1/{share}" for share in SHARES])
        panel.set_ylim(0, 102)
    figure.set_layout_engine("constrained", wspace=0.07)
    figure.supylabel("hit rate, %", fontsize=11)
    figure.supxlabel("bank, share of each layer's experts", fontsize=11)
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(shown), frameon=False)
    return figure


def points(against: pl.DataFrame) -> Figure:
    """A heat map of points above LRU: policies by their mean, hindsight above the line."""
    middle = against.filter(pl.col("share") == MIDDLE)
    order = ranked(middle)["policy"].to_list()
    hindsight = [name for name in order if name in HINDSIGHT]
    policies = hindsight + [name for name in order if name in ONLINE and name != "lru"]
    wide = middle.pivot("trace", index="policy", values="points")
    traces = wide.columns[1:]
    values = [list(wide.row(by_predicate=pl.col("policy") == name))[1:] for name in policies]
    figure, panels = _figure(0.29 * len(policies) + 1.6, rows=1, columns=1)
    panel = panels.flat[0]
    image = panel.imshow(values, cmap="RdBu", vmin=-STRONGEST, vmax=STRONGEST, aspect="auto")
    panel.grid(visible=False)
    for row, of_policy in enumerate(values):
        for column, value in enumerate(of_policy):
            colour = "white" if abs(value) > DARK else "black"
            panel.text(column, row, signed(value), ha="center", va="center", fontsize=8.5, color=colour)
    panel.axhline(len(hindsight) - 0.5, color="black", linewidth=1.5)
    panel.set_yticks(range(len(policies)), policies)
    panel.set_xticks(range(len(traces)), ["-\n".join(trace.rsplit("-", 1)) for trace in traces], fontsize=9)
    panel.xaxis.tick_top()
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
    figure.colorbar(
        image, ax=panel, extend="both", shrink=0.5, aspect=30, pad=0.01, label="points of hit rate above LRU"
    )
    return figure


def ahead(results: pl.DataFrame) -> Figure:
    """What a lookahead of so many steps hits, and how much of the way to min:forced that is."""
    against = against_lru(results).filter(pl.col("share") == MIDDLE)
    policies = ["lru", *(lookahead(steps) for steps in STEPS), "min:forced"]
    figure, panels = _figure(4.4, rows=1, columns=2)
    left, right = panels.flat
    for number, trace in enumerate(against["trace"].unique(maintain_order=True)):
        of = against.filter(pl.col("trace") == trace)
        hits = [of.filter(pl.col("policy") == policy)["hit_rate"].item() * 100 for policy in policies]
        style = mark(number) | {"markersize": 4}
        left.plot(range(len(hits)), hits, label=trace, **style)
        right.plot(range(len(hits)), [100 * (hit - hits[0]) / (hits[-1] - hits[0]) for hit in hits], **style)
    left.set(ylabel="hit rate, %", ylim=(0, 102))
    right.set(ylabel="of the way from LRU to min:forced, %", ylim=(-4, 104))
    right.axhline(50, color=PALETTE.quiet, linewidth=1, linestyle=":")
    for panel in (left, right):
        panel.set_xticks(range(len(policies)), ["0\n(lru)", *map(str, STEPS), "all\n(min:forced)"])
        panel.set_xlabel("steps of the model that eviction sees ahead")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
    return figure


def _figure(height: float, *, rows: int, columns: int, sharey: bool = False) -> tuple[Figure, Any]:
    figure = sheet(10, height)
    panels = figure.subplots(rows, columns, squeeze=False, sharey=sharey)
    for panel in panels.flat:
        plain(panel)
    return figure, panels
