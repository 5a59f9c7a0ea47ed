"""Where a token's time goes."""

from __future__ import annotations

from flashmoe_sim.ceilings.speed import ALL_HIT, Ceilings
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.numbers import three
from flashmoe_sim.report.figures.rows import LINE, ROW, place, y
from flashmoe_sim.report.figures.style import Chart, altair_module, label, titled, values
from flashmoe_sim.timeline.names import PART_WORDS, STALLS

LEAST_SHARE = 0.0005
COMPUTES, WAITS = "computing", "waiting"


def waterfall(found: Ceilings) -> Chart:
    """The parts of a token's time, one after another up to the whole, and the time with all hits as a rule.

    found: of it, `part_ms_per_token` (those of timeline.names.PARTS that take any time, in ms) and the row all-hit.
    Raises BadInput if no part takes any time.
    """
    altair = altair_module()
    total = sum(found.part_ms_per_token.values())
    parts = {name: ms for name, ms in found.part_ms_per_token.items() if ms > LEAST_SHARE * total}
    if not parts:
        raise BadInput("waterfall: a token takes no time; give the ceilings of a machine that has costs")
    height = ROW * len(parts) + LINE + 6
    rows, start = [], 0.0
    for number, (name, ms) in enumerate(parts.items()):
        said = f"{three(ms)} ms ({_percent(ms / total)})"
        kind = WAITS if name in STALLS else COMPUTES
        ends = {"start": start, "end": start + ms, "ms": ms}
        rows.append({"part": PART_WORDS[name], "said": said, "kind": kind, **ends, **place(ROW * number)})
        start += ms
    x = altair.X("start:Q", axis=altair.Axis(title="ms of a token"), scale=altair.Scale(domain=(0, total), nice=False))
    data = altair.Chart(values(rows))
    colour = altair.Color("kind:N", scale=altair.Scale(domain=[COMPUTES, WAITS]), legend=altair.Legend(title=None))
    tooltip = [altair.Tooltip("part:N"), altair.Tooltip("ms:Q", title="ms of a token", format=".3g")]
    layers = [
        data.mark_rect().encode(x=x, x2="end:Q", y=y("upper", height), y2="lower:Q", color=colour, tooltip=tooltip),
        data.mark_text(align="left", baseline="top", style="named").encode(
            x=altair.value(0), y=y("text_y", height), text="part:N"
        ),
        data.mark_text(align="left", dx=6, style="note").encode(x="end:Q", y=y("middle", height), text="said:N"),
    ]
    said = ""
    if (all_hit := found.row(ALL_HIT)) is not None:
        said = f" With all hits it would take {three(all_hit.ms_per_token)} ms."
        mark = {"ms": all_hit.ms_per_token, "said": f"all hits: {three(all_hit.ms_per_token)} ms", "text_y": height}
        rule = altair.Chart(values([mark]))
        left = all_hit.ms_per_token > total / 2
        layers += [
            rule.mark_rule(style="ceiling").encode(x="ms:Q"),
            rule.mark_text(
                align="right" if left else "left", baseline="bottom", dx=-5 if left else 5, style="note"
            ).encode(x="ms:Q", y=y("text_y", height), text="said:N"),
        ]
    largest = max(parts, key=parts.__getitem__)
    subtitle = (
        f"{label(found.trace)} on {label(found.machine)}, {label(found.policy)}, bank {label(found.bank)}: a token "
        f"takes {three(total)} ms; {_percent(parts[largest] / total)} of it: {PART_WORDS[largest]}.{said}"
    )
    chart = altair.layer(*layers).properties(height=height)
    return titled(chart, "Where a token's time goes", subtitle, f"Where a token's time goes. {subtitle}")


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.005 else "under 1%"
