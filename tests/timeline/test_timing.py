"""What a timeline comes to, worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from flashmoe_sim.timeline.models.table import parse_execution
from flashmoe_sim.timeline.run import simulate
from flashmoe_sim.timeline.timing import Timing, timing_of
from flashmoe_sim.timeline.work import Work
from tests.timeline.cases import costs_of, work_of

PROMPT, DECODE = 1, 2


def timed(work: Work, **given: float) -> Timing:
    return timing_of(simulate(work, costs_of(**given), parse_execution("sync-install")), work)


def one_prompt_and_four_tokens() -> Work:
    """Two rows; a prompt of 8 tokens, whose last call has one; the first two tokens have the cold misses."""
    calls = [{"step": 0, "n_tokens": 8, "phase": PROMPT}, {"step": 0, "row": 1, "phase": PROMPT}]
    misses = [(2, 0), (1, 1), (0, 0), (2, 2)]
    for step, chapters in enumerate(misses, start=1):
        for row, missed in enumerate(chapters):
            cold = missed if step <= 2 else 0
            calls.append({"step": step, "row": row, "requests": 2, "misses": missed, "cold": cold, "phase": DECODE})
    return work_of(calls)


def test_speeds() -> None:
    # dense 1 s twice a step; a miss is read in 1 s; the prompt of 8 tokens takes 2 s, tokens 4, 4, 2 and 6 s
    found = timed(one_prompt_and_four_tokens(), rows=2, dense_s=1.0, chunk_s=1.0)
    assert found.step.tolist() == [0, 1, 2, 3, 4]
    assert found.phase.tolist() == [PROMPT] + 4 * [DECODE]
    assert found.tokens.tolist() == [8, 1, 1, 1, 1]
    assert found.step_s.tolist() == [2, 4, 4, 2, 6]
    assert (found.total_s, found.decode_step_s.tolist()) == (18, [4, 4, 2, 6])
    assert found.prompt_tok_s == 8 / 2
    assert found.tok_s == 4 / 16
    assert found.tok_s_p50 == 1 / 4
    assert found.step_ms_p50 == 4000
    assert found.step_ms_p95 == pytest.approx(4000 + 0.85 * 2000)  # place 0.95 x 3 = 2.85 of 2, 4, 4, 6
    # all cold installs are done by token 2, which is half of the tokens
    assert (found.warm_up_steps, found.warm_up_tok_s, found.steady_tok_s) == (2, 2 / 8, 2 / 8)
    assert found.busy_share["storage"] == pytest.approx(8 / 18 / 2)  # of two lanes one is used
    assert (found.part_ms_per_token["dense"], found.part_ms_per_token["read"]) == (2000, 2000)
    assert sum(found.part_ms_per_token.values()) == pytest.approx(1000 / found.tok_s)
    assert found.stall_ms_per_token == {"host": 0, "cold_lane": 0, "read": 2000, "upload": 0, "late": 0, "ahead": 0}


def test_the_warm_up_ends_with_95_percent_of_the_cold_installs() -> None:
    work = one_prompt_and_four_tokens()
    many = np.full_like(work.misses, 100)
    work = replace(work, misses=many, installs=many, requests=many, refs=many)
    cold = np.zeros_like(work.cold)
    cold[[2, 4]] = 19, 1  # in tokens 1 and 2
    assert timed(replace(work, cold=cold), rows=2, dense_s=1.0).warm_up_steps == 1
    cold[[2, 4]] = 18, 2
    assert timed(replace(work, cold=cold), rows=2, dense_s=1.0).warm_up_steps == 2
    cold[8] = 100  # in token 4, but no more than half of the tokens
    assert timed(replace(work, cold=cold), rows=2, dense_s=1.0).warm_up_steps == 2
    cold[:] = 0
    cold[0] = 5  # in the prompt
    assert timed(replace(work, cold=cold), rows=2, dense_s=1.0).warm_up_steps == 0


def test_all_steps_decode_where_no_phase_is_known() -> None:
    work = one_prompt_and_four_tokens()
    found = timed(replace(work, phase=np.zeros_like(work.phase)), rows=2, dense_s=1.0)
    assert (len(found.decode_step_s), found.tok_s, found.prompt_tok_s) == (5, 12 / 10, None)


def test_steps_whose_tokens_are_not_known_are_no_part_of_a_speed() -> None:
    work = one_prompt_and_four_tokens()
    n_tokens = work.n_tokens.copy()
    n_tokens[-2:] = 0  # the last token, which takes 6 s
    found = timed(replace(work, n_tokens=n_tokens, n_text=n_tokens), rows=2, dense_s=1.0, chunk_s=1.0)
    assert (found.tok_s, found.tok_s_p50, found.part_ms_per_token["dense"]) == (3 / 10, 1 / 4, 2000)
    assert found.decode_step_s.tolist() == [4, 4, 2, 6]


def test_speeds_are_of_text() -> None:
    """Of four verified tokens two became text: the pass, 4 s, yields two tokens."""
    verify = {"n_tokens": 4, "n_text": 2, "drafted": 3, "requests": 1}
    found = timed(work_of([verify, {**verify, "step": 1}]), dense_s=1.0, draft_s=1.0)
    assert (found.tokens.tolist(), found.tok_s, found.tok_s_p50) == ([2, 2], 0.5, 0.5)
    assert found.part_ms_per_token["output"] == 1500


def test_what_is_not_known_is_null() -> None:
    work = one_prompt_and_four_tokens()
    none = np.zeros_like(work.n_tokens)
    unknown = timed(replace(work, n_tokens=none, n_text=none), rows=2, dense_s=1.0)
    assert (unknown.tok_s, unknown.tok_s_p50, unknown.part_ms_per_token) == (None, None, {})
    assert unknown.step_ms_p50 == 2000
    free = timed(work, rows=2)
    assert (free.tok_s, free.tok_s_p50, free.step_ms_p99) == (None, None, 0)
    empty = timed(work_of([]))
    assert (empty.tok_s, empty.step_ms_p50, empty.warm_up_steps, empty.total_s) == (None, None, 0, 0)
    prompt = timed(work_of([{"n_tokens": 3, "phase": PROMPT}]), dense_s=1.0)
    assert (prompt.tok_s, prompt.prompt_tok_s, prompt.step_ms_p50) == (None, 3, None)


def test_as_json_is_plain() -> None:
    found = timed(one_prompt_and_four_tokens(), rows=2, dense_s=1.0, chunk_s=1.0).as_json()
    assert json.loads(json.dumps(found)) == found
    assert found["tok_s"] == 0.25
    assert found["ms_per_token"] == 4000
    assert found["stall_ms_per_token"]["read"] == 2000
