"""Profiles by which systems choose experts: of a part of the trace, or of another trace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from flashmoe_sim.policies.base import Policy
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import HALF, System
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.store import write_store

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
