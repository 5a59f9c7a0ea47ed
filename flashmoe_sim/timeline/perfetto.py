"""A timeline as a file that Perfetto (ui.perfetto.dev) and Chrome (about:tracing) open.

The file is an object with `traceEvents`, an array of objects, as the Trace Event Format describes: complete events
(`X`) with `ts` and `dur` in microseconds, counters (`C`), and names of processes and threads (`M`). Times are rounded
to eighths of a microsecond, which are exact in binary fractions and in nanoseconds, so that nested or adjacent spans
stay so in every reader.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson
from numpy.typing import NDArray

from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.io.provenance import program
from flashmoe_sim.io.whole import atomic_writer
from flashmoe_sim.timeline.names import KINDS, ON_STORAGE, RESOURCES
from flashmoe_sim.timeline.run import Timeline
from flashmoe_sim.timeline.work import Work
from flashmoe_sim.trace.routing import PHASE_PROMPT

MODEL, MACHINE = 1, 2  # process ids
LANES = 1000  # most lanes of a resource, for thread ids
TICKS = 8  # to the microsecond
CHUNK = 20_000  # events written at a time
Event = dict[str, Any]


def write_perfetto(
    timeline: Timeline,
    work: Work,
    path: Path,
    *,
    layers: Sequence[int] | None = None,
    steps: range | None = None,
    force: bool = False,
) -> None:
    """Write a recorded timeline to `path`, compressed if the name ends in .gz.

    layers: the layer number of each row, for names. steps: the numbers of the steps to write; all if None.
    Raises BadInput if there is no such step, or the file exists without `force` or cannot be written; ValueError for
    a timeline without spans.
    """
    if timeline.spans is None:
        raise ValueError("timeline without spans: simulate it with record=True")
    calls = np.arange(len(work.step)) if steps is None else np.flatnonzero(np.isin(work.step, np.asarray(steps)))
    if not len(calls):
        there = f"{work.step[0]} to {work.step[-1]}" if len(work.step) else "none"
        raise OutOfRange(f"{path}: none of the steps to write is in the run, which has {there}; give others")
    events = _events(work, timeline, calls, list(layers or range(int(work.row.max()) + 1)))
    with atomic_writer(path, force=force) as stream:
        if path.name.endswith(".gz"):
            with gzip.GzipFile(filename="", mode="wb", fileobj=stream, compresslevel=6, mtime=0) as packed:
                _write(packed, events)
        else:
            _write(stream, events)


def _write(stream: IO[bytes] | gzip.GzipFile, events: Iterator[Event]) -> None:
    about = orjson.dumps({"program": program()})
    stream.write(b'{"displayTimeUnit":"ms","otherData":' + about + b',"traceEvents":[\n')
    separator = b""
    while chunk := list(islice(events, CHUNK)):
        stream.write(separator + orjson.dumps(chunk)[1:-1])
        separator = b",\n"
    stream.write(b"\n]}\n")


def _events(work: Work, timeline: Timeline, calls: NDArray[np.intp], layers: list[int]) -> Iterator[Event]:
    ends = _ticks(timeline.end)
    begins = np.append(np.zeros(1, np.int64), ends)[:-1]
    yield _name("process_name", MODEL, 0, "model")
    yield _name("process_name", MACHINE, 0, "machine")
    yield _name("thread_name", MODEL, 1, "steps")
    yield from _spans(timeline, int(begins[calls[0]]), int(ends[calls[-1]]), work, layers)
    for step in np.split(calls, np.flatnonzero(np.diff(work.step[calls])) + 1):
        yield from _step(work, step, begins, ends, layers)
    yield from _counters(int(ends[calls[-1]]), 0, 0)


def _step(
    work: Work, calls: NDArray[np.intp], begins: NDArray[np.int64], ends: NDArray[np.int64], layers: list[int]
) -> Iterator[Event]:
    """A step with its routed calls, and its counters."""
    requests, misses = int(work.requests[calls].sum()), int(work.misses[calls].sum())
    tokens = int(work.n_tokens[calls].max())
    number = int(work.step[calls[0]])
    if work.phase[calls[0]] == PHASE_PROMPT:
        name = f"prompt, step {number}"
    else:
        name = f"token {number}" if tokens == 1 else f"step {number}"
    begin = int(begins[calls[0]])
    args = {"tokens": tokens, "requests": requests, "misses": misses}
    yield _complete(MODEL, 1, name, begin, int(ends[calls[-1]]), args)
    for call in calls.tolist():
        missed = {"call": call, "requests": int(work.requests[call]), "misses": int(work.misses[call])}
        yield _complete(MODEL, 1, f"layer {layers[work.row[call]]}", int(begins[call]), int(ends[call]), missed)
    yield from _counters(begin, misses, requests)


def _spans(timeline: Timeline, begin: int, end: int, work: Work, layers: list[int]) -> Iterator[Event]:
    """What the resources did in this time, on one track per lane, and the names of the tracks."""
    assert timeline.spans is not None
    begins, ends = _ticks(timeline.spans["begin"]), _ticks(timeline.spans["end"])
    inside = np.flatnonzero((ends > begins) & (ends > begin) & (begins < end))
    inside = inside[np.argsort(begins[inside], kind="stable")]
    spans = timeline.spans[inside]
    tracks = spans["resource"].astype(np.int64) * LANES + spans["lane"] + 1
    for track in np.unique(tracks).tolist():
        yield _name("thread_name", MACHINE, track, _track_name(*divmod(track - 1, LANES)))
        yield {"ph": "M", "pid": MACHINE, "tid": track, "name": "thread_sort_index", "args": {"sort_index": track}}
    columns = (tracks, spans["kind"], spans["call"], begins[inside], ends[inside])
    for track, kind, call, first, last in zip(*(column.tolist() for column in columns), strict=True):
        args = {"call": call} | ({"layer": layers[work.row[call]]} if call >= 0 else {})
        yield _complete(MACHINE, track, KINDS[kind], first, last, args)


def _track_name(resource: int, lane: int) -> str:
    name = RESOURCES[resource].replace("_", " ")
    return f"{name}, lane {lane}" if resource == ON_STORAGE else name


def _counters(at: int, misses: int, requests: int) -> Iterator[Event]:
    yield {"ph": "C", "pid": MODEL, "name": "misses", "ts": at / TICKS, "args": {"experts": misses}}
    if requests:
        rate = 100 * (requests - misses) / requests
        yield {"ph": "C", "pid": MODEL, "name": "hit rate", "ts": at / TICKS, "args": {"%": rate}}


def _complete(pid: int, tid: int, name: str, begin: int, end: int, args: Event) -> Event:
    times = {"ts": begin / TICKS, "dur": (end - begin) / TICKS}
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, **times, "args": args}


def _name(kind: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": {"name": name}}


def _ticks(seconds: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(seconds * (1e6 * TICKS)).astype(np.int64)
