"""The page of the fidelity report, from the predictions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reports import pages
from reports.fidelity.prediction import Group, Prediction

SPEED = "tok/s"
HEAD = """# How honest are the seconds?

Every prediction is compared with a measurement: real runs of the patched runtime, a phone's per-token times,
and tables that others have published. Nothing is fitted on the row that is reported, failures are left in, and no
number here is typed: `./dev report` makes this page, its figures and [results.csv](results.csv) again.
"""

PHONE = """One of the runs without routes. `c4000` is a cache of 4000 MiB, `l2` two reading lanes, `stream` no cache,
`ov` reads that overlap with compute.

![Measured and predicted time of each token of one run on the phone](phone.png)
"""
TABLE = "|---"


def markdown(groups: Sequence[Group]) -> str:
    """README.md."""
    every = [one for group in groups for one in group.predictions]
    parts = [HEAD, "## In short", in_short(every), overview(groups)]
    parts.append("![Signed error of every predicted speed, by what was measured](errors.png)")
    for group in groups:
        parts += [f"## {group.title}", group.explanation]
        if TABLE not in group.explanation:
            parts.append(table(group.predictions))
    return pages.wrapped(pages.joined(*parts, "## The phone, token by token", PHONE))


def in_short(every: Sequence[Prediction]) -> str:
    """Errors of all speeds together, and how often the 90% interval holds what was measured."""
    speeds = np.array([abs(one.error) for one in every if one.quantity == SPEED])
    within = [one.lo <= one.measured <= one.hi for one in every if one.lo is not None and one.hi is not None]
    return (
        f"Of {len(speeds)} predicted speeds the median error is {np.median(speeds):.1%}, nine in ten are within "
        f"{np.quantile(speeds, 0.9):.1%}, and the worst is off by {speeds.max():.0%}. Of the {len(within)} that come "
        f"with a 90% interval, {sum(within)} were measured inside it ({np.mean(within):.0%})."
    )


def overview(groups: Sequence[Group]) -> str:
    """A row for each group: how many predictions, and their errors."""
    rows = []
    for group in groups:
        errors = [abs(one.error) for one in group.predictions]
        rows.append((group.title, len(errors), f"{np.median(errors):.1%}", f"{group.worst:.1%}"))
    return pages.table(("what", "predictions", "median error", "worst"), rows, left=None)


def table(predictions: Sequence[Prediction]) -> str:
    """Every prediction of a group."""
    notes = any(one.note for one in predictions)
    head = ["predicted", "of", "fitted on", "measured", "predicted", "error", *(["note"] if notes else [])]
    rows = [
        (one.name, one.quantity, one.fitted_on, _measured(one), _predicted(one), f"{one.error:+.1%}", one.note)
        for one in predictions
    ]
    return pages.table(head, [row[: len(head)] for row in rows], left=None)


def _measured(one: Prediction) -> str:
    if one.measured_lo is None or one.measured_hi is None:
        return f"{one.measured:.3g}"
    return f"{one.measured_lo:.3g} to {one.measured_hi:.3g}"


def _predicted(one: Prediction) -> str:
    interval = "" if one.lo is None or one.hi is None else f" ({one.lo:.3g} to {one.hi:.3g})"
    return f"{one.predicted:.3g}{interval}"
