"""Systems side by side, as a chart and as a report's picture of a recommendation."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from flashmoe_sim.io.errors import Incomplete
from flashmoe_sim.io.sections import Figure, interval, percent, speed
from flashmoe_sim.io.sizes import size, three
from flashmoe_sim.report.cells import page_table
from flashmoe_sim.report.figures.style import (
    LINE,
    ROW,
    Chart,
    Row,
    altair_module,
    cleaned,
    label,
    labels,
    place,
    titled,
    values,
    y,
)
from flashmoe_sim.schema import COMPARED, frame
from flashmoe_sim.tune.recommend import Recommendation
from flashmoe_sim.tune.speeds import speed as tokens_a_second

if TYPE_CHECKING:
    import polars


WAITS = {"read_ms": "reads", "upload_ms": "uploads to the GPU", "cpu_ms": "experts on the CPU"}
NOTHING = "nothing"
LEAST_MS = 1e-9
LINE_LETTERS = 50  # of a reason
NAME_LETTERS = 52
TOP = 8  # pixels between the axis and the first row


def systems(table: polars.DataFrame) -> Chart:
    """Decode speed of each system with its 90% interval, the fastest on top, coloured by what misses wait for.

    table: schema.COMPARED, as returned by `compare`. It reads setting, why_not, tok_s, tok_s_lo, tok_s_hi, read_ms,
        upload_ms, cpu_ms, gpu_bytes, held_bytes and hit_rate. Systems that cannot run are listed below with the reason.
    Raises BadInput without rows.
    """
    altair = altair_module()
    every = table.to_dicts()
    if not every:
        raise Incomplete("systems: no rows; give the table of a comparison")
    ran = sorted((row for row in every if row["tok_s"] is not None), key=lambda row: -row["tok_s"])
    cannot = [row for row in every if row["tok_s"] is None]
    names = labels([row["setting"] for row in every], NAME_LETTERS)
    rows = [_row(row, names[row["setting"]]) | place(TOP + ROW * number) for number, row in enumerate(ran)]
    refused, reasons, top = [], [], float(TOP + ROW * len(ran))
    for row in cannot:
        reason = cleaned(row["why_not"] or "no speed")
        lines = textwrap.wrap(reason, LINE_LETTERS, max_lines=3, placeholder=" ...")
        refused.append({"system": f"{names[row['setting']]}: does not run", "text_y": top})
        reasons += [{"why": line, "text_y": top + LINE * (number + 1)} for number, line in enumerate(lines)]
        top += LINE * (len(lines) + 1) + 8
    height = int(top) or ROW
    fastest = max((row["hi"] for row in rows), default=1.0)
    scale = altair.Scale(domain=(0, fastest), nice=False)
    axis = altair.Axis(title="tokens a second", orient="top", tickCount=6) if rows else None
    x = altair.X("tok_s:Q", scale=scale, axis=axis)
    waits = [wait for wait in (*WAITS.values(), NOTHING) if any(row["waits"] == wait for row in rows)]
    all_waits = [*WAITS.values(), NOTHING]
    colour = altair.Color(
        "waits:N",
        scale=altair.Scale(domain=all_waits),
        legend=altair.Legend(title="misses wait for", values=waits) if rows else None,
    )
    data = altair.Chart(values(rows))
    tooltip = [altair.Tooltip(f"{name}:N") for name in ("system", "speed", "waits", "hit rate", "GPU", "RAM")]
    drawn = [
        data.mark_rect(opacity=0.85).encode(
            x=x, x2=altair.datum(0), y=y("upper", height), y2="lower:Q", color=colour, tooltip=tooltip
        ),
        data.mark_rule(style="ceiling", strokeDash=[1, 0]).encode(
            x=altair.X("lo:Q", scale=scale, axis=axis), x2="hi:Q", y=y("middle", height)
        ),
        data.mark_text(align="left", dx=6, style="note").encode(
            x=altair.X("hi:Q", scale=scale, axis=axis), y=y("middle", height), text="speed:N"
        ),
        data.mark_text(align="left", baseline="top", style="named").encode(
            x=altair.value(0), y=y("text_y", height), text="system:N"
        ),
    ]
    listed = [
        altair.Chart(values(some))
        .mark_text(align="left", baseline="top", style=style)
        .encode(x=altair.value(0), y=y("text_y", height), text=f"{field}:N")
        for some, style, field in ((refused, "named", "system"), (reasons, "note", "why"))
    ]
    chart = altair.layer(*(drawn if rows else []), *(listed if refused else [])).properties(height=height)
    if not ran:
        subtitle = "None of them runs there."
    else:
        subtitle = f"{label(ran[0]['setting'], NAME_LETTERS)} is predicted to be the fastest: {rows[0]['speed']}."
        if cannot:
            subtitle += f" {len(cannot)} of {len(every)} do not run."
    if rows:
        subtitle += " Lines: 90% intervals."
    return titled(chart, "Systems by decode speed", subtitle, f"Systems by decode speed. {subtitle}")


def _row(row: Row, name: str) -> Row:
    waited = {wait: row[column] or 0.0 for column, wait in WAITS.items()}
    longest = max(waited, key=waited.__getitem__)
    lo, hi = (row[end] if row[end] is not None else row["tok_s"] for end in ("tok_s_lo", "tok_s_hi"))
    interval = f" ({three(lo)} to {three(hi)})" if lo < hi else ""
    return {
        "system": name,
        "tok_s": row["tok_s"],
        "lo": lo,
        "hi": hi,
        "speed": f"{three(row['tok_s'])} tok/s{interval}",
        "waits": longest if waited[longest] > LEAST_MS else NOTHING,
        "hit rate": "-" if row["hit_rate"] is None else f"{row['hit_rate']:.1%}",
        "GPU": size(row["gpu_bytes"]),
        "RAM": size(row["held_bytes"]),
    }


def picture(advice: Recommendation) -> Figure:
    """Every system that runs, at its best and by its name in words; the table says why the others do not."""
    best = advice.best.best
    every = [best, *(one.best for one in advice.others)]
    ran = [one for one in every if one.tok_s is not None]
    often = {one.best.system: percent(advice.wins(one)) for one in advice.timed}
    columns = [
        ("system", "left", lambda one: one.system.spec),
        ("tok/s", "right", lambda one: speed(one.tok_s)),
        ("90%", "right", lambda one: interval(one.tok_s_lo, one.tok_s_hi)),
        ("faster in %", "right", lambda one: often.get(one.system, "")),
        ("hit %", "right", lambda one: percent(one.hit_rate)),
        ("GPU", "right", lambda one: size(one.gpu_bytes)),
        ("RAM", "right", lambda one: size(one.held_bytes)),
        ("why not", "left", lambda one: one.why_not),
    ]
    above = '; under "Predicted to be faster": why those above it do not stand first' if advice.faster else ""
    caption = (
        f"{advice.case.model.name} on {advice.case.machine.title}: the real programs, each at its best setting, with "
        f"90% intervals, which rise and fall together. Recommended: {best.system.title}, {tokens_a_second(best)}"
        f"{above}. Faster in: the share of draws of all that is unknown in which a program is faster than that one."
    )
    if left := len(every) - len(ran):
        caption += f" {left} more {'does' if left == 1 else 'do'} not run here; the table says why."
    chart = systems(frame([one.as_row() | {"setting": one.system.title} for one in ran], COMPARED))
    return Figure("systems", chart, caption, page_table(columns, every))
