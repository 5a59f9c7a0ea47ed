"""A replay in parts, each with a bank that starts empty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.capacity import Capacity, capacities
from flashmoe_sim.residency.replay import Replayed, build_counts
from flashmoe_sim.residency.replay import replay as run_replay
from flashmoe_sim.residency.stream import InstallStream, ReadAhead
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from flashmoe_sim.trace.routing import RoutingTrace

KEPT = 8  # parts of a workload, which every size of a system replays

_PARTS: WeakKeyDictionary[Workload, dict[bytes, _Part]] = WeakKeyDictionary()


class _Part(NamedTuple):
    """Some calls of a workload. workload: None if they have no reference. references: their places in the trace."""

    workload: Workload | None
    references: NDArray[np.int64]


def replay_in_parts(
    workload: Workload,
    setup: Setup,
    parts: Sequence[NDArray[np.int64]],
    *,
    banks: Sequence[Bank] = (),
    placed: NDArray[np.int64] | None = None,
) -> Replayed:
    """The recorded replay of a workload whose bank is emptied before each part; nothing is read ahead.

    parts: the calls of each part, ascending, i64. A part of a global bank has calls of every layer that uses it.
    banks: of the parts, if each has one of its own, in bytes.
    placed: calls of layers beside the bank whose experts are all on the GPU, which hit everything; none by default.
        Calls that are in neither miss everything and install nothing.
    """
    trace = workload.trace
    table = np.zeros((len(trace.layers), tally.N_COLUMNS), np.int64)
    stream = np.zeros((trace.calls, len(tally.STREAM)), np.int32)
    hit = np.zeros(trace.refs, np.uint8)
    contents: dict[int, NDArray[np.int32]] = {}
    apart = np.ones(trace.calls, np.bool_)
    for calls, bank in zip(parts, banks or [setup.bank] * len(parts), strict=True):
        apart[calls] = False
        part, places = _part_of(workload, calls)
        if part is None:
            continue
        replayed = run_replay(part, replace(setup, bank=bank), record=True)
        assert replayed.stream is not None
        assert replayed.hit is not None
        layers = part.trace.layers
        table[np.searchsorted(trace.layers, layers)] += replayed.counts.table
        stream[calls] = np.stack([getattr(replayed.stream, name) for name in STREAM_NAMES], axis=1)
        hit[places] = replayed.hit
        contents = dict(zip(layers, replayed.contents, strict=setup.scope == "layer"))
    if placed is not None:
        apart[placed] = False
        hit[references(trace, placed)] = 1
        there = np.zeros(trace.calls, np.bool_)
        there[placed] = True
        _count_alike(workload, there, (tally.HITS,), table, stream)
    _count_alike(workload, apart, (tally.MISSES, tally.BYPASSED), table, stream)
    nothing = np.zeros(0, np.int32)
    if banks:
        together = sum(bank.budget_bytes or 0 for bank in banks)
        rooms = [Capacity(together, nothing.astype(np.int64), together)]
    else:
        rooms = capacities(workload, setup)
    return Replayed(
        setup,
        build_counts(workload, setup, rooms, table),
        [contents.get(layer, nothing) for layer in (trace.layers if setup.scope == "layer" else trace.layers[:1])],
        hit,
        None,
        _stream(workload, stream),
    )


def _part_of(workload: Workload, calls: NDArray[np.int64]) -> _Part:
    known, key = _PARTS.setdefault(workload, {}), calls.tobytes()
    if key not in known:
        if len(known) == KEPT:
            known.pop(next(iter(known)))
        part = only(workload.trace, calls)
        known[key] = _Part(prepare(part, workload.geometry) if part.refs else None, references(workload.trace, calls))
    return known[key]


STREAM_NAMES = ("requests", "hits", "misses", "cold", "evictions", "aliased", "bypassed", "minor")  # as tally.STREAM


def references(trace: RoutingTrace, calls: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of some calls' references in a trace, i64."""
    length = np.diff(trace.offset)[calls]
    ahead = trace.offset[calls] - (np.cumsum(length) - length)
    found: NDArray[np.int64] = np.arange(int(length.sum())) + np.repeat(ahead, length)
    return found


def only(trace: RoutingTrace, calls: NDArray[np.int64]) -> RoutingTrace:
    """A trace of some of the calls, with only the routing."""
    return trace.with_(
        layer=trace.layer[calls],
        n_tokens=trace.n_tokens[calls],
        offset=np.concatenate([[0], np.cumsum(np.diff(trace.offset)[calls])]).astype(np.int64),
        expert=trace.expert[references(trace, calls)],
        step=trace.steps[calls],
        phase=None if trace.phase is None else trace.phase[calls],
        sequence=None if trace.sequence is None else trace.sequence[calls],
        n_text=None,
        weight=None,
        slot=None,
        resident=None,
    )


def _count_alike(
    workload: Workload,
    which: NDArray[np.bool_],
    as_what: tuple[int, ...],
    table: NDArray[np.int64],
    stream: NDArray[np.int32],
) -> None:
    """Count all requests of some calls as hits, or as misses that are not installed. which: bool [calls]."""
    if not which.any():
        return
    refs = np.diff(workload.trace.offset)
    for row, pool in enumerate(workload.layer_pools):
        mine = which[pool.call]
        calls, requests = pool.call[mine], pool.requests[mine]
        table[row, tally.CALLS] += len(calls)
        table[row, tally.REFS] += refs[calls].sum()
        table[row, tally.FULL_HIT_CALLS] += len(calls) if tally.HITS in as_what else np.count_nonzero(requests == 0)
        for column in (tally.REQUESTS, *as_what):
            table[row, column] += requests.sum()
            stream[calls, tally.STREAM.index(column)] = requests


def _stream(workload: Workload, stream: NDArray[np.int32]) -> InstallStream:
    trace = workload.trace
    column = dict(zip(STREAM_NAMES, stream.T, strict=True))
    size = None
    if workload.expert_bytes is not None:
        size = np.array(workload.expert_bytes, np.int64)[np.searchsorted(trace.layers, trace.layer)]
    return InstallStream(
        layer=trace.layer,
        step=trace.steps,
        n_tokens=trace.n_tokens,
        **column,
        prefetch_issued=np.zeros(trace.calls, np.int32),
        bytes_read=None if size is None else column["misses"] * size,
        prefetch_bytes=None if size is None else np.zeros(trace.calls, np.int64),
        ahead=ReadAhead.of([]),
    )
