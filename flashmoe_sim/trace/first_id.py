"""Whether a trace counts its experts from 1, as some recorders do; every stage counts them from 0."""

from __future__ import annotations

import numpy as np

from flashmoe_sim.trace.routing import RoutingTrace

MOST_CHANCE = 0.05
ASK = "do your ids begin at 1? `sim trace import --columns ... --first-id 1` reads them so"


def begins_at_1(trace: RoutingTrace) -> bool:
    """Whether no layer uses expert 0, although its layers use nearly all others.

    If any of the experts that a layer leaves unused were as likely to be expert 0, the chance of that is at most
    MOST_CHANCE.
    """
    if not trace.refs or int(trace.expert.min()) != 1:
        return False
    experts, layers = int(trace.expert.max()) + 1, np.array(trace.layers)
    row = np.repeat(np.searchsorted(layers, trace.layer), np.diff(trace.offset))
    used = np.zeros((len(layers), experts), np.bool_)
    used[row, trace.expert] = True
    return float(np.prod(1 - used.sum(axis=1) / experts)) <= MOST_CHANCE


def ask_first_id(trace: RoutingTrace, *, refused: int, experts: int) -> str:
    """What to add to the refusal of an id that a layer with `experts` experts does not have."""
    return f"; {ASK}" if refused == experts and int(trace.expert.min()) == 1 else ""
