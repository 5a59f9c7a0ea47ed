"""Calls that are alike are timed once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from flashmoe_sim.timeline import work as works
from flashmoe_sim.timeline.models.table import EXECUTION_MODELS, parse_execution
from flashmoe_sim.timeline.run import by_kind, parts_of, simulate, total_seconds
from flashmoe_sim.timeline.timing import speeds_of, timing_of
from flashmoe_sim.timeline.work import OF_READS_AHEAD, Work
from tests.timeline.cases import random_cases, work_of

ROUNDED = 1e-11


def alone(work: Work, phase: np.ndarray) -> Work:
    """The work without what is read ahead, three times over, so that calls are alike."""
    each = {name: np.tile(getattr(work, name), 3) for name in works.OF_CALLS}
    each["step"] = np.concatenate([work.step + times * (work.step[-1] + 1) for times in range(3)])
    each["phase"] = phase[each["step"]]
    return replace(work, **each, **{name: getattr(work, name)[:0] for name in OF_READS_AHEAD})


@pytest.mark.parametrize("name", EXECUTION_MODELS)
def test_kinds_of_calls_take_as_long_as_all_calls(name: str) -> None:
    execution, rng = parse_execution(name), np.random.default_rng(3)
    for work, without_output in random_cases(seed=5, number=150):
        costs = replace(without_output, step_s=0.01, draft_s=0.02)
        steps = 3 * (int(work.step[-1]) + 1)
        phases = [np.zeros(steps), np.full(steps, 2), rng.integers(1, 3, steps)]
        some = alone(work, phases[int(rng.integers(3))].astype(np.uint8))
        assert by_kind(some, execution)
        timeline = simulate(some, costs, execution)
        timing = timing_of(timeline, some)
        speeds = speeds_of(some.timed_kinds, partial(parts_of, costs=costs, execution=execution))
        assert total_seconds(some, costs, execution) == pytest.approx(timeline.total_s, rel=ROUNDED)
        for speed, whole in ((speeds.tok_s, timing.tok_s), (speeds.prompt_tok_s, timing.prompt_tok_s)):
            assert speed == (None if whole is None else pytest.approx(whole, rel=ROUNDED))
        of_parts = timing.part_ms_per_token
        rounded = ROUNDED * max(sum(of_parts.values()), 1.0)
        assert speeds.part_ms_per_token == pytest.approx(of_parts, rel=ROUNDED, abs=rounded)


def test_kinds_are_the_same_however_they_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    for work, _ in random_cases(seed=6, number=50):
        some = alone(work, np.full(3 * (int(work.step[-1]) + 1), 2, np.uint8))
        found = [some.kinds]
        for name, value in (("FEW_PLACES", 0), ("MOST_PLACES", 1)):
            monkeypatch.setattr(works, name, value)
            found.append(works.Kinds.of(some))
        monkeypatch.undo()
        told = [
            sorted(zip(*(getattr(one.work, name).tolist() for name in works.OF_KIND), one.calls.tolist(), strict=True))
            for one in found
        ]
        assert told[0] == told[1] == told[2]
        assert all((one.steps, one.drafted) == (found[0].steps, found[0].drafted) for one in found)


def test_calls_that_share_what_was_read_ahead_are_run_one_by_one() -> None:
    calls = [{"requests": 2, "step": step} for step in range(3)]
    for name in EXECUTION_MODELS:
        assert not by_kind(work_of(calls, [(0, 0, 0, 1)]), parse_execution(name))
        assert by_kind(work_of(calls), parse_execution(name))
        assert not by_kind(work_of([]), parse_execution(name))
