"""A long trace in chunks: consecutive calls, with the properties of the whole trace."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from flashmoe_sim.trace import routing
from flashmoe_sim.trace.check import PER_CALL, PER_REFERENCE
from flashmoe_sim.trace.routing import RoutingTrace, offsets


@dataclass(frozen=True, eq=False)
class Chunk(RoutingTrace):
    """Consecutive calls of a longer trace. All fields that are not arrays are the whole trace's.

    all_layers: the layers of the whole trace, ascending; a chunk may have calls of only some.
    """

    all_layers: tuple[int, ...] = field(default=(), kw_only=True)

    @cached_property
    def layers(self) -> tuple[int, ...]:
        return self.all_layers


@dataclass(frozen=True, eq=False)
class LongTrace:
    """A trace that is read chunk by chunk, any number of times.

    head: a chunk without calls, with what holds for all calls.
    read: reads it from the beginning; the chunks may differ in length.
    """

    head: Chunk
    read: Callable[[], Iterator[Chunk]]


def whole(chunk: Chunk) -> RoutingTrace:
    """An ordinary trace from a chunk that has all calls of its trace."""
    return RoutingTrace(**{item.name: getattr(chunk, item.name) for item in fields(RoutingTrace)})


def cut_up(trace: RoutingTrace, calls: list[int]) -> LongTrace:
    """A trace in memory as a long one, cut before each of `calls`, ascending."""
    bounds = [0, *calls, trace.calls]
    return LongTrace(
        part_of(trace, 0, 0),
        lambda: (part_of(trace, begin, end) for begin, end in itertools.pairwise(bounds)),
    )


def joined(*chunks: Chunk) -> Chunk:
    """Consecutive chunks as one."""
    arrays: dict[str, Any] = {"offset": offsets(np.concatenate([np.diff(chunk.offset) for chunk in chunks]))}
    for name in (*PER_CALL, *PER_REFERENCE):
        if getattr(chunks[0], name) is not None:
            arrays[name] = np.concatenate([getattr(chunk, name) for chunk in chunks])
    return replace(chunks[0], **arrays)


def regrouped(chunks: Iterator[Chunk], *, calls: int, refs: int) -> Iterator[Chunk]:
    """The same calls in chunks as long as `calls` and `refs` allow, but at least one call each."""
    rest: Chunk | None = None
    for chunk in chunks:
        rest = chunk if rest is None else joined(rest, chunk)
        begin = 0
        while (end := _end_of_part(rest, begin, calls=calls, refs=refs)) < rest.calls:
            yield part_of(rest, begin, end)
            begin = end
        rest = part_of(rest, begin, rest.calls)
    if rest is not None and rest.calls:
        yield rest


def parts_of(trace: RoutingTrace) -> Iterator[Chunk]:
    """All calls of a trace, in parts of at most BLOCK calls and references, but at least one call each."""
    begin = 0
    while begin < trace.calls:
        end = _end_of_part(trace, begin, calls=routing.BLOCK, refs=routing.BLOCK)
        yield part_of(trace, begin, end)
        begin = end


def _end_of_part(trace: RoutingTrace, begin: int, *, calls: int, refs: int) -> int:
    last = trace.offset[begin : begin + calls + 1]
    return begin + max(int(np.searchsorted(last, last[0] + refs, side="right")) - 1, min(1, len(last) - 1))


def part_of(trace: RoutingTrace, begin: int, end: int) -> Chunk:
    """The calls from `begin` to `end` (exclusive); arrays of references are not copied."""
    own = {item.name: getattr(trace, item.name) for item in fields(RoutingTrace)}
    first, last = (int(trace.offset[call]) for call in (begin, end))
    parts = dict.fromkeys(PER_CALL, slice(begin, end)) | dict.fromkeys(PER_REFERENCE, slice(first, last))
    own |= {name: own[name][part] for name, part in parts.items() if own[name] is not None}
    own["offset"] = trace.offset[begin : end + 1] - first
    return Chunk(**own, all_layers=trace.layers)
