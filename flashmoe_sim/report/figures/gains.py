"""Points of hit rate above LRU, over several traces, or over the banks of one."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from flashmoe_sim.io.errors import Incomplete
from flashmoe_sim.report.figures.lines import MOST_COLOURED, line_of, named
from flashmoe_sim.report.figures.style import Chart, Row, altair_module, label, need, titled, values
from flashmoe_sim.sweep.summary import foresees, of_user

if TYPE_CHECKING:
    import polars

MOST_ROWS = 40
LEAST_POINTS = -20  # what is further below lru is drawn there
ROW_PIXELS = 22
KINDS = YOURS, ONLINE, HINDSIGHT = "your own", "online", "knows the future"
LRU = ("lru", "none")


def gains(rows: polars.DataFrame) -> Chart:
    """Points of hit rate above LRU on several traces, each the mean of its banks: a dot per trace, and their mean.

    Of one trace with more than 8 policies, which hit_curves does not all draw, there is a dot per bank.

    rows: schema.RESULT_COLUMNS, as returned by `sweep`. It reads trace, trace_id, policy, contract, prefetch, bank and
        hit_rate. Of many policies the 40 best are shown, and always your own.
    Raises BadInput for fewer policies of one trace, and unless LRU and another policy share a bank.
    """
    altair = altair_module()
    need(rows, ("trace", "trace_id", "policy", "contract", "prefetch", "bank", "hit_rate"), "gains", "sweep")
    known = [row for row in rows.to_dicts() if row["hit_rate"] is not None]
    points = _points(known)
    traces = {trace for of_traces in points.values() for trace in of_traces}
    part = "trace" if len(traces) > 1 else "bank"
    if not traces or (part == "bank" and len(points) <= MOST_COLOURED):
        raise Incomplete(
            f"gains: rows of two traces, or of more than {MOST_COLOURED} policies, are needed, under lru and others"
        )
    of_part = points if part == "trace" else _points(known, by_bank=True)
    names, kind = named(known, "hit_rate").of, {line_of(row): kind_of(row) for row in known}
    mean = {line: fmean(of_traces.values()) for line, of_traces in points.items()}
    ranked = sorted(points, key=lambda line: (kind[line] != YOURS, -mean[line]))
    shown = sorted(ranked[:MOST_ROWS], key=mean.__getitem__, reverse=True)
    dots = [
        {"policy": names[line], part: label(name), "points": gain, "kind": kind[line]}
        for line in shown
        for (_, name), gain in of_part[line].items()
    ]
    means = [
        {"policy": names[line], "points": mean[line], "kind": kind[line], f"{part}s": len(of_part[line])}
        for line in shown
    ]
    far = [names[line] for line in shown if min(of_part[line].values()) < LEAST_POINTS]
    scale = altair.Scale(domainMin=LEAST_POINTS, clamp=True) if far else altair.Undefined
    of_banks = ", mean of the banks" if part == "trace" else ""
    x = altair.X(
        "points:Q",
        scale=scale,
        axis=altair.Axis(title=f"points of hit rate above lru{of_banks}", orient="top"),
    )
    y = altair.Y("policy:N", sort=[names[line] for line in shown], axis=altair.Axis(title=None, labelLimit=220))
    kinds = [one for one in KINDS if any(row["kind"] == one for row in means)]
    colour = altair.Color(
        "kind:N", scale=altair.Scale(domain=kinds), legend=altair.Legend(title=None) if len(kinds) > 1 else None
    )
    exact = altair.Tooltip("points:Q", title="points above lru", format="+.2f")
    layers = [
        altair.Chart(values([{"zero": 0}])).mark_rule(style="ceiling").encode(x="zero:Q"),
        altair.Chart(values(dots))
        .mark_point(opacity=0.45)
        .encode(x=x, y=y, color=colour, tooltip=["policy:N", f"{part}:N", exact]),
        altair.Chart(values(means))
        .mark_tick(thickness=3, size=ROW_PIXELS - 6)
        .encode(x=x, y=y, color=colour, tooltip=["policy:N", exact, altair.Tooltip(f"{part}s:Q")]),
    ]
    chart = altair.layer(*layers).properties(height=ROW_PIXELS * len(shown))
    first = min(shown, key=lambda line: KINDS.index(kind[line]))
    better, on = sum(gain > 0 for gain in of_part[first].values()), "on" if part == "trace" else "in"
    subtitle = (
        f"{names[first]}: {mean[first]:+.1f} points, above lru {on} {better} of {len(of_part[first])} "
        f"{part}s. Dots: {part}s; bars: their means."
    )
    if far:
        subtitle += f" Below {LEAST_POINTS} points, drawn there: {', '.join(far)}."
    if left := len(points) - len(shown):
        subtitle += f" Not shown: {left} others."
    title = f"Hit rate above LRU on {len(traces)} traces"
    if part == "bank":
        title = f"Hit rate above LRU: {label(next(iter(traces))[1], 40)}"
    return titled(chart, title, subtitle, f"{title}. {subtitle}")


def _points(rows: list[Row], *, by_bank: bool = False) -> dict[tuple[str, ...], dict[tuple[str, str], float]]:
    """For each line except LRU: its gain over LRU per trace, in percentage points, averaged over the banks both ran.

    by_bank: in each bank instead, of one trace.
    """
    hits: dict[tuple[str, ...], dict[tuple[str, str], dict[str, float]]] = {}
    for row in rows:
        of_line = hits.setdefault(line_of(row), {})
        of_line.setdefault((row["trace_id"], row["trace"]), {})[row["bank"]] = row["hit_rate"]
    baseline = {trace: of_banks for line, of in hits.items() if line[:2] == LRU for trace, of_banks in of.items()}
    found: dict[tuple[str, ...], dict[tuple[str, str], float]] = {}
    for line, of_traces in hits.items():
        for trace, of_banks in of_traces.items():
            both = of_banks.keys() & baseline.get(trace, {}).keys()
            if line[:2] != LRU and both and by_bank:
                found[line] = {("", bank): 100 * (of_banks[bank] - baseline[trace][bank]) for bank in sorted(both)}
            elif line[:2] != LRU and both:
                gain = fmean(100 * (of_banks[bank] - baseline[trace][bank]) for bank in sorted(both))
                found.setdefault(line, {})[trace] = gain
    return found


def kind_of(row: Row) -> str:
    """Whose policy a row is, or whether it knows the future: one of KINDS."""
    return YOURS if of_user(row) else HINDSIGHT if foresees(row) else ONLINE
