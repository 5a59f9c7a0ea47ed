"""The systems of a recommendation in one picture."""

from __future__ import annotations

from flashmoe_sim.io.cells import interval, percent, speed
from flashmoe_sim.io.sections import Figure
from flashmoe_sim.io.sizes import size
from flashmoe_sim.report.cells import page_table
from flashmoe_sim.report.figures import systems
from flashmoe_sim.schema import COMPARED, frame
from flashmoe_sim.tune.recommend import Recommendation
from flashmoe_sim.tune.speeds import speed as tokens_a_second


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
