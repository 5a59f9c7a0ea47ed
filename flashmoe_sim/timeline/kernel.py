"""The loop of the timeline: routed calls in order, and within each the events of its execution model.

Where the order of events is not obvious, these rules hold:

- A batch is read in the order it has; its misses are from storage before the page cache, and those that fill slots for
  the first time before the others; experts read ahead are as they were issued. All its
  chunks from one tier have the service time of their depth: the lanes, or fewer so that every round has as many. What
  two tiers have in flight together does not slow either.
- A call first waits for the late ones of the experts read ahead that it uses. Their reads go before its own.
- The link uploads what a call waits for in the order of arrival, late experts first on a tie, then in the order of the
  batch. Reads and uploads in the background have the time that is left; see background.py.
- Where reads run beside computing in one memory, an expert's bytes slow it by `memory_s`: the call's own misses while
  they are read, in proportion to the time; an expert read ahead in the call that uses it, whenever it was read. One
  that is never used has only what computing leaves of the memory.
- Experts read ahead that the next call must wait for are read as one batch right after their call, over all lanes even
  where misses are read one after another, and then uploaded one after another; where misses are read by families, so
  are they. The output of a step follows them.
- Where experts are copied into fresh tensors, those read ahead are only read.
- The output and the joining of two lanes keep the unit busy that computes.
- What the CPU computes and RAM does not hold is read first, as one batch, and the cold lane begins when all of it is
  there. Misses that such a call installs are uploaded from then on, beside the two lanes, and the call waits for them.
- A call without tokens takes no time, as if its layer had no call in the step: other architectures record none there.
"""

from __future__ import annotations

from typing import Any

from flashmoe_sim._jit import inlined, jit
from flashmoe_sim.timeline import calls
from flashmoe_sim.timeline.background import claim, issue, read_before, upload_before, upload_items, use_link
from flashmoe_sim.timeline.execution import (
    AS_THEY_ARRIVE,
    AWAITED,
    BY_FAMILY,
    COPIED_BATCHES,
    IN_BACKGROUND,
    NEVER_AHEAD,
    ONE_BY_ONE,
    OVERLAPPED,
    REBUILT,
    TOGETHER,
    TWO_LANES,
    UPLOADED_IN_BACKGROUND,
)
from flashmoe_sim.timeline.names import (
    AHEAD,
    DENSE,
    HOST,
    IS_DENSE,
    IS_OUTPUT,
    IS_READ_AHEAD,
    IS_RESOLVE,
    IS_UPLOAD_AHEAD,
    ON_COMPUTE,
    ON_HOST,
    OUTPUT,
    READ,
    UPLOAD,
)
from flashmoe_sim.timeline.state import work_on
from flashmoe_sim.timeline.storage import arrive, earliest_lane, read_batch, read_family, read_on


@jit
def run(
    sim: Any,
    work: Any,
    serve: int,
    reads_ahead: int,
    min_parallel: int,
    copy_from_tokens: int,
    knee_tokens: float,
    cold_knee_tokens: float,
    end: Any,
    parts: Any,
) -> None:
    """Run every routed call.

    work: a named tuple of the columns of `Work` that are of calls. serve, reads_ahead: of execution.py.
    end: f64 [calls], set to when all that belongs to a call was done: its experts, then the reads ahead after it that
    the next call waits for, then the output where it was the last of its step. The next call begins then.
    parts: f64 [calls, N_PARTS], zeros, to which what passed is added; reads ahead before the first call are its part.
    """
    if len(end) == 0:
        return
    clock = 0.0
    for call in range(-1, len(end)):
        into = parts[max(call, 0)]
        if call >= 0:
            clock = serve_call(
                sim,
                work,
                call,
                clock,
                serve,
                reads_ahead,
                min_parallel,
                copy_from_tokens,
                knee_tokens,
                cold_knee_tokens,
                into,
            )
        if sim.state[0].issued < len(sim.ahead) and sim.ahead[sim.state[0].issued].after == call:
            done = clock
            if reads_ahead == AWAITED:
                clock = await_ahead(sim, call, done, serve)
            elif reads_ahead != NEVER_AHEAD:
                issue(sim, call, done, reads_ahead == UPLOADED_IN_BACKGROUND)
            into[AHEAD] += clock - done
        if call >= 0:
            if call == len(end) - 1 or work.step[call + 1] != work.step[call]:
                before = clock
                clock = work_on(sim, ON_COMPUTE, IS_OUTPUT, call, before, sim.state[0].step_s)
                into[OUTPUT] += clock - before
            end[call] = clock
    if reads_ahead in (IN_BACKGROUND, UPLOADED_IN_BACKGROUND):
        read_before(sim, clock, True)
        upload_before(sim, clock, True)


@inlined
def serve_call(
    sim: Any,
    work: Any,
    call: int,
    begin: float,
    serve: int,
    reads_ahead: int,
    min_parallel: int,
    copy_from_tokens: int,
    knee_tokens: float,
    cold_knee_tokens: float,
    parts: Any,
) -> float:
    """Run one routed call; returns when its experts have been computed."""
    if work.refs[call] == 0 and work.n_tokens[call] == 0:
        return begin
    row, n_tokens = work.row[call], work.n_tokens[call]
    requests, misses, warm, fills = work.requests[call], work.misses[call], work.warm[call], work.cold[call]
    costs, upload_s = sim.rows[row], sim.rows[row].upload_s
    dense_s = costs.dense_s * max(1.0, n_tokens / knee_tokens)
    tokens_each = work.refs[call] / requests if requests > 0 else 0.0
    expert_s = costs.expert_s * max(1.0, tokens_each / knee_tokens)
    cold_expert_s = costs.cold_expert_s * max(1.0, tokens_each / cold_knee_tokens)

    dense_end = work_on(sim, ON_COMPUTE, IS_DENSE, call, begin, dense_s)
    ready = work_on(sim, ON_HOST, IS_RESOLVE, call, dense_end, sim.state[0].call_s)
    parts[DENSE] += dense_end - begin
    parts[HOST] += ready - dense_end

    # items: what arrives together, late experts first
    background = reads_ahead in (IN_BACKGROUND, UPLOADED_IN_BACKGROUND)
    copying = serve == COPIED_BATCHES and n_tokens >= copy_from_tokens
    stored = misses - warm
    late, on_time = 0, 0
    reading = ready  # from when on the call's own misses are read
    if background and len(sim.ahead) > 0:
        used = sim.state[0].used
        late = claim(sim, call, ready, (serve == OVERLAPPED and misses > 0) or (copying and stored > 0))
        on_time = sim.state[0].used - used - late
        if serve == OVERLAPPED or copying:
            reading = max(ready, sim.state[0].storage_free)
    n, arrived = late, ready
    if serve == AS_THEY_ARRIVE:  # each chunk by itself
        n += misses * costs.chunks
        upload_s /= costs.chunks
        arrived = read_batch(
            sim, late, misses * costs.chunks, warm * costs.chunks, fills * costs.chunks, 1, row, ready, call
        )
    elif serve in (TOGETHER, OVERLAPPED):
        n += misses
        arrived = read_batch(sim, late, misses, warm, fills, costs.chunks, row, reading, call)
        if misses > 0:
            sim.state[0].storage_free = arrived
    elif copying:
        n += misses
        if stored > 0:
            arrived = read_batch(sim, late, stored, 0, fills, costs.chunks, row, reading, call)
            sim.state[0].storage_free = arrived
        for item in range(late + stored, n):
            arrive(sim, item, ready)
    uploaded, usable = arrived, ready
    if serve != TOGETHER:
        uploaded = max(arrived, upload_items(sim, n, upload_s, call))

    if serve == TOGETHER:
        parts[READ] += arrived - ready
        usable = calls.install_in_turn(sim, parts, call, arrived, misses, upload_s)
    elif serve == AS_THEY_ARRIVE:
        parts[READ] += arrived - ready
        parts[UPLOAD] += uploaded - arrived
        usable = calls.install(sim, parts, call, uploaded, misses)
    elif serve in (ONE_BY_ONE, REBUILT):
        each_s = upload_s if serve == ONE_BY_ONE else 0.0
        usable = calls.one_by_one(sim, parts, call, ready, misses, warm, fills, row, each_s)
        if serve == REBUILT:
            usable = calls.upload(sim, parts, call, usable, requests, upload_s)
    elif serve == BY_FAMILY:
        usable = calls.by_family(sim, parts, call, ready, misses, warm, fills, row)
    elif serve != OVERLAPPED:
        usable = calls.wait_for_items(sim, parts, late, ready, arrived, uploaded)
        if copying:
            usable = calls.install(sim, parts, call, usable, work.installs[call])

    if misses > 0 and serve in (ONE_BY_ONE, BY_FAMILY, TOGETHER, AS_THEY_ARRIVE, REBUILT):
        usable = calls.resume(sim, parts, call, usable)

    if serve == TWO_LANES or (serve == COPIED_BATCHES and not copying):
        side_by_side_from = min_parallel if serve == TWO_LANES else requests + 1
        both, there = calls.two_lanes(
            sim,
            parts,
            call,
            row,
            usable,
            requests,
            misses,
            stored,
            fills,
            late,
            expert_s,
            cold_expert_s,
            side_by_side_from,
        )
        end: float = calls.install_beside(sim, parts, call, there, both, work.installs[call], upload_s)
        return end
    if serve != OVERLAPPED:
        all_computed: float = calls.compute(sim, parts, call, usable, requests, expert_s)
        return all_computed
    share = min(misses * costs.memory_s / (arrived - reading), 1.0) if arrived > reading else 0.0
    hits_s = (requests - n) * expert_s + on_time * costs.memory_s
    hits_end = calls.compute_beside_reads(sim, parts, call, ready, hits_s, reading, arrived, share)
    clock: float = calls.compute_as_usable(
        sim, parts, call, n, ready, hits_end, expert_s, costs.memory_s, reading, arrived, share
    )
    return clock


@inlined
def await_ahead(sim: Any, call: int, time: float, serve: int) -> float:
    """Read the experts issued after `call`, then upload them; returns when that is done."""
    first = sim.state[0].issued
    issue(sim, call, time, False)
    clock = time
    if serve == BY_FAMILY:
        sim.state[0].read = sim.state[0].issued
        for i in range(first, sim.state[0].issued):
            expert = sim.ahead[i]
            for f in range(sim.families.shape[1]):
                clock = read_family(sim, expert.row, f, expert.warm != 0, expert.cold != 0, clock, IS_READ_AHEAD, call)
                upload_s = sim.families[expert.row, f].upload_s
                if upload_s > 0.0:
                    clock = use_link(sim, clock, clock + upload_s, IS_UPLOAD_AHEAD, call)
        return clock
    for i in range(first, sim.state[0].issued):
        expert = sim.ahead[i]
        for _ in range(sim.rows[expert.row].chunks):
            read = read_on(sim, earliest_lane(sim, time), time, expert.service_s, IS_READ_AHEAD, call)
            clock = max(clock, read)
    sim.state[0].read = sim.state[0].issued
    for i in range(first, sim.state[0].issued):
        upload_s = sim.rows[sim.ahead[i].row].upload_s
        if serve != REBUILT and upload_s > 0.0:
            clock = use_link(sim, clock, clock + upload_s, IS_UPLOAD_AHEAD, call)
    return clock
