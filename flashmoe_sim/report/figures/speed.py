"""Decode speed against the bank, against the depth of the context, and the parts of a token's time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashmoe_sim.ceilings.speed import ALL_HIT, FLOOR, ORACLE, SpeedCeilings
from flashmoe_sim.io.errors import Conflict, Incomplete
from flashmoe_sim.io.sizes import three
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
    ROW,
    SHAPES,
    TITLE_LETTERS,
    Chart,
    Row,
    altair_module,
    label,
    labels,
    need,
    place,
    titled,
    values,
    y,
)
from flashmoe_sim.sweep.summary import foresees
from flashmoe_sim.timeline.names import PART_WORDS, STALLS

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


LEAST_SHARE = 0.0005
KINDS = COMPUTES, WAITS, HITS, HOST = "computing", "waiting", "all hits", "the host's own work"


def waterfall(found: SpeedCeilings) -> Chart:
    """The parts of a token's time, adding up to the whole, and below the time with all hits.

    found: reads `part_ms_per_token` (the timeline.names.PARTS that take time, in ms) and the row all-hit.
    Raises BadInput if no part takes time.
    """
    altair = altair_module()
    total = sum(found.part_ms_per_token.values())
    parts = {name: ms for name, ms in found.part_ms_per_token.items() if ms > LEAST_SHARE * total}
    if not parts:
        raise Incomplete("waterfall: a token takes no time; give the ceilings of a machine that has costs")
    rows: list[Row] = []
    start = 0.0
    for name, ms in parts.items():
        text = f"{three(ms)} ms ({_percent(ms / total)})"
        kind = HOST if name == "host" else WAITS if name in STALLS else COMPUTES
        rows.append({"part": PART_WORDS[name], "text": text, "kind": kind, "start": start, "end": start + ms, "ms": ms})
        start += ms
    if_all_hit = ""
    if (all_hit := found.row(ALL_HIT)) is not None:
        ms = all_hit.ms_per_token
        text = f"{three(ms)} ms"
        if_all_hit = f" If every request hit, it would take {text}."
        rows.append({"part": "if every request hit", "text": text, "kind": HITS, "start": 0.0, "end": ms, "ms": ms})
    height = ROW * len(rows)
    rows = [row | place(ROW * number) for number, row in enumerate(rows)]
    kinds = [kind for kind in KINDS if any(row["kind"] == kind for row in rows)]
    scale = altair.Scale(domain=(0, max(row["end"] for row in rows)), nice=False)
    x = altair.X("start:Q", axis=altair.Axis(title="ms of a token"), scale=scale)
    data = altair.Chart(values(rows))
    colour = altair.Color(
        "kind:N", scale=altair.Scale(domain=list(KINDS)), legend=altair.Legend(title=None, values=kinds)
    )
    tooltip = [altair.Tooltip("part:N"), altair.Tooltip("ms:Q", title="ms of a token", format=".3g")]
    layers = [
        data.mark_rect().encode(x=x, x2="end:Q", y=y("upper", height), y2="lower:Q", color=colour, tooltip=tooltip),
        data.mark_text(align="left", baseline="top", style="named").encode(
            x=altair.value(0), y=y("text_y", height), text="part:N"
        ),
        data.mark_text(align="left", dx=6, style="note").encode(x="end:Q", y=y("middle", height), text="text:N"),
    ]
    largest = max(parts, key=parts.__getitem__)
    where = f"{label(found.trace)} on {label(found.machine, TITLE_LETTERS)}"
    subtitle = (
        f"{where}, {label(found.policy)}, bank {label(found.bank)}: a token takes {three(total)} ms; "
        f"{_percent(parts[largest] / total)} of it: {PART_WORDS[largest]}.{if_all_hit}"
    )
    chart = altair.layer(*layers).properties(height=height)
    return titled(chart, "Where a token's time goes", subtitle, f"Where a token's time goes. {subtitle}")


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.005 else "under 1%"
