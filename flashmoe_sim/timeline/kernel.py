"""The loop of the timeline: routed calls in order, and within each the events of its execution model.

Where the order of events is not obvious, these rules hold:

- A batch is read in order: misses from storage before misses from the page cache, and first fills before the others;
  experts read ahead in the order in which they were issued. All its chunks from one tier have the service time of their
  depth: the number of lanes, or fewer to even out the rounds. Reads in flight from two tiers do not slow each other.
- A call first waits for late prefetches that it uses. Their reads go before its own.
- The link uploads what a call waits for in the order of arrival, late experts first on a tie, then in the order of the
  batch. Reads and uploads in the background get the remaining time; see background.py.
- The output and the joining of two lanes occupy the computing unit.
- A call without tokens takes no time, as if its layer had no call in the step: other architectures record none there.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from flashmoe_sim._jit import inlined, specialise
from flashmoe_sim.timeline.background import issue, read_before, upload_before, use_link
from flashmoe_sim.timeline.calls import Call
from flashmoe_sim.timeline.names import (
    AHEAD,
    DENSE,
    EVERYTHING,
    HOST,
    IS_DENSE,
    IS_OUTPUT,
    IS_READ_AHEAD,
    IS_RESOLVE,
    IS_UPLOAD_AHEAD,
    NOTHING,
    ON_COMPUTE,
    ON_HOST,
    OUTPUT,
)
from flashmoe_sim.timeline.state import work_on
from flashmoe_sim.timeline.storage import earliest_lane, read_family, read_on

serve: Any = None  # the execution model's, in the loop compiled for it
_INT: Any = np.int64  # of all columns, or a kernel is compiled for each mixture of types in its arguments


@cache
def loop_of(serve: Any) -> Any:
    """The loop with an execution model's kernel in it, nearly always the same; it is compiled at its first call."""
    return specialise(_run, "run", serve=serve)


def _run(
    sim: Any,
    work: Any,
    steps: Any,
    knees: Any,
    end: Any,
    parts: Any,
) -> None:
    """Run every routed call.

    work: a named tuple of the columns of `Work` that are of calls. steps: the execution model's. knees: a named tuple
    of the costs'.
    end: f64 [calls], set to the time when everything in a call is done: its experts, then the reads ahead after it that
    the next call waits for, then the output if it was the last call of its step. The next call begins then.
    parts: f64 [calls, N_PARTS], zeros, to which the time is added; reads ahead before the first call belong to it.
    """
    if len(end) == 0:
        return
    clock, drafted = 0.0, _INT(0)  # drafted: the most tokens of a call of this step
    for number in range(-1, len(end)):
        into = parts[max(number, 0)]
        if number >= 0 and (work.refs[number] > 0 or work.n_tokens[number] > 0):
            costs, requests = sim.rows[work.row[number]], work.requests[number]
            of_context = max(sim.state[0].attention_s, sim.state[0].attention_token_s * work.n_tokens[number])
            dense_s = costs.dense_s * max(1.0, work.n_tokens[number] / knees.dense_knee_tokens)
            dense_s = sim.state[0].layer_s + dense_s + of_context
            times = 1.0
            if work.drafted[number] > 0:
                dense_s += sim.state[0].verify_call_s
                times = sim.state[0].verify_times
                drafted = max(drafted, _INT(work.drafted[number]))
            tokens_each = work.refs[number] / requests if requests > 0 else 0.0
            of_knee = tokens_each / knees.knee_tokens
            if work.n_tokens[number] < knees.added_from:
                expert_s = costs.expert_s * max(1.0, of_knee)
            else:
                padding = min(knees.padded_tokens, work.n_tokens[number] / 4)
                expert_s = costs.expert_s * (1.0 + of_knee + padding / knees.knee_tokens)
            dense_end = work_on(sim, ON_COMPUTE, IS_DENSE, number, clock, dense_s)
            call_s = sim.state[0].call_s if work.misses[number] > 0 else sim.state[0].hit_call_s
            ready = work_on(sim, ON_HOST, IS_RESOLVE, number, dense_end, call_s)
            into[DENSE] += dense_end - clock
            into[HOST] += ready - dense_end
            call = Call(
                number,
                _INT(work.row[number]),
                _INT(work.n_tokens[number]),
                _INT(requests),
                _INT(work.misses[number] if steps.reads else 0),
                _INT(work.warm[number]),
                _INT(work.cold[number]),
                _INT(work.installs[number]),
                ready,
                expert_s * times,
                costs.cold_expert_s * max(1.0, tokens_each / knees.cold_knee_tokens) * times,
                steps,
            )
            clock = serve(sim, call, into)
        if sim.state[0].issued < len(sim.ahead) and sim.ahead[sim.state[0].issued].after == number:
            done = clock
            clock = read_ahead(sim, steps, number, done)
            into[AHEAD] += clock - done
        if number >= 0:
            if number == len(end) - 1 or work.step[number + 1] != work.step[number]:
                before = clock
                output_s = sim.state[0].step_s + drafted * sim.state[0].draft_s
                clock = work_on(sim, ON_COMPUTE, IS_OUTPUT, number, before, output_s)
                drafted = _INT(0)
                into[OUTPUT] += clock - before
            end[number] = clock
    if steps.in_background:
        read_before(sim, clock, True)
        upload_before(sim, clock, True)


@inlined
def read_ahead(sim: Any, steps: Any, number: int, time: float) -> float:
    """Read ahead the experts that were issued after a call; return the time when the next call may begin.

    Experts that the next call must wait for are read as one batch right after their call, over all lanes even if misses
    are read one after another, or one tensor family after another if misses are. The output of a step follows them.
    """
    first, clock = sim.state[0].issued, time
    issue(sim, number, time, steps.in_place)
    if steps.in_background:
        return time
    sim.state[0].read = sim.state[0].issued
    for i in range(first, sim.state[0].issued):
        expert = sim.ahead[i]
        if steps.by_family:
            for f in range(sim.families.shape[1]):
                warm, fills = expert.warm != 0, expert.cold != 0
                clock = read_family(sim, expert.row, f, warm, fills, clock, IS_READ_AHEAD, number)
                clock = upload_ahead(sim, clock, sim.families[expert.row, f].upload_s, number)
        else:
            for _ in range(sim.rows[expert.row].chunks):
                read = read_on(sim, earliest_lane(sim, time), time, expert.service_s, IS_READ_AHEAD, number)
                clock = max(clock, read)
    if not steps.by_family and steps.uploads not in (NOTHING, EVERYTHING):
        for i in range(first, sim.state[0].issued):
            clock = upload_ahead(sim, clock, sim.rows[sim.ahead[i].row].upload_s, number)
    return clock


@inlined
def upload_ahead(sim: Any, begin: float, upload_s: float, number: int) -> float:
    if upload_s == 0.0:
        return begin
    end: float = use_link(sim, begin, begin + upload_s, IS_UPLOAD_AHEAD, number)
    return end
