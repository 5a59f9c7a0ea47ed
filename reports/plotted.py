"""How figures drawn with matplotlib look: as those of `figures/` do."""

from __future__ import annotations

from typing import Any, Literal

from flashmoe_sim.report.figures.style import PALETTES

PALETTE = PALETTES["light"]
COLOURS = PALETTE.lines
MARKERS = "osD^vP><"
SHADE = "#eeeeee"


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
