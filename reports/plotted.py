"""How figures drawn with matplotlib look: as those of `figures/` do."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from flashmoe_sim.report.figures.style import PALETTES

PALETTE = PALETTES["light"]
COLOURS = PALETTE.lines
MARKERS = "osD^vP><"
SHADE = "#eeeeee"


def sheet(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(folder: Path, **figures: Figure) -> None:
    """Write each figure as a PNG of its name."""
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.png", dpi=110, metadata={"Software": None})


def mark(number: int) -> dict[str, Any]:
    """Colour and marker of a line; of many lines, no two have both in common."""
    again = number // len(COLOURS)
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[(number + again) % len(MARKERS)]}


def plain(panel: Any, *, grid: Literal["x", "y", "both"] = "y") -> None:
    """Take frame and ticks from a panel, and give it thin lines across: of its `grid` axis, or of both."""
    panel.grid(axis=grid, color=PALETTE.grid, linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.spines["bottom"].set_color(PALETTE.quiet)
    panel.tick_params(which="both", color=PALETTE.quiet, labelcolor=PALETTE.quiet)
    panel.tick_params(axis="y", which="both", length=0)
