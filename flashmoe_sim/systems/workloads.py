"""Workloads as systems route them, and the profiles by which they choose experts."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from flashmoe_sim.policies.base import Policy
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.base import HALF, System
from flashmoe_sim.trace.cut import cut
from flashmoe_sim.trace.made_prompt import in_micro_batches
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.store import write_store


@lru_cache(maxsize=8)
def batched(workload: Workload, tokens: int) -> Workload:
    """The workload with prompts in micro-batches of so many tokens; see `trace.made_prompt.in_micro_batches`."""
    trace = in_micro_batches(workload.trace, tokens)
    return workload if trace is workload.trace else prepare(trace, workload.geometry)


@lru_cache(maxsize=4)
def with_fewer(workload: Workload, top_k: int | None) -> Workload:
    """The workload with at most so many experts of each token; None: all."""
    if top_k is None or top_k >= workload.trace.top_k:
        return workload
    return prepare(cut(workload.trace, top_k=top_k), workload.geometry)


@lru_cache(maxsize=4)
def by_number(workload: Workload) -> Workload:
    """The workload with the experts of every call in ascending order."""
    trace = workload.trace
    call = np.repeat(np.arange(trace.calls), np.diff(trace.offset))
    order = np.lexsort((trace.expert, call))
    weight = None if trace.weight is None else trace.weight[order]
    ordered = trace.with_(expert=trace.expert[order], weight=weight, slot=None, resident=None)
    return prepare(ordered, workload.geometry)


ALL = "all"
AnySystem = TypeVar("AnySystem", bound=System)


def half_of(trace: RoutingTrace) -> int:
    """The steps of the first half."""
    return max(len(np.unique(trace.steps)) // 2, 1)


def profile_of(trace: RoutingTrace, profile: str) -> str:
    """A system's profile in the words of the policy `static`."""
    return f"first-{half_of(trace)}" if profile == HALF else "" if profile == ALL else profile


def learning(policy: Any, workload: Workload) -> Policy:
    """A policy that starts with what it learnt in the first half."""
    learnt: Policy = replace(policy, profile_steps=half_of(workload.trace))
    return learnt


def with_profile(system: AnySystem, profile: str, trace: RoutingTrace, folder: Path) -> AnySystem | None:
    """The system with the trace as its profile, in a file; None if `profile` does not come from a given trace."""
    if profile not in (HALF, ALL):
        return None
    file = folder / "profile.parquet"
    write_store(trace, file)
    return replace(system, profile=str(file))  # type: ignore[call-arg]
