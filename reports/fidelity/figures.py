"""The figures of the fidelity report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from reports.fidelity.page import SPEED
from reports.fidelity.per_token import PerToken
from reports.fidelity.prediction import Group
from reports.plotted import COLOURS, SHADE, mark, plain, save, sheet


def draw(groups: Sequence[Group], shown: PerToken, folder: Path) -> None:
    """Draw errors.png, and phone.png of the run `shown`."""
    save(folder, errors=errors(groups), phone=phone(shown))


def errors(groups: Sequence[Group]) -> Figure:
    """Signed error of every speed against what was measured."""
    figure = sheet(9, 4.6)
    panel = figure.add_subplot()
    panel.axhspan(-10, 10, color=SHADE, zorder=0)
    panel.axhline(0, color="black", linewidth=0.8)
    for number, group in enumerate(groups):
        speeds = [one for one in group.predictions if one.quantity == SPEED]
        panel.plot(
            [one.measured for one in speeds],
            [100 * one.error for one in speeds],
            linestyle="none",
            label=group.title,
            **mark(number),
        )
    panel.set_xscale("log")
    ticks = (1, 2, 5, 10, 20, 50)
    panel.set_xticks(ticks, [str(tick) for tick in ticks])
    panel.minorticks_off()
    panel.set(xlabel="measured, tokens a second", ylabel="error of the predicted speed, %")
    plain(panel, grid="both")
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    return figure


def phone(shown: PerToken) -> Figure:
    """Measured and predicted time of each token."""
    figure = sheet(9, 3.6)
    panel = figure.add_subplot()
    tokens = np.arange(1, len(shown.measured_ms) + 1)
    panel.plot(tokens, shown.measured_ms, color=COLOURS[1], linewidth=1.2, label="measured")
    panel.plot(tokens, shown.predicted_ms, color=COLOURS[0], linewidth=1.2, label="predicted")
    panel.set_ylim(0, 1.1 * float(np.quantile(shown.measured_ms, 0.99)))
    panel.set(xlabel="token", ylabel="ms of a token")
    panel.set_title(f"{shown.name}, fitted on {shown.fitted_on}", fontsize=11, fontweight="bold", loc="left")
    plain(panel)
    panel.legend(frameon=False)
    return figure
