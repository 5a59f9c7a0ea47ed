"""The sections on a machine: systems side by side, the rest of the advice, predictions and measurements."""

from __future__ import annotations

from flashmoe_sim.io.cells import interval, percent, speed
from flashmoe_sim.io.sections import Figure, Part, Section
from flashmoe_sim.io.sizes import size
from flashmoe_sim.report.advice import sections as advised
from flashmoe_sim.report.cells import page_table
from flashmoe_sim.report.figures import predicted_measured, speeds_by_depth, systems
from flashmoe_sim.report.material import Material
from flashmoe_sim.schema import BY_DEPTH, COMPARED, PREDICTED, frame

SHOWN = ("Other systems", "Is the trace enough?", "What this rests on")  # elsewhere in a report, or at its end


def side_by_side(found: Material) -> list[Section]:
    """Every system at its best, and the advice after its first line."""
    if found.advice is None:
        return []
    advice = found.advice
    every = [advice.best.best, *(one.best for one in advice.others)]
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
    caption = (
        f"{advice.case.model.name} on {advice.case.machine.title}: the real programs, each at its best setting, what "
        "is recommended first, with 90% intervals, which rise and fall together. Faster in: the share of draws of all "
        "that is unknown in which a program is faster than the recommended one."
    )
    chart = systems(frame([one.as_row() for one in every], COMPARED))
    parts: tuple[Part, ...] = (Figure("systems", chart, caption, page_table(columns, every)),)
    rest = [one for one in advised(advice)[1:] if one.title not in SHOWN]
    return [Section("Systems side by side", parts), *rest]


def by_depth(found: Material) -> Section:
    """Decode speed as the context fills, if it is known."""
    rows = found.by_depth
    if not rows or found.advice is None:
        return Section("", ())
    columns = [
        ("system", "left", lambda row: row["setting"]),
        ("tokens", "right", lambda row: f"{row['depth']:,}"),
        ("tok/s", "right", lambda row: speed(row["tok_s"])),
        ("90%", "right", lambda row: interval(row["tok_s_lo"], row["tok_s_hi"])),
    ]
    caption = (
        "The recommended setting and the next fastest ones, with the same room for the context at every depth: only "
        f"what attention reads changes. A longer context (--context, here {found.advice.case.context:,} tokens) also "
        "takes memory from the experts."
    )
    chart = speeds_by_depth(frame(rows, BY_DEPTH))
    return Section("As the context fills", (Figure("by-depth", chart, caption, page_table(columns, rows)),))


def measured(found: Material) -> Section:
    """Predictions and measurements, if there are any."""
    rows = [row for row in found.measured if row["measured_tok_s"] is not None and row["tok_s"] is not None]
    if not rows:
        return Section("", ())
    columns = [
        ("source", "left", lambda row: row["source"]),
        ("bank", "right", lambda row: row["bank"] or "-"),
        ("hit %", "right", lambda row: percent(row["hit_rate"])),
        ("predicted", "right", lambda row: speed(row["tok_s"])),
        ("90%", "right", lambda row: interval(row["tok_s_lo"], row["tok_s_hi"])),
        ("measured", "right", lambda row: speed(row["measured_tok_s"])),
        ("error", "right", lambda row: f"{row['error']:+.1%}"),
    ]
    caption = (
        "Each point is a row of the measured speeds: predicted tokens a second, with the 90% interval, against "
        "measured ones. On the diagonal they are the same; the band is a factor of 2."
    )
    chart = predicted_measured(frame(rows, PREDICTED))
    return Section(
        "Predicted against measured", (Figure("predicted-measured", chart, caption, page_table(columns, rows)),)
    )
