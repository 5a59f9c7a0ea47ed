"""Policies against another one, with intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashmoe_sim.io.errors import Incomplete
from flashmoe_sim.report.figures.gains import HINDSIGHT, KINDS, ROW_PIXELS, kind_of
from flashmoe_sim.report.figures.style import Chart, Row, altair_module, cleaned, label, labels, need, titled, values
from flashmoe_sim.sweep.summary import line_text

if TYPE_CHECKING:
    import polars

MOST_ROWS = 24
MOST_LISTED = 4  # traces in the subtitle
FINE = 0.3  # opacity of one trace's interval
ENDS = {"value": "difference", "lo": "lower end", "hi": "upper end"}


def judged(rows: polars.DataFrame) -> Chart:
    """How far policies are above another one: a dot and an interval for each trace, and heavier ones for their mean.

    rows: schema.JUDGED, as returned by `judge_policies`: of one trace, bank or machine, or of several. Speeds are drawn
        if they were asked for, or else points of hit rate. Your own policies are on top, then the best means.
    Raises BadInput without rows.
    """
    altair = altair_module()
    need(rows, ("trace", "bank", "policy", "prefetch", "against", "more_hits", "gain"), "judged", "judge_policies")
    every = [row | {"line": line_text(row)} for row in rows.to_dicts()]
    if len({row.get("machine") for row in every}) > 1:
        every = [row | {"bank": f"{row['bank']}, {row['machine']}"} for row in every]
    if not every:
        raise Incomplete("judged: no rows; give the table of judge_policies")
    timed = all(row["gain"] is not None for row in every)
    value, scale, nothing = ("gain", 1.0, 1.0) if timed else ("more_hits", 100.0, 0.0)
    means = [row for row in every if row["trace"] is None] or every
    one_bank = len({row["bank"] for row in means}) == 1
    texts = {(row["bank"], row["line"]): row["line"] + ("" if one_bank else f", {row['bank']}") for row in means}
    short = labels(list(texts.values()))
    kinds = {(row["bank"], row["line"]): kind_of(row) for row in means}
    best = {row["line"]: max(one[value] for one in means if one["line"] == row["line"]) for row in means}
    of_bank = {row["bank"]: number for number, row in enumerate(means)}
    ranked = sorted(
        means,
        key=lambda row: (
            KINDS.index(kinds[row["bank"], row["line"]]),
            -best[row["line"]],
            row["line"],
            of_bank[row["bank"]],
        ),
    )[:MOST_ROWS]
    shown = {(row["bank"], row["line"]): short[texts[row["bank"], row["line"]]] for row in ranked}

    def drawn(row: Row) -> Row:
        line = row["bank"], row["line"]
        ends = {end: scale * row[f"{value}_{end}"] for end in ("lo", "hi") if row[f"{value}_{end}"] is not None}
        trace = "mean" if row["trace"] is None else label(row["trace"])
        return {"policy": shown[line], "trace": trace, "kind": kinds[line], "value": scale * row[value], **ends}

    single = [drawn(row) for row in every if row["trace"] is not None and (row["bank"], row["line"]) in shown]
    heavy = [drawn(row) for row in ranked]
    against = label(every[0]["against"])
    title = f"times as fast as {against}" if timed else f"points of hit rate above {against}"
    order = list(shown.values())
    x = altair.X("value:Q", scale=altair.Scale(zero=False), axis=altair.Axis(title=title, orient="top"))
    y = altair.Y("policy:N", sort=order, axis=altair.Axis(title=None, labelLimit=220))
    used = [kind for kind in KINDS if kind in kinds.values()]
    legend = altair.Legend(title=None, symbolOpacity=1) if len(used) > 1 else None
    colour = altair.Color("kind:N", scale=altair.Scale(domain=used), legend=legend)
    form = ".3f" if timed else "+.2f"
    exact = [altair.Tooltip(f"{name}:Q", title=text, format=form) for name, text in ENDS.items()]
    tooltip = ["policy:N", "trace:N", *exact]
    layers = [altair.Chart(values([{"nothing": nothing}])).mark_rule(style="ceiling").encode(x="nothing:Q")]
    for data, opacity, weight in ((single, FINE, 1.5), (heavy, 1.0, 4.0)):
        if data is single and means is every:
            continue
        place = {"y": y, "color": colour} | ({"yOffset": "trace:N"} if data is single else {})
        chart = altair.Chart(values(data)).encode(**place, tooltip=tooltip)
        layers += [
            chart.mark_rule(strokeWidth=weight, opacity=opacity).encode(
                x=altair.X("lo:Q", title=title), x2="hi:Q", color=colour
            ),
            chart.mark_point(opacity=max(opacity, 0.6), size=8 * weight + 12).encode(x=x),
        ]
    traces = len({row["trace"] for row in every} - {None})
    real = [row["line"] for row in ranked if kinds[row["bank"], row["line"]] != HINDSIGHT]
    most = max(real or best, key=best.__getitem__)

    def ends(line: str) -> str:
        found = [scale * row[value] for row in ranked if row["line"] == line]
        return " to ".join(f"{end:{'.2f' if timed else '+.1f'}}" for end in dict.fromkeys((min(found), max(found))))

    of_best = "" if most == ranked[0]["line"] else f"; the best, {label(most)}: {ends(most)}"
    subtitle = f"{label(ranked[0]['line'])}: {ends(ranked[0]['line'])} {'times as fast' if timed else 'points'}"
    subtitle += f"{of_best}. Lines: intervals."
    if means is not every:
        of = sorted({label(row["trace"]) for row in every if row["trace"] is not None})
        listed = f", from top: {', '.join(of)}" if len(of) <= MOST_LISTED else ""
        subtitle += f" Fine: each of {traces} traces{listed}; heavy: their means."
    if left := len(means) - len(ranked):
        subtitle += f" Not shown: {left} others."
    bank = f", bank {cleaned(means[0]['bank'])}" if one_bank else ""
    on = label(every[0]["trace"]) if traces == 1 else f"{traces} traces"
    heading = f"Policies against {against} on {on}{bank}"
    chart = altair.layer(*layers).properties(height=(ROW_PIXELS + 4 * (means is not every)) * len(shown))
    return titled(chart, heading, subtitle, f"{heading}. {subtitle}")
