"""Predicted against measured speeds, and how far each is off."""

from __future__ import annotations

import io
import re
from typing import Any

from native_bridge.check.result import Check, shown
from native_bridge.check.seconds import Seconds

WIDE = 8.0  # where speeds differ by more than this factor their axes are logarithmic
HELD, MISSED = "#0072b2", "#d55e00"


def draw(check: Check) -> str:
    """The figure as an SVG element, its text as shapes: a browser has other fonts than it was laid out with."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    named = [(shown(of), of[0].seconds) for of in check.predicted if of[0].seconds.measured_tok_s]
    figure = Figure(figsize=(11, max(4.6, 1.2 + 0.21 * len(named))), layout="constrained")
    FigureCanvasSVG(figure)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
    _speeds(left, [one for _, one in named])
    _errors(right, named)
    for panel in (left, right):
        panel.grid(color="#dddddd", linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    drawn = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "check"}):
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    return re.sub(r"^.*?(?=<svg )", "", drawn.getvalue(), flags=re.DOTALL)


def _speeds(panel: Any, speeds: list[Seconds]) -> None:
    from matplotlib.ticker import LogLocator

    ends = [end for one in speeds for end in (one.measured_tok_s, one.tok_s, one.tok_s_lo, one.tok_s_hi) if end]
    least, most = min(ends), max(ends)
    if most > WIDE * least:
        panel.set(xscale="log", yscale="log")
        room = (least / 1.2, most * 1.2)
    else:
        room = (least - 0.08 * (most - least), most + 0.08 * (most - least))
    panel.plot(room, room, color="#999999", linewidth=1, zorder=1, label="predicted = measured")
    for held, colour, label in ((True, HELD, "measured within the 90 % interval"), (False, MISSED, "outside it")):
        some = [one for one in speeds if (one.held is True) == held]
        if some:
            measured, predicted = [one.measured_tok_s for one in some], [one.tok_s or 0.0 for one in some]
            panel.plot(measured, predicted, "o", color=colour, markersize=5, label=label)
    panel.set(xlim=room, ylim=room, xlabel="measured, tokens a second", ylabel="predicted, tokens a second")
    if most > WIDE * least:
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.set_minor_formatter(lambda value, _: "")
    panel.set_aspect("equal", adjustable="box")
    panel.legend(frameon=False, loc="upper left")


def _errors(panel: Any, named: list[tuple[str, Seconds]]) -> None:
    for row, (_, one) in enumerate(named):
        assert one.tok_s is not None
        colour = HELD if one.held else MISSED
        lo, hi = (100 * ((end or one.tok_s) / one.measured_tok_s - 1) for end in (one.tok_s_lo, one.tok_s_hi))
        panel.plot((lo, hi), (row, row), color=colour, linewidth=1.5)
        panel.plot(100 * (one.tok_s / one.measured_tok_s - 1), row, "o", color=colour, markersize=5)
    panel.axvline(0, color="#999999", linewidth=1, zorder=1)
    panel.set_yticks(range(len(named)), [name for name, _ in named], fontsize=8)
    panel.set(ylim=(len(named) - 0.4, -0.6), xlabel="error of the prediction and its 90 % interval, %")
