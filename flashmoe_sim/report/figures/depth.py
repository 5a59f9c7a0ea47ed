"""Decode speed against the depth of the context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashmoe_sim.io.errors import Incomplete
from flashmoe_sim.io.numbers import three
from flashmoe_sim.report.figures.style import HEIGHT, SHAPES, Chart, altair_module, labels, titled, values

if TYPE_CHECKING:
    import polars


def speeds_by_depth(rows: polars.DataFrame) -> Chart:
    """Decode speed against the tokens in the context, a line per system; the first has its 90% interval as a band.

    rows: schema.BY_DEPTH. Rows without a speed are left out.
    Raises BadInput if no row has a speed.
    """
    altair = altair_module()
    known = [row for row in rows.to_dicts() if row["tok_s"] is not None]
    if not known:
        raise Incomplete("speeds by depth: no row has a speed; give a model whose context is known")
    names = labels(list(dict.fromkeys(row["setting"] for row in known)))
    data = [row | {"system": names[row["setting"]], "speed": three(row["tok_s"])} for row in known]
    first, order = data[0]["system"], list(names.values())
    x = altair.X(
        "depth:Q",
        scale=altair.Scale(nice=False),
        axis=altair.Axis(title="tokens in the context", format=",d", tickCount=6),
    )
    top = max(row["tok_s_hi"] or row["tok_s"] for row in data)
    scale = altair.Scale(domain=(0, top), nice=False)
    y, lo = (
        altair.Y(f"{name}:Q", axis=altair.Axis(title="tokens a second"), scale=scale) for name in ("tok_s", "tok_s_lo")
    )
    legend = altair.Legend(title=None, symbolOpacity=1)
    colour = altair.Color("system:N", scale=altair.Scale(domain=order), legend=legend)
    shape = altair.Shape("system:N", scale=altair.Scale(domain=order, range=list(SHAPES[: len(order)])), legend=legend)
    tooltip = [altair.Tooltip(f"{name}:N") for name in ("system", "depth", "speed")]
    lines = altair.Chart(values(data)).encode(x=x, y=y, color=colour)
    band = [row for row in data if row["system"] == first and row["tok_s_lo"] is not None]
    layers = [
        altair.Chart(values(band)).mark_area(style="band").encode(x=x, y=lo, y2="tok_s_hi:Q", color=colour),
        lines.mark_line(),
        lines.mark_point().encode(shape=shape, tooltip=tooltip),
    ]
    ends = [row for row in data if row["system"] == first]
    subtitle = (
        f"{first}: {ends[0]['speed']} tok/s at {ends[0]['depth']:,} tokens, {ends[-1]['speed']} at "
        f"{ends[-1]['depth']:,}. Band: its 90% interval."
    )
    chart = altair.layer(*layers).properties(height=HEIGHT)
    return titled(chart, "Decode speed as the context fills", subtitle, f"Decode speed by depth. {subtitle}")
