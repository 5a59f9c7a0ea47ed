"""The figures of the performance report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from reports.performance.measure import CONTRACTS
from reports.plotted import COLOURS, PALETTE, mark, plain, save, sheet

AXES = {"tokens": "tokens", "layers": "layers", "sizes": "bank sizes in one walk"}


def draw(results: dict[str, Any], folder: Path) -> None:
    """Draw growth.png and peers.png."""
    save(folder, growth=growth(results), peers=peers(results))


def growth(results: dict[str, Any]) -> Figure:
    """Time of a reference by tokens, layers and sizes."""
    figure = sheet(10, 3.6)
    panels = figure.subplots(1, len(AXES), sharey=True)
    for panel, (axis, label) in zip(panels, AXES.items(), strict=True):
        for number, contract in enumerate(CONTRACTS[:2]):
            rows = [row for row in results["rows"] if row["of"] == axis and row["contract"] == contract]
            amounts = [row["amount"] for row in rows]
            panel.plot(amounts, [row["ns"] for row in rows], label=contract, **mark(number))
        panel.set_xscale("log", base=2)
        panel.set_xticks(amounts, [_short(amount) for amount in amounts])
        panel.minorticks_off()
        panel.set_xlabel(label)
        plain(panel)
    panels[0].set_ylim(bottom=0)
    panels[0].set_ylabel("ns a reference")
    panels[0].legend(frameon=False)
    return figure


def peers(results: dict[str, Any]) -> Figure:
    """References a second of this program and of others."""
    rows = sorted((row for row in results["rows"] if row["of"] == "peers"), key=lambda row: -row["ns"])
    figure = sheet(10, 3.6)
    panel = figure.subplots()
    ours = [" size" in row["amount"] for row in rows]
    rates = [1e3 / row["ns"] for row in rows]
    bars = panel.barh(range(len(rows)), rates, color=[COLOURS[0] if one else PALETTE.other for one in ours])
    panel.bar_label(bars, [f"{rate:,.0f}" if rate > 100 else f"{rate:.1f}" for rate in rates], padding=4)
    panel.set_yticks(range(len(rows)), [row["amount"] for row in rows])
    panel.set_xscale("log")
    panel.set_xlabel("million references a second, one core")
    panel.margins(x=0.1)
    plain(panel, grid="x")
    return figure


def _short(amount: int) -> str:
    return f"{amount // 1000}k" if amount >= 1000 else str(amount)
