"""The compiled loop against its twin on SimPy, over random machines and work."""

from __future__ import annotations

import numpy as np
import pytest

from flashmoe_sim.timeline.execution import EXECUTION_MODELS
from flashmoe_sim.timeline.names import RESOURCES
from flashmoe_sim.timeline.run import simulate
from tests.timeline.cases import random_case
from tests.timeline.naive import Twin

CASES = 150


@pytest.mark.parametrize("name", EXECUTION_MODELS)
def test_equals_its_twin_to_the_last_bit(name: str) -> None:
    rng = np.random.default_rng(7)
    for number in range(CASES):
        work, costs = random_case(rng)
        twin = Twin(work, costs, name)
        timeline = simulate(work, costs, EXECUTION_MODELS[name])
        assert timeline.end.tolist() == twin.end, number
        assert (timeline.parts == twin.parts).all(), number
        # sums of the same durations, in another order, less what reaches beyond the end
        busy = twin.busy()
        expected = [busy[resource] for resource in RESOURCES]
        assert timeline.busy.tolist() == pytest.approx(expected, rel=1e-12, abs=1e-12), number
