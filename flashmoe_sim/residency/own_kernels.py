"""Compiled functions of a user's own policy: which of them caused an error, and what they may return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from flashmoe_sim._jit import compile_for, returned_types
from flashmoe_sim.io.errors import Malformed
from flashmoe_sim.outside import blaming, is_outside, place_of_class, place_of_function
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, arguments_of
from flashmoe_sim.trace.routing import frozen
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
