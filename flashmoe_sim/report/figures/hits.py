"""Hit rate against the bank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flashmoe_sim.io.errors import Incomplete
from flashmoe_sim.report.figures.lines import (
    Axis,
    Named,
    Upward,
    bank_axis,
    line_layers,
    line_of,
    named,
    points,
    toggled_by_legend,
)
from flashmoe_sim.report.figures.style import HEIGHT, Chart, Row, altair_module, label, need, titled, values
from flashmoe_sim.sweep.summary import foresees

if TYPE_CHECKING:
    import polars

MOST_TRACES = 4
HIT_RATE = "hit rate, %"
TENS = 10
ROOM = 5  # points of hit rate below the lowest line
LEAST_START = 40  # an axis starts at 0 unless all lines are above this


def hit_curves(rows: polars.DataFrame) -> Chart:
    """Hit rate against the bank, with a line per policy and predictor, below the best possible.

    rows: schema.RESULT_COLUMNS, as returned by `sweep` and `curve`. It reads trace, trace_id, policy, contract,
        prefetch, scope, bank, hit_rate, resident_bytes and best_hit_rate. Rows that differ only in the machine are
        drawn once. Up to 4 traces get a panel each; the title says how many are left out.
    Raises BadInput without rows, and if some banks are in slots and others in bytes.
    """
    altair = altair_module()
    alike = ("trace_id", "trace", "policy", "prefetch", "contract", "bank")
    need(rows, (*alike, "scope", "hit_rate", "resident_bytes", "best_hit_rate"), "hit curves", "sweep or curve")
    known = [
        row for row in rows.unique(alike, maintain_order=True, keep="first").to_dicts() if row["hit_rate"] is not None
    ]
    if not known:
        raise Incomplete("hit curves: no row has a hit rate; give the rows of a sweep or a curve")
    of_trace: dict[tuple[str, str], list[Row]] = {}
    for row in known:
        of_trace.setdefault((row["trace_id"], row["trace"]), []).append(row)
    shown = dict(list(of_trace.items())[:MOST_TRACES])
    optimum = any(_ceiling(some) for some in shown.values())
    drawn = [row for some in shown.values() for row in some if not (optimum and line_of(row)[:2] == ("min", "none"))]
    names = named(drawn, "hit_rate") if drawn else Named({}, ())
    toggled = None if names.few and len(shown) == 1 else toggled_by_legend()
    coloured = [row for row in drawn if names.of[line_of(row)] in names.coloured]
    lowest = 100 * min(row["hit_rate"] for row in coloured or known)
    low = 0.0 if lowest < LEAST_START else (lowest - ROOM) // TENS * TENS
    panels = [  # one selection holds for all; altair warns if each panel has it
        _panel(some, names, toggled, low, chooses=number == 0) for number, some in enumerate(shown.values())
    ]
    first, of = next(iter(shown.values())), [label(name, 40) for _, name in shown]
    subtitle = _at_middle_bank(first)
    if names.others:
        subtitle += f" Not drawn: {names.others} others."
    description = f"Hit rate against the bank. {subtitle}"
    if len(panels) == 1:
        return titled(panels[0], f"Hit rate against the bank: {of[0]}", subtitle, description)
    title = "Hit rate against the bank"
    if len(of_trace) > len(shown):
        title += f": the first {len(shown)} of {len(of_trace)} traces"
    named_panels = [
        panel.properties(title=altair.TitleParams(name, fontSize=13, offset=6))
        for panel, name in zip(panels, of, strict=True)
    ]
    together = altair.concat(*named_panels, columns=2).resolve_scale(color="shared", shape="shared")
    return titled(together, title, f"{of[0]}: {subtitle[0].lower()}{subtitle[1:]}", description)


def _panel(rows: list[Row], names: Named, toggled: Any, low: float, *, chooses: bool) -> Any:
    import altair

    axis = bank_axis(rows)
    y = altair.Y(
        "y:Q",
        scale=altair.Scale(domain=(low, 100)),
        axis=altair.Axis(title=HIT_RATE, tickCount=5),
    )
    layers = _best_layers(rows, axis, y)
    if names.of:
        data = points([row for row in rows if line_of(row) in names.of], names, axis, "hit_rate", 100)
        layers += line_layers(data, names, axis, Upward(y, HIT_RATE, low, 100), toggled=toggled, chooses=chooses)
    return altair.layer(*layers).properties(height=HEIGHT)


def _ceiling(rows: list[Row]) -> dict[str, float]:
    """The best hit rate of each bank, if it is known."""
    best = {row["bank"]: row["best_hit_rate"] for row in rows if row["best_hit_rate"] is not None}
    return best or {row["bank"]: row["hit_rate"] for row in rows if line_of(row)[:2] == ("min", "none")}


def _best_layers(rows: list[Row], axis: Axis, y: Any) -> list[Any]:
    """The ceiling, with the region above it shaded."""
    import altair

    best = [{"x": axis.of[bank], "y": 100 * rate, "top": 100} for bank, rate in _ceiling(rows).items()]
    if not best:
        return []
    best.sort(key=lambda row: row["x"])
    ceiling = altair.Chart(values(best)).encode(x=axis.x(), y=y)
    middle = best[len(best) // 2]
    above = {"x": middle["x"], "y": middle["y"], "name": "min"}
    name = altair.Chart(values([above])).encode(x=axis.x(), y=y, text="name:N")
    return [
        ceiling.mark_area(style="shade").encode(y2="top:Q"),
        ceiling.mark_line(style="ceiling")
        if len(best) > 1
        else ceiling.mark_tick(style="ceiling", orient="horizontal", size=80, thickness=2),
        name.mark_text(align="right", baseline="bottom", dx=-4, dy=-2, style="note"),
    ]


def _at_middle_bank(rows: list[Row]) -> str:
    """The hit rates at the middle bank, in words."""
    ticks = list(bank_axis(rows).ticks())
    bank = ticks[len(ticks) // 2]
    at = {row["policy"]: row["hit_rate"] for row in rows if row["bank"] == bank and not foresees(row)}
    best = _ceiling(rows).get(bank)
    parts = []
    if at:
        policy = "lru" if "lru" in at else max(at, key=at.__getitem__)
        evicts = ", which evicts the expert used longest ago," if policy == "lru" else ""
        parts.append(f"{label(policy)}{evicts} hits {at[policy]:.1%}")
        if at[most := max(at, key=at.__getitem__)] > at[policy]:
            parts.append(f"{label(most)} most, {at[most]:.1%}")
    if best is not None:
        parts.append(f"min (dashed), the best from an empty bank, {best:.1%}")
    unit = " slots" if bank.isdigit() else ""
    return f"At a bank of {label(bank)}{unit}, {', '.join(parts)}."
