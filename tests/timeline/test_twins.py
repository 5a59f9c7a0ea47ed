"""The compiled loop against its twin on SimPy, over random machines and work."""

from __future__ import annotations

import numpy as np
import pytest

from flashmoe_sim.timeline.models.table import EXECUTION_MODELS, parse_execution
from flashmoe_sim.timeline.names import RESOURCES
from flashmoe_sim.timeline.run import simulate
from tests.timeline.cases import random_cases
from tests.timeline.naive.table import TWINS

CASES = 150


@pytest.mark.parametrize("name", EXECUTION_MODELS)
def test_equals_its_twin_to_the_last_bit(name: str) -> None:
    for number, (work, costs) in enumerate(random_cases(7, CASES)):
        twin = TWINS[name](work, costs)
        timeline = simulate(work, costs, parse_execution(name))
        assert timeline.end.tolist() == twin.end, number
        assert (timeline.parts == twin.parts).all(), number
        # sums of the same durations, in another order, less what reaches beyond the end; each is a difference of clocks
        busy = twin.busy()
        expected = [busy[resource] for resource in RESOURCES]
        assert timeline.busy.tolist() == pytest.approx(expected, rel=0, abs=32 * np.spacing(timeline.total_s)), number
