"""The calls that one bank serves, of one layer or of all layers, in the form the replay loops read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import jit
from flashmoe_sim.policies.bank import Scope
from flashmoe_sim.policies.base import NEVER
from flashmoe_sim.policies.minor import MinorRule
from flashmoe_sim.residency.hook_records import records
from flashmoe_sim.trace.long_traces import OnDisk
from flashmoe_sim.trace.routing import RoutingTrace, blocks, frozen

Value = TypeVar("Value")


class lazy(Generic[Value]):
    """A `cached_property` without its lock, which before Python 3.12 makes threads wait even for different objects."""

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __get__(self, owner: Any, _: type | None = None) -> Value:
        value: Value = _frozen(self.compute(owner))
        owner.__dict__[self.compute.__name__] = value
        return value


def _frozen(value: Any) -> Any:
    for array in value if isinstance(value, tuple) else (value,):
        frozen(array)
    return value


class Gathered(NamedTuple):
    """The results of one walk over the calls of a pool, which has them as properties; last_call: i32 [keys], or -1."""

    offset: NDArray[np.int64]
    key: NDArray[np.uint32]
    requests: NDArray[np.int32]
    requests_by_key: NDArray[np.int64]
    first_reference: NDArray[np.int64]
    last_call: NDArray[np.int32]


class Calls(NamedTuple):
    """The calls of a pool, as the replay loops read them; the pool's properties describe the arrays.

    number: i64 [calls], the place of each call in the trace. upcoming: i32 [references], the next use of each key:
    `next_call`, or `next_reference` if every reference is a request. If the policy sees something, it is a record of
    this and of what the policy sees. minor: bool [references], whether the expert is minor in its call; empty without a
    rule for minor experts.
    """

    key: NDArray[np.uint32]
    offset: NDArray[np.int64]
    row: NDArray[np.int32]
    step: NDArray[np.int32]
    number: NDArray[np.int64]
    key_row: NDArray[np.int32]
    upcoming: NDArray[np.int32]
    minor: NDArray[np.bool_]
    tokens: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Pool:
    """The calls of one pool, in read-only arrays.

    call: i64 [calls], the number of each call in the trace.
    row: i32 [calls], the layer's place in `trace.layers`; rows: the ones that occur.
    key_row: i32 [keys], the layer's place for every key.
    refs: number of references. steps: number of steps that the calls belong to; for a chunk, an upper bound.
    """

    trace: RoutingTrace
    call: NDArray[np.int64]
    row: NDArray[np.int32]
    key_row: NDArray[np.int32]
    refs: int
    steps: int
    # for what is seen, and whether every reference is a request
    _records: dict[tuple[tuple[str, ...], bool], NDArray[Any]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for values in (self.call, self.row, self.key_row):
            frozen(values)

    @property
    def offset(self) -> NDArray[np.int64]:
        """Where the references of each call begin in the pool, then their number; i64 [calls + 1]."""
        return self._gathered.offset

    @property
    def key(self) -> NDArray[np.uint32]:
        """Expert number of each reference, in a global pool numbered on from layer to layer; u32 [references]."""
        return self._gathered.key

    @lazy
    def step(self) -> NDArray[np.int32]:
        """The step of each call, then the number of steps; i32 [calls + 1]."""
        steps = self.trace.empty(len(self.call) + 1, np.int32)
        np.take(self.trace.steps, self.call, out=steps[:-1], mode="clip")  # other modes take a copy first
        steps[-1] = self.steps
        return steps

    @lazy
    def tokens(self) -> NDArray[np.int32]:
        """The tokens of each call, i32 [calls]."""
        tokens = self.trace.empty(len(self.call), np.int32)
        np.take(self.trace.n_tokens, self.call, out=tokens, mode="clip")  # other modes take a copy first
        return tokens

    @lazy
    def reference(self) -> NDArray[np.int64]:
        """The place of each reference in the trace, i64 [references]."""
        ahead = self.trace.offset[self.call] - self.offset[:-1]
        return np.arange(self.refs) + np.repeat(ahead, np.diff(self.offset))

    @property
    def keys(self) -> int:
        return len(self.key_row)

    @property
    def requests(self) -> NDArray[np.int32]:
        """Number of distinct keys of each call, i32 [calls]."""
        return self._gathered.requests

    @property
    def requests_by_key(self) -> NDArray[np.int64]:
        """How many calls request each key, i64 [keys]."""
        return self._gathered.requests_by_key

    @property
    def first_reference(self) -> NDArray[np.int64]:
        """The first reference to each key; the number of references if there is none; i64 [keys]."""
        return self._gathered.first_reference

    @lazy
    def largest_call(self) -> int:
        """The most distinct keys of a call."""
        return int(self.requests.max(initial=0))

    def calls_fit(self, slots: int) -> bool:
        """Whether no call has more distinct keys than that; counts them only if its references leave that open."""
        return self.trace.longest_call <= slots or self.largest_call <= slots

    @lazy
    def _gathered(self) -> Gathered:
        walk = _Gathering(self)
        walk.go_on(len(self.call))
        return walk.out

    @lazy
    def next_call(self) -> NDArray[np.int32]:
        """For each reference, the first one to its key in a later call, or NEVER; i32 [references]."""
        return self._next(self.offset)

    @lazy
    def next_reference(self) -> NDArray[np.int32]:
        """For each reference, the next one to its key, or NEVER; i32 [references]."""
        return self._next(_numbers(self.trace, self.refs + 1))

    def calls(self, *, by_reference: bool, sees: tuple[str, ...] = (), minor: MinorRule | None = None) -> Calls:
        """For the replay loops.

        by_reference: whether every reference is a request. sees: what a policy sees. minor: the rule for minor experts.
        """
        upcoming: NDArray[Any] = self.next_reference if by_reference else self.next_call
        small = np.empty(0, np.bool_)
        if minor is not None:
            values, small = self._seen((minor.by,), by_reference)[minor.by], self.trace.empty(self.refs, np.bool_)
            for block in blocks(self.refs):
                small[block] = minor.holds(values[block])
        upcoming = self._seen(sees, by_reference) if sees else upcoming
        return Calls(self.key, self.offset, self.row, self.step, self.call, self.key_row, upcoming, small, self.tokens)

    def _seen(self, names: tuple[str, ...], by_reference: bool) -> NDArray[Any]:
        """For each reference `upcoming` and what `names` say, as a record."""
        kind = names, by_reference
        if kind not in self._records:
            upcoming = self.next_reference if by_reference else self.next_call
            pool = self.call, self.offset, self.key, self.keys
            self._records[kind] = frozen(records(self.trace, *pool, upcoming, names, by_reference=by_reference))
        return self._records[kind]

    def _next(self, offset: NDArray[np.int64]) -> NDArray[np.int32]:
        out = self.trace.empty(self.refs, np.int32)
        _next_call(self.key, offset, np.full(self.keys, NEVER, np.int32), out)
        return out


class _Gathering:
    """A walk over the calls of a pool, which can be made in several parts. done: the calls so far."""

    def __init__(self, pool: Pool) -> None:
        calls, empty = len(pool.call), pool.trace.empty
        self.pool, self.done = pool, 0
        self.out = Gathered(
            empty(calls + 1, np.int64),
            empty(pool.refs, np.uint32),
            empty(calls, np.int32),
            np.zeros(pool.keys, np.int64),
            np.full(pool.keys, pool.refs, np.int64),
            np.full(pool.keys, -1, np.int32),
        )
        self.out.offset[0] = 0
        self._first_key = np.searchsorted(pool.key_row, np.arange(pool.key_row[-1] + 1))

    def go_on(self, end: int) -> None:
        """Walk to a call of the pool (exclusive)."""
        pool, trace = self.pool, self.pool.trace
        _gather(trace.expert, trace.offset, pool.call, pool.row, self._first_key, self.done, end, self.out)
        self.done = end


def build_pools(trace: RoutingTrace, *, scope: Scope = "layer") -> list[Pool]:
    """The pools of a trace: one per layer in the order of `trace.layers`, or one for all."""
    steps = int(trace.steps.max()) + 1
    counts = [trace.n_experts[layer] for layer in trace.layers]
    rows = np.arange(len(counts), dtype=np.int32)
    row_of_layer = np.zeros(max(trace.layers) + 1, np.int32)
    row_of_layer[list(trace.layers)] = rows
    if scope == "global":
        key_row = np.repeat(rows, counts)
        own_rows = trace.empty(trace.calls, np.int32)
        np.take(row_of_layer, trace.layer, out=own_rows, mode="clip")  # other modes take a copy first
        return [Pool(trace, _numbers(trace, trace.calls), own_rows, key_row, trace.refs, steps)]
    call = trace.empty(trace.calls, np.int64)
    calls, refs, place = np.zeros((3, len(counts)), np.int64)
    _group(trace.layer, trace.offset, row_of_layer, calls, refs, place, call)
    pools = []
    for row, own in enumerate(np.split(call, np.cumsum(calls)[:-1])):
        own_rows, key_row = trace.empty(len(own), np.int32), np.full(counts[row], row, np.int32)
        own_rows[:] = row
        pools.append(Pool(trace, own, own_rows, key_row, int(refs[row]), steps))
    if isinstance(trace, OnDisk):
        _gather_together(trace, pools)
    return pools


def _gather_together(trace: OnDisk, pools: list[Pool]) -> None:
    """Gather all layers in one walk over the trace: alone, each would read all of it."""
    walks = [_Gathering(pool) for pool in pools]
    steps = [trace.empty(len(pool.call) + 1, np.int32) for pool in pools]
    tokens = [trace.empty(len(pool.call), np.int32) for pool in pools]
    for block in blocks(trace.calls):
        for walk, step, own in zip(walks, steps, tokens, strict=True):
            begin, end = walk.done, int(np.searchsorted(walk.pool.call, block.stop))
            step[begin:end] = trace.steps[walk.pool.call[begin:end]]
            own[begin:end] = trace.n_tokens[walk.pool.call[begin:end]]
            walk.go_on(end)
    for walk, step, own in zip(walks, steps, tokens, strict=True):
        step[-1] = walk.pool.steps
        walk.pool.__dict__.update(_gathered=_frozen(walk.out), step=frozen(step), tokens=frozen(own))


def _numbers(trace: RoutingTrace, length: int) -> NDArray[np.int64]:
    """The numbers from 0 on, i64."""
    numbers = trace.empty(length, np.int64)
    for block in blocks(length):
        numbers[block] = np.arange(block.start, block.stop)
    return numbers


@jit
def _group(layer: Any, trace_offset: Any, row_of_layer: Any, calls: Any, refs: Any, place: Any, call: Any) -> None:
    """Sort calls by the row of their layer, keeping their order within it; count each row's calls and references.

    place: i64 [rows], zeros.
    """
    for c in range(len(layer)):
        row = row_of_layer[layer[c]]
        calls[row] += 1
        refs[row] += trace_offset[c + 1] - trace_offset[c]
    for row in range(1, len(calls)):
        place[row] = place[row - 1] + calls[row - 1]
    for c in range(len(layer)):
        row = row_of_layer[layer[c]]
        call[place[row]] = c
        place[row] += 1


@jit
def _gather(
    expert: Any, trace_offset: Any, call: Any, row: Any, first_key: Any, begin: int, end: int, out: Any
) -> None:
    """Copy the references of the calls from `begin` to `end` into one array, and count the distinct ones of each call.

    first_key: i64 [rows], the key of expert 0 of each layer. out: a `Gathered`, of the calls before.
    """
    offset, key, requests, requests_by_key, first, last_call = out
    at = np.uint64(offset[begin])
    for number in range(begin, end):
        c, base, distinct = np.uint64(call[number]), np.uint32(first_key[np.uint32(row[number])]), 0
        # Unsigned, here and below: numba then compiles no test for a negative index into each access.
        for r in range(np.uint64(trace_offset[c]), np.uint64(trace_offset[c + np.uint64(1)])):
            k = base + np.uint32(expert[r])
            key[at] = k
            if last_call[k] != number:
                if last_call[k] < 0:
                    first[k] = at
                last_call[k] = number
                requests_by_key[k] += 1
                distinct += 1
            at += np.uint64(1)
        requests[number] = distinct
        offset[number + 1] = at


@jit
def _next_call(key: Any, offset: Any, upcoming: Any, out: Any) -> None:
    one = np.uint64(1)
    for call in range(len(offset) - 2, -1, -1):
        begin, end = np.uint64(offset[call]), np.uint64(offset[call + 1])
        for r in range(begin, end):
            out[r] = upcoming[key[r]]
        for back in range(end - begin):
            latest = end - one - back
            upcoming[key[latest]] = latest
