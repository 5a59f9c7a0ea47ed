"""A user's own policy or predictor: which of its functions caused an error, and what they may return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import compile_for, returned_types
from flashmoe_sim.io.errors import BadInput, Malformed
from flashmoe_sim.outside import blaming, is_outside, place_of_class, place_of_function
from flashmoe_sim.policies.base import (
    Candidates,
    EvictingPolicy,
    PinningPolicy,
    PoolShape,
    ScheduledPolicy,
    State,
    arguments_of,
)
from flashmoe_sim.prefetchers.base import Predictions, Prefetcher, rows_of
from flashmoe_sim.trace.routing import RoutingTrace, blocks, frozen
from flashmoe_sim.trace.seen import SEEN

EXAMPLES = {
    "slot": np.int64(0),
    "key": np.uint32(0),
    "now": np.int64(0),
    "upcoming": np.int32(0),
    "step": np.int32(0),
    "row": np.int32(0),
    "slot_key": frozen(np.zeros(1, np.int32)),
    "blocked": frozen(np.zeros(1, np.int64)),
    "mark": np.int64(0),
} | {name: kind(0) for name, kind in SEEN.items()}
RETURNS = {
    "choose_victim": ("a whole number", ("int", "uint", "Literal[int]")),
    "admits": ("True or False", ("bool", "Literal[bool]")),
    "declines": ("True or False", ("bool", "Literal[bool]")),
}


def new_state(policy: EvictingPolicy, shape: PoolShape) -> State:
    """The state that a policy allocates for a pool; raises BadInput if it is not a tuple of arrays."""
    with blaming("policy", policy):
        state = policy.allocate(shape)
    if not isinstance(state, tuple) or not all(isinstance(one, np.ndarray) for one in state):
        given = type(state).__name__
        if isinstance(state, tuple):
            given = f"a tuple with {', '.join(sorted({type(one).__name__ for one in state} - {'ndarray'}))}"
        where = place_of_function(type(policy).allocate)
        raise Malformed(f"policy {policy.name}: {where}: allocate returned {given}; expected a tuple of numpy arrays")
    return state


@contextmanager
def checked(policy: EvictingPolicy, kernels: Mapping[str, Any], state: State) -> Iterator[None]:
    """Run a loop with a policy's compiled functions; errors in user code become BadInput with place and cause."""
    if not is_outside(type(policy)):
        yield
        return
    with blaming("policy", policy):
        try:
            yield
        except IndexError as error:
            raise Malformed(
                f"policy {policy.name}: {place_of_class(type(policy))}: a compiled function goes beyond an array of "
                "its state; give arrays by slot `shape.slots` places and arrays by expert `shape.keys`"
            ) from error
        except Exception:
            for name, kernel in kernels.items():  # compiled alone, the one at fault names its file and line
                takes = arguments_of(type(policy), name)
                compile_for(kernel, state, *(EXAMPLES[one] for one in takes[1:]))
            _check_results(policy, kernels)
            raise
        _check_results(policy, kernels)


def _check_results(policy: EvictingPolicy, kernels: Mapping[str, Any]) -> None:
    for name in RETURNS.keys() & policy.kernels.keys():
        expected, types = RETURNS[name]
        for found in returned_types(kernels[name]):
            if not found.startswith(types):
                raise Malformed(
                    f"policy {policy.name}: {place_of_function(kernels[name])}: {name} returns {found}; "
                    f"expected {expected} from every path through it"
                )


def check_pinned(policy: PinningPolicy, masks: Any, candidates: Candidates) -> None:
    """Raise BadInput unless `pinned` returned a mask of each layer's experts, and these fit the banks."""
    if not is_outside(type(policy)):
        return
    experts = [len(counts) for counts in candidates.counts]
    if not isinstance(masks, list | tuple) or len(masks) != len(experts):
        number = f" of {len(masks)}" if isinstance(masks, list | tuple) else ""
        raise _wrong("policy", policy, "pinned", f"{_described(masks)}{number}", f"a list of {len(experts)} masks")
    for mask, n in zip(masks, experts, strict=True):
        if not _is_mask(mask, n):
            raise _wrong("policy", policy, "pinned", _described(mask), f"masks bool [experts], here bool [{n}]")
    _check_room(policy, "pinned", [int(mask.sum()) for mask in masks], candidates)


class Stretches:
    """Checks the stretches that `schedule` yields, one after another."""

    def __init__(self, policy: ScheduledPolicy, trace: RoutingTrace, candidates: Candidates) -> None:
        self.policy, self.candidates = policy, candidates
        self.keys = np.cumsum([0, *(len(counts) for counts in candidates.counts)])
        self.begins = {*np.flatnonzero(np.diff(trace.steps, prepend=-1)).tolist(), trace.calls}
        self.last = -1

    def check(self, begin: Any, resident: Any) -> None:
        """Raise BadInput unless a stretch begins with a step, after the last one, and its residents fit the banks."""
        if not is_outside(type(self.policy)):
            return
        keys = int(self.keys[-1])
        first = self.last < 0 and begin != 0
        if first or begin not in self.begins or begin <= self.last:
            expected = "0 first, then calls with which steps begin, ascending"
            raise _wrong("policy", self.policy, "schedule", f"a stretch from call {begin}", expected)
        if not _is_mask(resident, keys):
            raise _wrong(
                "policy", self.policy, "schedule", _described(resident), f"residents bool [keys], here bool [{keys}]"
            )
        held = np.add.reduceat(resident, self.keys[:-1], dtype=np.int64).tolist()
        _check_room(self.policy, "schedule", held, self.candidates)
        self.last = begin


def check_predictions(prefetcher: Prefetcher, found: Any, trace: RoutingTrace) -> None:
    """Raise BadInput unless the predictions name experts, layers and calls of the trace, in order."""
    if not is_outside(type(prefetcher)):
        return

    def wrong(found: str, expected: str) -> BadInput:
        return _wrong("predictor", prefetcher, "predict", found, expected)

    if not isinstance(found, Predictions):
        raise wrong(_described(found), "Predictions")
    for item in fields(found):
        column = getattr(found, item.name)
        whole = isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind in "iu"
        if not whole and not (item.name == "target" and column is None):
            raise wrong(f"{item.name}: {_described(column)}", "a numpy array of whole numbers")
    calls, layers, number = trace.calls, len(trace.layers), len(found.after)
    experts = np.array([trace.n_experts[layer] for layer in trace.layers])
    if len(found.row) != number or len(found.offset) != number + 1:
        raise wrong(
            f"{number} in after, {len(found.row)} in row, {len(found.offset)} in offset", "as many rows, an offset more"
        )
    if (found.offset[:1] != 0).any() or not _ascending(found.offset) or found.offset[-1] != len(found.expert):
        raise wrong("an offset that does not divide expert", f"0 to {len(found.expert)}, ascending")
    if not _ascending(found.after) or not _within(found.after, -1, calls):
        raise wrong("an after that is not a call, or is earlier than the one before", f"-1 to {calls - 1}, ascending")
    if not _within(found.row, 0, layers):
        raise wrong("a row that is not a layer", f"0 to {layers - 1}")
    each = len(found.expert) // max(number, 1) + 1
    for part in blocks(number, width=each):
        offset = found.offset[part.start : part.stop + 1]
        expert, most = found.expert[offset[0] : offset[-1]], experts[np.repeat(found.row[part], np.diff(offset))]
        if ((expert < 0) | (expert >= most)).any():
            raise wrong("an expert that its layer does not have", f"0 to {int(experts.max(initial=1)) - 1}, by layer")
    if found.target is not None and (
        len(found.target) != number
        or not _within(found.target, 0, calls)
        or (found.target <= found.after).any()
        or (rows_of(trace)[found.target] != found.row).any()
    ):
        raise wrong("a target that is not a later call of its row", "one for each prediction")


def _ascending(numbers: NDArray[Any]) -> bool:
    return all((numbers[1:][part] >= numbers[:-1][part]).all() for part in blocks(len(numbers) - 1))


def _within(numbers: NDArray[Any], first: int, end: int) -> bool:
    return not len(numbers) or bool(numbers.min() >= first and numbers.max() < end)


def _is_mask(value: Any, n: int) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.bool_ and value.shape == (n,)


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype} {list(value.shape)}"
    return "nothing" if value is None else f"a {type(value).__name__}"


def _check_room(
    policy: PinningPolicy | ScheduledPolicy, method: str, held: Sequence[int], candidates: Candidates
) -> None:
    size, most = sum(n * each for n, each in zip(held, candidates.expert_bytes, strict=True)), candidates.budget_bytes
    if size > most:
        of_bytes = "" if {*candidates.expert_bytes} == {1} else f" of {size:,} bytes"
        room = f"{most:,} bytes" if of_bytes else f"{most:,}"
        raise _wrong("policy", policy, method, f"{sum(held):,} experts{of_bytes} in total", f"at most {room}")


def _wrong(kind: str, chosen: Any, method: str, found: str, expected: str) -> BadInput:
    where = place_of_function(getattr(type(chosen), method))
    return Malformed(f"{kind} {chosen.name}: {where}: {method} returned {found}; expected {expected}")
