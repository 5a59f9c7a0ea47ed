"""Decode speed against the bank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashmoe_sim.ceilings.speed import ALL_HIT, FLOOR, ORACLE, SpeedCeilings
from flashmoe_sim.io.errors import Conflict, Incomplete
from flashmoe_sim.io.numbers import three
from flashmoe_sim.report.figures.lines import (
    Axis,
    Named,
    Upward,
    bank_axis,
    line_layers,
    named,
    points,
    toggled_by_legend,
)
from flashmoe_sim.report.figures.style import (
    HEIGHT,
    TITLE_LETTERS,
    Chart,
    Row,
    altair_module,
    label,
    need,
    titled,
    values,
)
from flashmoe_sim.sweep.summary import foresees

if TYPE_CHECKING:
    import polars

RULES = (ALL_HIT, ORACLE, "min", FLOOR)
SPEED = "tokens a second"
ROOM = 1.06
BEYOND = 2.5  # ceilings above this many times the fastest line are only named
MOST_BANDS = 3


def speeds(rows: polars.DataFrame, *, ceilings: SpeedCeilings | None = None) -> Chart:
    """Decode speed against the bank with its 90% interval, a line per policy and predictor.

    rows: schema.RESULT_COLUMNS of one trace and one machine. It reads trace, machine, policy, contract, prefetch,
        scope, bank, tok_s, tok_s_lo, tok_s_hi and resident_bytes; rows without a speed are left out.
    ceilings: all-hit, oracle-prefetch, min and the bandwidth limit of one bank, as rules.
    Raises BadInput if no row has a speed, and for several traces or machines.
    """
    altair = altair_module()
    need(rows, ("trace", "machine", "policy", "prefetch", "bank", "tok_s", "tok_s_hi"), "speeds", "sweep")
    known = [row for row in rows.to_dicts() if row["tok_s"] is not None]
    if not known:
        raise Incomplete("speeds: no row has a speed; give rows of a sweep with a machine whose memory holds the model")
    for name in ("trace", "machine"):
        if len(several := {row[name] for row in known}) > 1:
            raise Conflict(f"speeds: {len(several)} {name} values; give the rows of one")
    names, axis = named(known, "tok_s"), bank_axis(known)
    top = ROOM * max(row["tok_s_hi"] or row["tok_s"] for row in known)
    rules = [] if ceilings is None else [row for name in RULES if (row := ceilings.row(name)) is not None]
    drawn_rules = [row for row in rules if row.tok_s <= BEYOND * top]
    top = max([top, *(ROOM * row.tok_s for row in drawn_rules)])
    data = points(known, names, axis, "tok_s", 1, lo="tok_s_lo", hi="tok_s_hi")
    toggled = None if names.few else toggled_by_legend()
    bars = [row for row in data if row["line"] in names.coloured and "lo" in row]
    layers = _intervals(bars, names, axis, top, toggled)
    if drawn_rules:
        marks = altair.Chart(values({"y": row.tok_s} for row in drawn_rules))
        layers.append(marks.mark_rule(style="ceiling").encode(y=_y("y", top)))
    named_rules = [(f"{row.name} {three(row.tok_s)}", row.tok_s) for row in drawn_rules]
    layers += line_layers(data, names, axis, Upward(_y("y", top), SPEED, 0.0, top), toggled=toggled, rules=named_rules)
    best = max([row for row in known if not foresees(row)] or known, key=lambda row: row["tok_s"])
    subtitle = (
        f"{label(best['trace'], 40)}: {label(best['policy'])} reaches {three(best['tok_s'])} tok/s at a bank of "
        f"{label(best['bank'])}. {'Bands' if len(names.coloured) <= MOST_BANDS else 'Bars'}: 90% intervals."
    )
    if names.others:
        subtitle += f" Not drawn: {names.others} others."
    if ceilings is not None:
        subtitle += f" Dashed: ceilings at bank {label(ceilings.bank)}."
        far = [f"{row.name} at {three(row.tok_s)}" for row in rules if row not in drawn_rules]
        subtitle += f" Beyond the figure: {', '.join(far)}." if far else ""
    chart = altair.layer(*layers).properties(height=HEIGHT)
    return titled(
        chart, f"Decode speed on {label(best['machine'], TITLE_LETTERS)}", subtitle, f"Decode speed. {subtitle}"
    )


def _y(field: str, top: float) -> Any:
    import altair

    scale = altair.Scale(domain=(0, top), nice=False)
    return altair.Y(f"{field}:Q", axis=altair.Axis(title=SPEED, tickCount=6), scale=scale)


def _intervals(data: list[Row], names: Named, axis: Axis, top: float, toggled: Any) -> list[Any]:
    import altair

    if not data:
        return []
    legend = None if toggled is None else altair.Legend(title=None, symbolOpacity=1)
    colour = altair.Color("line:N", scale=altair.Scale(domain=list(names.coloured)), legend=legend)
    drawn = altair.Chart(values(data)).encode(x=axis.x(), color=colour)
    ends = {"y": _y("lo", top), "y2": "hi:Q"}
    if len(names.coloured) <= MOST_BANDS and len(axis.of) > 1:
        return [drawn.mark_area(style="band").encode(**ends)]
    half, hidden = altair.value(0.5), altair.value(0.05)
    seen = half if toggled is None else altair.when(toggled).then(half).otherwise(hidden)
    return [drawn.mark_rule(strokeWidth=1.5).encode(opacity=seen, **ends)]
