"""The profile in which a pinning policy counts requests before the run."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from flashmoe_sim.content import hash_of
from flashmoe_sim.io.errors import BadInput, Conflict, Malformed
from flashmoe_sim.residency.pool import Pool, build_pools
from flashmoe_sim.trace.bundled import catalog
from flashmoe_sim.trace.cut import shown_layers
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.routing import RoutingTrace


@dataclass(frozen=True, eq=False)
class Profile:
    """pools: one per layer. content: what determines, with the replayed trace, which requests they hold."""

    pools: list[Pool]
    content: str


def find_profile(source: str, trace: RoutingTrace, pools: list[Pool]) -> Profile:
    """The profile that `source` names for `trace`; pools: the trace's, one per layer.

    source: empty for the trace itself, `first-N` for its first N steps, else the file or bundled name of another trace.
    Raises BadInput if the file is missing or not a trace, or its layers or experts differ from those of `trace`.
    """
    if not source:
        return Profile(pools, "")
    if first := re.fullmatch("first-([1-9][0-9]{0,8})", source):
        end = min(int(trace.steps[0]) + int(first[1]), int(trace.steps[-1]) + 1)
        return Profile([_until(pool, end) for pool in pools], source)
    if source not in catalog() and not Path(source).exists():
        raise Malformed(
            f"profile {source!r}: expected first-N, such as first-100 steps, the file of another trace, or a name from "
            "`sim trace catalog`"
        )
    try:
        other = load_trace(source)
    except BadInput as error:
        raise type(error)(f"profile {source!r}: expected a trace, whose requests count: {error}") from None
    if other.layers != trace.layers:
        raise Conflict(
            f"profile {source}: has MoE layers {shown_layers(other.layers)}, but {trace.name} has "
            f"{shown_layers(trace.layers)}; give a trace of the same model"
        )
    for view in other.by_layer:
        mine, its = trace.n_experts[view.layer], other.n_experts[view.layer]
        known = other.n_experts_known and trace.n_experts_known
        if int(view.expert.max(initial=-1)) >= mine or (known and mine != its):
            raise Conflict(
                f"profile {source}: layer {view.layer} has {its} experts, but {mine} in {trace.name}; "
                "give a trace of the same model"
            )
    other = other.with_(n_experts=trace.n_experts)
    others = build_pools(other)
    return Profile(others, content_of(others))


def content_of(pools: list[Pool]) -> str:
    """What a profile determines: how often each expert is requested, and when first."""
    return hash_of([(pool.requests_by_key, pool.first_reference) for pool in pools])


def _until(pool: Pool, step: int) -> Pool:
    """The calls before a step."""
    calls = int(np.searchsorted(pool.step[:-1], step))
    return replace(pool, call=pool.call[:calls], row=pool.row[:calls], refs=int(pool.offset[calls]), steps=step)
