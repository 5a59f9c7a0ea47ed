"""Where a token's time goes."""

from __future__ import annotations

from flashmoe_sim.ceilings.speed import Ceilings
from flashmoe_sim.report.figures.style import Chart


def waterfall(found: Ceilings) -> Chart:
    """The parts of a token's time, one after another up to the whole, and the time with all hits as a rule.

    The parts are `found.part_ms_per_token`, those of timeline.names.PARTS that take any time, in ms.
    """
    raise NotImplementedError
