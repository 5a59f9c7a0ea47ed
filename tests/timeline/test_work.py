"""Parts of work: some of its steps, the decoded ones, and their tokens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flashmoe_sim.timeline.work import decoded, last_steps, some_calls, tokens_of
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, PHASE_UNKNOWN
from tests.timeline.cases import work_of

STEPS = [{"step": step, "n_tokens": tokens, "requests": 2} for step, tokens in ((0, 4), (0, 3), (2, 1), (3, 0), (5, 1))]


def test_experts_read_ahead_go_with_the_call_that_issued_them() -> None:
    work = work_of(STEPS, [(-1, 0, 0, 0, 1), (0, 0, 0, 2), (1, 0, 1, -1), (2, 0, 0, 4), (2, 0, 0, 3)])
    kept = some_calls(work, np.array([False, False, True, False, True]))
    assert kept.step.tolist() == [2, 5]
    assert kept.ahead_after.tolist() == [0, 0]
    assert kept.ahead_used.tolist() == [1, -1]  # the second was for a call that is left out
    first = some_calls(work, np.array([True, True, False, False, False]))
    assert first.ahead_after.tolist() == [-1, 0, 1]
    assert first.ahead_used.tolist() == [0, -1, -1]
    assert first.ahead_warm.tolist() == [0, 0, 1]
    assert first.ahead_cold.tolist() == [1, 0, 0]


def test_decoded_steps_are_those_of_that_phase_whose_tokens_are_known() -> None:
    phase = np.array([PHASE_PROMPT, PHASE_PROMPT, PHASE_DECODE, PHASE_DECODE, PHASE_DECODE], np.uint8)
    work = replace(work_of(STEPS), phase=phase)
    assert decoded(work).step.tolist() == [2, 5]
    assert tokens_of(decoded(work)) == 2
    assert tokens_of(work) == 6
    unknown = replace(work, phase=np.full(5, PHASE_UNKNOWN, np.uint8))
    assert decoded(unknown).step.tolist() == [0, 0, 2, 5]
    silent = replace(unknown, n_text=np.zeros(5, np.int32))
    assert decoded(silent).step.tolist() == [0, 0, 2, 3, 5]
    assert tokens_of(silent) == 0


def test_the_last_steps() -> None:
    assert last_steps(work_of(STEPS), 2).step.tolist() == [3, 5]
    assert last_steps(work_of(STEPS), 9).step.tolist() == [0, 0, 2, 3, 5]
