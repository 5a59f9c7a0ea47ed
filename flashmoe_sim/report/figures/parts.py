"""Where a token's time goes."""

from __future__ import annotations

from flashmoe_sim.ceilings.speed import ALL_HIT, SpeedCeilings
from flashmoe_sim.io.errors import Incomplete
from flashmoe_sim.io.numbers import three
from flashmoe_sim.report.figures.rows import ROW, place, y
from flashmoe_sim.report.figures.style import TITLE_LETTERS, Chart, Row, altair_module, label, titled, values
from flashmoe_sim.timeline.names import PART_WORDS, STALLS

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
