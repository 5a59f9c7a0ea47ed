"""A long trace in chunks: consecutive calls of it, each a trace that knows what holds for the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.trace.check import PER_CALL, PER_REFERENCE
from flashmoe_sim.trace.routing import RoutingTrace

MOST_STEPS = (1 << 31) - 1


@dataclass(frozen=True, eq=False)
class Chunk(RoutingTrace):
    """Consecutive calls of a longer trace. What is not an array is the whole trace's.

    all_layers: the layers of the whole trace, ascending; a chunk may have calls of only some.
    """

    all_layers: tuple[int, ...] = field(default=(), kw_only=True)

    @cached_property
    def layers(self) -> tuple[int, ...]:
        return self.all_layers


@dataclass(frozen=True, eq=False)
class LongTrace:
    """A trace that is read chunk by chunk, as often as it is asked for.

    head: a chunk without calls, for what holds for all of them.
    read: reads it from the beginning; the chunks may differ in length.
    """

    head: Chunk
    read: Callable[[], Iterator[Chunk]]


class Last(NamedTuple):
    """The call before a chunk: its layer and step, and its number, from 1; all 0 before the first."""

    layer: int = 0
    step: int = 0
    calls: int = 0


def steps_after(chunk: RoutingTrace, last: Last) -> NDArray[np.int32]:
    """The step of each call of a chunk, i32 [calls], as the whole trace has it.

    Raises BadInput for more steps than a trace can have.
    """
    if chunk.step is not None:
        return chunk.step
    begins = np.zeros(chunk.calls, np.int64)
    begins[1:] = chunk.layer[1:] <= chunk.layer[:-1]
    if chunk.calls:
        begins[0] = last.step + (last.calls > 0 and int(chunk.layer[0]) <= last.layer)
    steps = np.cumsum(begins)
    if chunk.calls and steps[-1] > MOST_STEPS:
        raise BadInput(f"{chunk.name}: has more than {MOST_STEPS:,} steps; cut it into several traces")
    return steps.astype(np.int32)


def head_of(trace: RoutingTrace) -> Chunk:
    """What holds for all chunks of a trace: a chunk without calls."""
    return _part(trace, 0, 0)


def cut_up(trace: RoutingTrace, calls: list[int]) -> LongTrace:
    """A trace in memory as a long one, cut before each of `calls`, ascending."""
    bounds = [0, *calls, trace.calls]
    return LongTrace(
        head_of(trace),
        lambda: (_part(trace, begin, end) for begin, end in zip(bounds[:-1], bounds[1:], strict=True)),
    )


def _part(trace: RoutingTrace, begin: int, end: int) -> Chunk:
    own = {item.name: getattr(trace, item.name) for item in fields(RoutingTrace)}
    first, last = (int(trace.offset[call]) for call in (begin, end))
    for name in PER_CALL:
        if own[name] is not None:
            own[name] = own[name][begin:end]
    for name in PER_REFERENCE:
        if own[name] is not None:
            own[name] = own[name][first:last]
    own["offset"] = trace.offset[begin : end + 1] - first
    return Chunk(**own, all_layers=trace.layers)
