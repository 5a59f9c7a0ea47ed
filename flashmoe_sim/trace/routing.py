"""The routing trace: what every reader produces and every later stage consumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from flashmoe_sim.content import hash_of

PHASE_UNKNOWN, PHASE_PROMPT, PHASE_DECODE = 0, 1, 2
PER_LAYER = ("n_experts", "expert_bytes", "dense_bytes")
RECORDED = ("weight", "slot", "resident")  # recorded beside the routing, read by no stage
NOT_CONTENT = ("name", "format", "notes", "n_experts_known", *RECORDED)
BLOCK = 1 << 20


Value = TypeVar("Value")


def frozen(value: Value) -> Value:
    """An array after making it, and the arrays that it is a view of, read-only; anything else as it is.

    Kernels do not test bounds, and results are kept by content: both rely on arrays that nobody changes later.
    """
    array: Any = value
    while isinstance(array, np.ndarray):
        array.setflags(write=False)
        array = array.base
    return value


def locked(value: Value) -> Value:
    """As `frozen`, but a new view of the array, which nobody can make writable again, if it is not one already."""
    array: Any = frozen(value)
    if not isinstance(array, np.ndarray):
        return value
    base: Any = array.base
    if isinstance(base, memoryview) and base.readonly:
        return value
    buffer: Any = array
    return np.asarray(memoryview(buffer).toreadonly())  # type: ignore[return-value]


def blocks(length: int, *, width: int = 1) -> Iterator[slice]:
    """Slices of at most BLOCK numbers, so that what is computed for one at a time takes little memory.

    width: how many numbers each item has.
    """
    most = max(BLOCK // width, 1)
    return (slice(begin, min(begin + most, length)) for begin in range(0, length, most))


def offsets(length: NDArray[Any]) -> NDArray[np.int64]:
    """Where each run of these lengths begins, one after another, and the end of the last; i64 [runs + 1]."""
    offset = np.zeros(len(length) + 1, np.int64)
    np.cumsum(length, out=offset[1:])
    return offset


class LayerView(NamedTuple):
    """The routed calls of one layer, in order, as contiguous arrays.

    call: i64 [calls], the number of each call in the whole trace.
    offset: i64 [calls + 1], where each call's references start in `expert`.
    expert: i16 [references].
    """

    layer: int
    call: NDArray[np.int64]
    offset: NDArray[np.int64]
    expert: NDArray[np.int16]


@dataclass(frozen=True, eq=False)
class RoutingTrace:
    """Routed calls in the order in which they happened, as flat arrays, which become read-only.

    layer: i16 [calls], the model's own layer number.
    n_tokens: i32 [calls], tokens of the call; 0 for a call without references, and if not recorded.
    n_text: i32 [calls], how many of them became text, if decode steps verify drafted tokens; None if none does.
    offset: i64 [calls + 1], where each call's references start in `expert`.
    expert: i16 [references], token-major, in router-rank order if the recording kept it.
    n_experts: experts of each layer, keyed by layer number.
    n_experts_known: False if `n_experts` is only the smallest power of two that holds every id seen.
    top_k: experts per token; 0 if it varies.
    weight: f32 [references], gate weights.
    slot: i16 [references], the slots that the recording engine assigned.
    resident: u8 [references], 1 if the recording engine found the expert resident.
    phase: u8 [calls], one of PHASE_UNKNOWN, PHASE_PROMPT, PHASE_DECODE.
    sequence: i32 [calls], the text that a call belongs to.
    step: i32 [calls], the pass over the model that a call belongs to; derived from the layer numbers if not recorded.
    expert_bytes: bytes of one expert of each layer, if recorded. dense_bytes: bytes of the dense weights of each layer,
    if recorded.
    format, name: how the trace was stored, and its name for display. notes: what the user should know about how it was
    read.
    """

    layer: NDArray[np.int16]
    n_tokens: NDArray[np.int32]
    offset: NDArray[np.int64]
    expert: NDArray[np.int16]
    n_experts: Mapping[int, int]
    n_experts_known: bool = False
    top_k: int = 0
    weight: NDArray[np.float32] | None = None
    slot: NDArray[np.int16] | None = None
    resident: NDArray[np.uint8] | None = None
    phase: NDArray[np.uint8] | None = None
    sequence: NDArray[np.int32] | None = None
    step: NDArray[np.int32] | None = None
    n_text: NDArray[np.int32] | None = None
    expert_bytes: Mapping[int, int] | None = None
    dense_bytes: Mapping[int, int] | None = None
    format: str = ""
    name: str = ""
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        for item in fields(self):
            object.__setattr__(self, item.name, locked(getattr(self, item.name)))
        for name in PER_LAYER:
            if isinstance(given := getattr(self, name), dict):
                object.__setattr__(self, name, MappingProxyType(dict(given)))

    def __reduce__(self) -> tuple[Any, ...]:
        own = {item.name: getattr(self, item.name) for item in fields(self)}
        own |= {name: dict(own[name]) for name in PER_LAYER if own[name] is not None}
        return _restored, (type(self), own)

    @property
    def calls(self) -> int:
        return len(self.layer)

    @property
    def recorded(self) -> dict[str, Any]:
        """The arrays of RECORDED, or their stand-ins in a hash."""
        return {name: getattr(self, name) for name in RECORDED}

    @property
    def refs(self) -> int:
        return len(self.expert)

    def empty(self, length: int, dtype: DTypeLike) -> NDArray[Any]:
        """An array for numbers computed from the trace, where its own arrays are: in memory or on disk."""
        return np.empty(length, dtype)

    @cached_property
    def has_refs(self) -> NDArray[np.bool_]:
        """Which calls request experts, bool [calls]: all but calls without tokens."""
        has = self.empty(self.calls, np.bool_)
        np.less(self.offset[:-1], self.offset[1:], out=has)
        return frozen(has)

    @cached_property
    def layers(self) -> tuple[int, ...]:
        """The layer numbers that occur, ascending."""
        found: set[int] = set()
        for block in blocks(self.calls):
            found.update(np.flatnonzero(np.bincount(self.layer[block])).tolist())
        return tuple(sorted(found))

    @cached_property
    def row(self) -> NDArray[np.int32]:
        """The place in `layers` of each call's layer, i32 [calls]."""
        row = self.empty(self.calls, np.int32)
        for block in blocks(self.calls):
            row[block] = np.searchsorted(self.layers, self.layer[block])
        return frozen(row)

    @cached_property
    def longest_call(self) -> int:
        """The most references of a call."""
        ends = self.offset[1:]
        return max((int((ends[block] - self.offset[block]).max()) for block in blocks(self.calls)), default=0)

    @property
    def text(self) -> NDArray[np.int32]:
        """Tokens of text of each call, i32 [calls]."""
        return self.n_tokens if self.n_text is None else self.n_text

    @cached_property
    def tokens(self) -> int:
        """Tokens of text of the workload: the most in any layer (the last layer can have fewer)."""
        tokens = np.zeros(max(self.layers, default=0) + 1)
        for block in blocks(self.calls):
            tokens += np.bincount(self.layer[block], self.text[block], len(tokens))
        return int(tokens.max())

    @cached_property
    def steps(self) -> NDArray[np.int32]:
        """The step of each call, i32 [calls]: as recorded, else one begins when the layer number does not increase."""
        if self.step is not None:
            return self.step
        steps = self.empty(self.calls, np.int32)
        steps[:1] = 0
        for block in blocks(self.calls - 1):
            begins = self.layer[1:][block] <= self.layer[:-1][block]
            np.cumsum(begins, dtype=np.int32, out=steps[1:][block])
            steps[1:][block] += steps[block.start]
        return frozen(steps)

    @cached_property
    def by_layer(self) -> tuple[LayerView, ...]:
        """One view per layer, in the order of `layers`."""
        length = np.diff(self.offset)
        views = []
        for layer in self.layers:
            call = np.flatnonzero(self.layer == layer)
            offset = offsets(length[call])
            position = np.arange(offset[-1]) + np.repeat(self.offset[call] - offset[:-1], length[call])
            views.append(LayerView(layer, *map(frozen, (call, offset, self.expert[position]))))
        return tuple(views)

    @property
    def identity(self) -> dict[str, str]:
        """How a document names it."""
        return {"trace": self.name, "format": self.format, "content_id": self.content_id}

    @cached_property
    def content_id(self) -> str:
        """A hash of every field but NOT_CONTENT: the same routing has the same id, whatever its name or format."""
        return hash_of([self.routing_id, self.dense_bytes])

    @cached_property
    def routing_id(self) -> str:
        """`content_id` without the dense bytes, which affect only seconds.

        Recorded steps count like the same steps derived from the layer numbers.
        """
        absent = ("n_text",) * (self.n_text is None)
        return hash_of(replace(self, step=self.steps), without={type(self): (*NOT_CONTENT, "dense_bytes", *absent)})

    def with_(self, **changes: Any) -> RoutingTrace:
        """A copy with some fields replaced."""
        return replace(self, **changes)

    def equals(self, other: RoutingTrace) -> bool:
        """Whether every field, name and notes included, is equal."""

        def same(a: Any, b: Any) -> bool:
            if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
                return a is not None and b is not None and a.dtype == b.dtype and np.array_equal(a, b)
            return bool(a == b)

        return all(same(getattr(self, item.name), getattr(other, item.name)) for item in fields(self))


def infer_n_experts(layer: NDArray[np.int16], expert: NDArray[np.int16]) -> dict[int, int]:
    """For every layer, the smallest power of two that holds the largest id seen in any of them."""
    most = 1 << int(expert.max(initial=0)).bit_length()
    return {int(number): most for number in np.unique(layer)}


def uniform_trace(
    layer: NDArray[Any],
    n_tokens: NDArray[Any],
    expert: NDArray[np.int16],
    top_k: int,
    *,
    n_experts: Mapping[int, int] | None = None,
    **others: Any,
) -> RoutingTrace:
    """A trace in which every token has `top_k` experts. layer, n_tokens: integers [calls]; others: more fields."""
    layer = layer.astype(np.int16)
    return RoutingTrace(
        layer=layer,
        n_tokens=n_tokens.astype(np.int32),
        offset=offsets(n_tokens) * top_k,
        expert=expert,
        n_experts=infer_n_experts(layer, expert) if n_experts is None else n_experts,
        top_k=top_k,
        **others,
    )


def _restored(kind: type[RoutingTrace], own: dict[str, Any]) -> RoutingTrace:
    return kind(**own)
