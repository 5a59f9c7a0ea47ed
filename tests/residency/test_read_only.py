"""Nobody changes a trace or a workload after it was checked: their arrays are read-only."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import flashmoe_sim.api as sim
from flashmoe_sim.io.errors import Unusable
from flashmoe_sim.policies.base import Candidates, PinningPolicy, ScheduledPolicy
from flashmoe_sim.prefetchers.last_call import Temporal
from flashmoe_sim.trace.routing import RoutingTrace
from tests.residency.builders import random_calls, trace_of

CALLS = random_calls(np.random.default_rng(3), n_experts=8, layers=2, steps=20)
READ_ONLY = "assignment destination is read-only"


def arrays(value: Any, name: str, seen: set[int]) -> Iterator[tuple[str, np.ndarray]]:
    """Every array that a value leads to, with its place."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from arrays(item, f"{name}[{key}]", seen)
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from arrays(item, f"{name}[{place}]", seen)
    elif hasattr(value, "__dict__"):
        yield from arrays(vars(value), name, seen)


@dataclass(frozen=True)
class Greedy(PinningPolicy):
    """Pin nothing, and leave nothing for those that come later."""

    name = "greedy"

    def pinned(self, candidates: Candidates) -> list[np.ndarray]:
        for counts in candidates.counts:
            counts[:] = 0
        return [counts > 0 for counts in candidates.counts]


@dataclass(frozen=True)
class Rewriter(ScheduledPolicy):
    """Write to the references."""

    name = "rewriter"

    def schedule(self, trace: RoutingTrace, key: np.ndarray, candidates: Candidates) -> Iterator[Any]:
        key[:] = 0
        yield 0, np.zeros(8, np.bool_)


def test_every_array_of_a_workload_is_read_only() -> None:
    made = sim.load_trace(trace_of(CALLS, 8))
    for workload in (made, pickle.loads(pickle.dumps(made))):
        for scope in ("layer", "global"):
            sim.sweep(workload, bank=[4], policy=["lru", "static", "lookahead-4"], contract="atomic", scope=scope)
            workload.ahead(Temporal(), scope)
        assert workload.trace.by_layer
        assert workload.trace.has_refs.any()
        found = list(arrays(workload, "workload", set()))
        assert len(found) > 40
        assert [name for name, array in found if array.flags.writeable] == []
        with pytest.raises(TypeError, match="does not support item assignment"):
            workload.trace.n_experts[0] = 1  # type: ignore[index]


def test_an_array_that_shares_memory_with_a_trace_is_read_only_too() -> None:
    made = trace_of(CALLS, 8)
    experts = made.expert.copy()
    sizes = {0: 8, 1: 8}
    trace = made.with_(expert=experts[:], n_experts=sizes)
    with pytest.raises(ValueError, match=READ_ONLY):
        experts[0] = 9
    sizes[0] = 1
    assert trace.n_experts == {0: 8, 1: 8}
    assert isinstance(trace.n_experts, MappingProxyType)


def test_a_policy_cannot_change_what_later_policies_see(tmp_path: Path) -> None:
    workload = sim.load_trace(trace_of(CALLS, 8))
    right = sim.replay(workload, bank=4, policy="static", contract="atomic")["hits"].item()
    for policy in (Greedy, Rewriter):
        with pytest.raises(Unusable, match=rf"test_read_only\.py:\d+: ValueError: {READ_ONLY}"):
            sim.sweep(workload, bank=[2], policy=[policy()], contract="atomic", out=tmp_path / "x")
    for _ in range(2):
        table = sim.sweep(workload, bank=[4], policy=["static"], contract="atomic", out=tmp_path / "x")
        assert table["hits"].item() == right > 0


def test_the_arrays_of_a_trace_cannot_be_made_writable_again() -> None:
    given = trace_of(CALLS, 8)
    for trace in (
        sim.load_trace("python-256").trace,
        given,
        given.with_(name="again"),
        pickle.loads(pickle.dumps(given)),
    ):
        found = [array for _, array in arrays(trace, "trace", set())]
        assert len(found) > 3
        for array in found:
            with pytest.raises(ValueError, match="cannot set WRITEABLE flag to True"):
                array.setflags(write=True)
