"""Requests as a server batches them: first come, first served; each step has the next token of all running requests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from flashmoe_sim._jit import allocating
from flashmoe_sim.io.errors import Conflict, Malformed, OutOfRange, shown
from flashmoe_sim.io.files import as_utf8, regular_file_bytes, unreadable
from flashmoe_sim.trace.calls import run_starts, with_end
from flashmoe_sim.trace.join import LAST_STEP, join_calls, phases_of
from flashmoe_sim.trace.lines import counted
from flashmoe_sim.trace.made_prompt import by_token
from flashmoe_sim.trace.merge import Progress, described, stacked
from flashmoe_sim.trace.routing import PHASE_PROMPT, RoutingTrace

ARRIVAL_FIELDS = ("arrival_time", "created")  # in vLLM's request metrics, and in its HTTP responses


def batched(
    parts: Sequence[RoutingTrace],
    *,
    concurrency: int,
    prefill_chunk: int | None = None,
    arrivals_s: Sequence[float] | None = None,
    step_s: float = 0.0,
    progress: Progress | None = None,
) -> RoutingTrace:
    """The requests of all parts under continuous batching: at most `concurrency` run at once.

    A request is a sequence of a part, or a whole part if it has no sequences. It is admitted when it has arrived and
    fewer than `concurrency` run, in order of arrival, then of the parts. Each step has the next step of every running
    request, in order of admission, as one call per layer (see `join_calls`). A step in which nothing runs is left out.
    prefill_chunk: the most prompt tokens in a step, over all requests; the first admitted gets them first, and one that
        gets none waits but stays admitted. By default prompts keep their recorded steps; a prompt with calls of unknown
        tokens always does.
    arrivals_s: of each request, relative to the first; by default all wait at the start.
    step_s: seconds of a step, which turn arrivals into steps.
    Raises BadInput like `union`, for parameters out of range, and if there are not as many arrivals as requests.
    Source: vLLM 0.33.0, v1/core/sched/scheduler.py: running requests first, then waiting ones, up to a step's token
    budget, in which vLLM includes decoded tokens.
    """
    if concurrency < 1:
        raise OutOfRange(f"concurrency {concurrency}; expected at least 1 request")
    if prefill_chunk is not None and prefill_chunk < 1:
        raise OutOfRange(f"prefill chunks of {prefill_chunk} tokens; expected at least 1")
    trace = stacked(parts)
    if progress:
        progress(1, 3)
    assert trace.sequence is not None
    _, first_call, request = np.unique(trace.sequence, return_index=True, return_inverse=True)
    requests = len(first_call)
    arrival = np.zeros(requests, np.int64)
    if arrivals_s is not None:
        arrival[np.argsort(first_call)] = _in_steps(arrivals_s, step_s, requests)
    order = np.lexsort((first_call, arrival))
    place = np.argsort(order)[request]  # of each call's request
    calls = np.argsort(place, kind="stable")
    begins = run_starts(place[calls], trace.steps[calls])
    trace = join_calls(trace, calls, np.repeat(np.arange(len(begins)), np.diff(with_end(begins, trace.calls))))
    if prefill_chunk is not None:
        trace = by_token(trace)
    if progress:
        progress(2, 3)
    first = run_starts(trace.steps)
    assert trace.sequence is not None
    offset = with_end(run_starts(trace.sequence[first]), len(first))
    shares = np.zeros(len(first), np.bool_) if prefill_chunk is None else _tokens_of_prompts(trace, first)
    step = np.empty(len(first), np.int64)
    _admit(offset, shares, arrival[order], min(concurrency, requests), min(prefill_chunk or 0, len(first)), step)
    each = np.diff(with_end(first, trace.calls))
    merged = join_calls(trace, np.arange(trace.calls), np.repeat(step, each))
    prompts = "prompts as recorded"
    if shares.any():
        prompts = f"at most {counted(prefill_chunk or 0, 'prompt token')} a step"
    elif prefill_chunk is not None:
        prompts = "no prompt is known in them that could be cut into chunks"
    came = "all wait at the start" if arrivals_s is None else f"arrivals as given, at {step_s * 1000:g} ms a step"
    how = f": {counted(requests, 'request')}, first come, first served; {came}; {prompts}"
    return described(merged, parts, what=f"continuous batching by {concurrency:,}", how=how)


def _in_steps(arrivals_s: Sequence[float], step_s: float, requests: int) -> NDArray[np.int64]:
    """The first step, counted from 0, that each request can join."""
    if not 0 < step_s < np.inf:
        raise OutOfRange(f"{step_s * 1000:g} ms a step; arrivals need the time that a step takes")
    if len(arrivals_s) != requests:
        raise Conflict(f"{len(arrivals_s):,} arrivals for {requests:,} requests; give one for each")
    since = np.array(arrivals_s, np.float64)
    since -= since.min()
    if not (since / step_s <= LAST_STEP).all():
        raise OutOfRange(
            f"arrivals over {since.max():g} s at {step_s * 1000:g} ms a step; expected at most {LAST_STEP:,} steps"
        )
    return np.ceil(since / step_s).astype(np.int64)


def _tokens_of_prompts(trace: RoutingTrace, first: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which steps are one token of a prompt, bool [steps]; first: the first call of each step."""
    token = ~trace.has_refs | (trace.n_tokens == 1)
    return np.logical_and.reduceat(token & (phases_of(trace) == PHASE_PROMPT), first)


@allocating
def _admit(offset: Any, shares: Any, arrival: Any, concurrency: int, chunk: int, step: Any) -> None:
    """Write the step, counted from 0, in which each unit of work is done.

    offset: i64 [requests + 1], where each request's units begin. shares: bool [units], the units of which a step can
    have several, up to `chunk` over all requests. arrival: i64 [requests], in steps, ascending. step: i64 [units].
    """
    requests = len(offset) - 1
    at = offset[:-1].copy()
    seat = np.empty(concurrency, np.int64)
    seated = came = clock = number = 0
    while seated or came < requests:
        if not seated:
            clock = max(clock, arrival[came])
        while seated < concurrency and came < requests and arrival[came] <= clock:
            seat[seated] = came
            seated += 1
            came += 1
        left, stay = chunk, 0
        for place in range(seated):
            request = seat[place]
            unit, end = at[request], offset[request + 1]
            if not shares[unit]:
                step[unit] = number
                unit += 1
            else:
                while left and unit < end and shares[unit]:
                    step[unit] = number
                    unit += 1
                    left -= 1
            at[request] = unit
            if unit < end:
                seat[stay] = request
                stay += 1
        seated = stay
        clock += 1
        number += 1


def read_arrivals(path: Path) -> list[float]:
    """When each request arrived, in seconds from any moment: one line per request, blank lines are skipped.

    A line is a number, or a JSON object with one in the first of ARRIVAL_FIELDS that it has.
    Raises BadInput, naming the line, for anything else.
    """
    regular_file_bytes(path, kind="a file with a time in seconds for each request")
    try:
        lines = as_utf8(path.read_bytes()).splitlines()
    except OSError as error:
        raise unreadable(path, error) from None
    return [_seconds(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]


def _seconds(line: bytes, where: str) -> float:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        value = line.decode(errors="replace")
    if isinstance(value, dict):
        value = next((value[field] for field in ARRIVAL_FIELDS if field in value), None)
        if value is None:
            raise Malformed(
                f"{where}: none of the keys {', '.join(ARRIVAL_FIELDS)}; the time of arrival is expected in one"
            )
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Malformed(f"{where}: {shown(value)} is not a time; expected a number of seconds")
    return float(value)
