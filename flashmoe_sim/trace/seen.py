"""What can be seen of a reference beside its expert: what a policy may ask for, and which traces have it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flashmoe_sim.trace.phases import find_phases
from flashmoe_sim.trace.routing import RoutingTrace, blocks

# weight: the gate weight as recorded. rank: its place among the choices of its token, 0 for the highest weight, equal
#   ones in the order of the trace. If several tokens of a call request an expert, its use has the largest weight and
#   the lowest rank of these, except under `sequential`, in which every reference is a use of its own.
# request: the number of the request in the trace (`sequence`). position: steps since the request's first one.
# phase: a constant of trace/routing.py, recorded or found by trace/phases.py. tokens: the tokens of the call.
SEEN = {
    "weight": np.float32,
    "rank": np.int32,
    "request": np.int32,
    "position": np.int32,
    "phase": np.uint8,
    "tokens": np.int32,
}
# What can be asked of a trace, and what it must have for that beside its experts.
QUESTIONS = {
    "prompt and answer apart": "phase",
    "requests apart": "request",
    "rules of gate weights": "weight",
    "check of slots": "slot",
}


def has(trace: RoutingTrace, name: str) -> bool:
    """Whether all references of a trace have `name`, one of SEEN or `slot`."""
    if name in ("weight", "slot"):
        return getattr(trace, name) is not None
    if name == "rank":
        return trace.weight is not None and all(_even(trace))
    if name in ("request", "position"):
        return trace.sequence is not None
    return name == "tokens" or trace.phase is not None or find_phases(trace) is not None


def _even(trace: RoutingTrace) -> Iterator[bool]:
    """For parts of a trace, whether each call's tokens have equally many references, as far as the numbers show."""
    for block in blocks(trace.calls):
        offset = trace.offset[block.start : block.stop + 1]
        tokens = np.maximum(trace.n_tokens[block], 1)
        yield not (np.diff(offset) % tokens).any()
