"""What a predictor is.

A predictor sees routing, never banks: its predictions are the same for every policy and bank size, and are computed
once for all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.parameters import Choices, Limits, check, spec_of
from flashmoe_sim.trace.long_traces import OnDisk, growing, parts_of
from flashmoe_sim.trace.routing import RoutingTrace


@dataclass(frozen=True, eq=False)
class Predictions:
    """The predictions of a predictor, in the order in which they were made.

    after: i64 [predictions], the routed call right after which it was made, ascending; -1 before the first.
    row: i32 [predictions], the place in `trace.layers` of the layer to prefetch.
    offset: i64 [predictions + 1], where the experts of each begin. expert: i16, the most urgent first; may repeat.
    target: i64 [predictions], the routed call for which each was made; None if that is the layer's next call, and a
        later prediction replaces an earlier one. A call without tokens also counts as the next call.
    """

    after: NDArray[np.int64]
    row: NDArray[np.int32]
    offset: NDArray[np.int64]
    expert: NDArray[np.int16]
    target: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Prefetcher(ABC):
    """A predictor's parameters, and the properties that hold for all parameter values.

    The first line of a predictor's docstring is its entry in `sim prefetch list`.
    lead: how long before its use an expert is predicted.
    hindsight: whether it predicts from the future.
    cost_us: host time that its predictions take in every routed call, in microseconds. Counts do not change.
    limits, choices: of parameters: the least and the most, or the words, that a value may be.
    """

    name: ClassVar[str]
    contracts: ClassVar[tuple[str, ...]] = ("runtime", "protected", "atomic")
    source: ClassVar[str] = ""
    lead: ClassVar[str] = ""
    hindsight: ClassVar[bool] = False
    limits: ClassVar[Limits] = {}
    choices: ClassVar[Choices] = {}

    cost_us: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        check("predictor", self, self.limits, self.choices)

    @property
    def spec(self) -> str:
        """The name with all parameters that differ from their defaults, as written on the command line."""
        return spec_of(self)

    def contents(self) -> dict[str, Any]:
        """The contents of files named by parameters, by parameter; ids cover them instead of the paths."""
        return {}

    @abstractmethod
    def predict(self, trace: RoutingTrace) -> Predictions:
        """Everything that the predictor would have predicted while the trace was recorded."""


Memory = tuple[Any, ...]


@dataclass(frozen=True)
class PastOnly(Prefetcher, ABC):
    """A predictor that uses only the past, so that it can process a long trace in parts."""

    @abstractmethod
    def begin(self, trace: RoutingTrace) -> Memory:
        """Its memory before the first call; it may only read what holds for all of `trace`."""

    @abstractmethod
    def follow(self, chunk: RoutingTrace, ends: NDArray[np.bool_], memory: Memory) -> tuple[Predictions, Memory]:
        """Its predictions between the calls of a chunk, with `after` numbered in the chunk, and its new memory.

        ends: bool [calls + 1], whether a step ends before each call, and after the last one.
        memory: as it was after the previous chunk; its arrays may be changed.
        """

    def predict(self, trace: RoutingTrace) -> Predictions:
        if not isinstance(trace, OnDisk):
            return self.follow(trace, step_ends(trace.steps), self.begin(trace))[0]
        kinds = {"after": np.int64, "row": np.int32, "offset": np.int64, "expert": np.int16}
        with growing(**kinds) as arrays:
            arrays["offset"].add(np.zeros(1, np.int64))
            memory, begin, experts = self.begin(trace), 0, 0
            for part in parts_of(trace):
                end = begin + part.calls
                steps = trace.steps[begin:end]
                ends = np.append(step_ends(steps)[:-1], end == trace.calls)
                ends[0] = begin > 0 and steps[0] != trace.steps[begin - 1]
                made, memory = self.follow(part.with_(step=steps), ends, memory)
                arrays["after"].add(made.after + begin)
                arrays["row"].add(made.row)
                arrays["offset"].add(made.offset[1:] + experts)
                arrays["expert"].add(made.expert)
                begin, experts = end, experts + len(made.expert)
            return Predictions(**{name: array.mapped() for name, array in arrays.items()})


def step_ends(steps: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether a step ends before each call of a whole trace, and after the last one; bool [calls + 1]."""
    ends = np.ones(len(steps) + 1, np.bool_)
    ends[:1] = False
    ends[1:-1] = steps[1:] != steps[:-1]
    return ends


class LastCalls(NamedTuple):
    """The last call of each layer that had one, in the order of the calls.

    row: i32 [calls]. offset: i64 [calls + 1]. expert: i16 [references].
    """

    row: NDArray[np.int32]
    offset: NDArray[np.int64]
    expert: NDArray[np.int16]

    def before(self, chunk: RoutingTrace) -> LastCalls:
        """These calls followed by all calls of a chunk."""
        return LastCalls(
            np.concatenate([self.row, rows_of(chunk)]),
            np.concatenate([self.offset[:-1], self.offset[-1] + chunk.offset]),
            np.concatenate([self.expert, chunk.expert]),
        )

    def last(self) -> LastCalls:
        """Only the last call of each layer."""
        _, back = np.unique(self.row[::-1], return_index=True)
        call = np.sort(len(self.row) - 1 - back)
        parts = [self.expert[self.offset[one] : self.offset[one + 1]] for one in call]
        offset = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        return LastCalls(self.row[call], offset, np.concatenate([np.empty(0, np.int16), *parts]))


NO_CALLS = LastCalls(np.empty(0, np.int32), np.zeros(1, np.int64), np.empty(0, np.int16))

OnePredictor = str | Prefetcher | type[Prefetcher]


def rows_of(trace: RoutingTrace) -> NDArray[np.int32]:
    """The place of each call's layer in `trace.layers`, i32 [calls]."""
    return np.searchsorted(trace.layers, trace.layer).astype(np.int32)


def most_experts(trace: RoutingTrace) -> int:
    """The number of experts in the largest layer."""
    return max(trace.n_experts[layer] for layer in trace.layers)


def default_width(trace: RoutingTrace) -> int:
    """The experts per token; if that varies, the mean requests of a call with tokens."""
    return trace.top_k or max(round(trace.refs / max(int(trace.has_refs.sum()), 1)), 1)
