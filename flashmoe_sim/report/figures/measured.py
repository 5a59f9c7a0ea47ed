"""Predictions against measurements."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from flashmoe_sim.io.errors import Incomplete, Malformed
from flashmoe_sim.report.figures.style import SHAPES, Chart, Row, altair_module, label, labels, titled, values

if TYPE_CHECKING:
    import polars

HEIGHT = 420
ROOM = 1.25
LEAST_TICKS = 3
DIGITS = ((1, 2, 5), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8))  # of ticks; the second if the first leaves too few


def predicted_measured(rows: polars.DataFrame) -> Chart:
    """Predicted against measured decode speed with 90% intervals, the diagonal, and a band of a factor of 2.

    rows: columns measured_tok_s and tok_s; optionally tok_s_lo and tok_s_hi (the interval), source (a point's name) and
        group (its colour), all but group as in schema.PREDICTED. Rows without both speeds, or with one that is not
        positive, are left out.
    Raises BadInput if no row has both speeds, or a column is missing.
    """
    altair = altair_module()
    if missing := [name for name in ("measured_tok_s", "tok_s") if name not in rows.columns]:
        raise Malformed(
            f"predicted against measured: no column {missing[0]}; give rows of a prediction with measurements"
        )
    known = [row for row in rows.to_dicts() if (row["measured_tok_s"] or 0) > 0 and (row["tok_s"] or 0) > 0]
    if not known:
        raise Incomplete("predicted against measured: no row has both speeds; give a table with measured ones")
    groups = labels([row.get("group") or "" for row in known], 34)
    data = [_point(row, groups) for row in known]
    speeds = [row[name] for row in data for name in ("measured", "predicted", "lo", "hi") if row[name] > 0]
    low, high = min(speeds) / ROOM, max(speeds) * ROOM
    scale = altair.Scale(type="log", domain=(low, high), nice=False, clamp=True)
    within = sum(0.5 <= row["predicted"] / row["measured"] <= 2 for row in data)
    off = statistics.median(max(row["predicted"] / row["measured"], row["measured"] / row["predicted"]) for row in data)
    x, y = _axis("measured", altair.X, scale), _axis("predicted", altair.Y, scale)
    ends = [{"measured": end, "predicted": end, "half": end / 2, "twice": 2 * end} for end in (low, high)]
    line = altair.Chart(values(ends)).encode(x=x)
    legend = altair.Legend(title=None, symbolOpacity=1) if len(groups) > 1 else None
    shapes = [SHAPES[(number + number // len(SHAPES)) % len(SHAPES)] for number in range(len(groups))]
    colour = altair.Color("group:N", scale=altair.Scale(domain=list(groups.values())), legend=legend)
    shape = altair.Shape("group:N", scale=altair.Scale(domain=list(groups.values()), range=shapes), legend=legend)
    toggled = altair.selection_point(name="shown", fields=["group"], bind="legend", toggle="true")
    seen = altair.when(toggled).then(altair.value(0.85)).otherwise(altair.value(0.06))
    thin = altair.when(toggled).then(altair.value(0.45)).otherwise(altair.value(0.04))
    tooltip = [altair.Tooltip("source:N", title="row"), altair.Tooltip("group:N")] if legend else []
    titles = {"measured": "measured, tok/s", "predicted": "predicted, tok/s", "lo": "90% from", "hi": "90% to"}
    tooltip += [altair.Tooltip(f"{name}:Q", title=title, format=".3g") for name, title in titles.items()]
    drawn = altair.Chart(values(data)).encode(x=x, color=colour)
    layers = [
        line.mark_area(style="shade", clip=True).encode(y=_axis("half", altair.Y, scale), y2="twice:Q"),
        line.mark_line(style="ceiling", strokeDash=[1, 0]).encode(y=y),
        drawn.mark_rule().encode(y=_axis("lo", altair.Y, scale), y2="hi:Q", opacity=thin),
        drawn.mark_point().encode(y=y, shape=shape, opacity=seen, tooltip=tooltip).add_params(toggled),
    ]
    chart = altair.layer(*layers).properties(height=HEIGHT)
    subtitle = (
        f"{within} of {len(data)} predictions are within a factor of 2 of what was measured (shaded); the median is "
        f"off by a factor of {off:.2f}."
    )
    title = "Predicted and measured decode speeds"
    return titled(chart, title, subtitle, f"{title}. {subtitle}")


def _point(row: Row, groups: dict[str, str]) -> Row:
    lo, hi = (row.get(name) or row["tok_s"] for name in ("tok_s_lo", "tok_s_hi"))
    return {
        "source": label(str(row.get("source") or "-"), 60),
        "group": groups[row.get("group") or ""],
        "measured": row["measured_tok_s"],
        "predicted": row["tok_s"],
        "lo": lo,
        "hi": hi,
    }


def _axis(name: str, channel: Any, scale: Any) -> Any:
    import altair

    low, high = scale.domain
    quantity = "measured" if name == "measured" else "predicted"
    few, more = ([digit * 10.0**power for power in range(-4, 6) for digit in digits] for digits in DIGITS)
    ticks = [tick for tick in few if low <= tick <= high]
    if len(ticks) < LEAST_TICKS:
        ticks = [tick for tick in more if low <= tick <= high]
    axis = altair.Axis(
        title=f"{quantity}, tokens a second",
        values=ticks,
        tickCount=len(ticks),
        format="~g",
        labelOverlap="greedy",
        labelSeparation=4,
        grid=True,
    )
    return channel(f"{name}:Q", scale=scale, axis=axis)
