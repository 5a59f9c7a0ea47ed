"""Sweeps from Python: order of the rows, shared ceilings, progress, and what is refused before anything runs."""

from __future__ import annotations

import numpy as np
import pytest

from flashmoe_sim.ceilings.optimum import ceiling_setup
from flashmoe_sim.errors import BadInput
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.sweep.collect import sweep
from tests.residency.builders import geometry_of, random_calls, trace_of

BANKS, POLICIES = (2, 4, 7), ("fifo", "lru", "min", "static")
SETUPS = [Setup(Bank(slots=bank), parse_policy(name), "atomic") for bank in BANKS for name in POLICIES]


@pytest.fixture
def workloads() -> list[Workload]:
    rng = np.random.default_rng(5)
    traces = [trace_of(random_calls(rng, n_experts=8, layers=3, steps=40, width=2), 8) for _ in range(2)]
    return [prepare(trace, geometry_of({0: 100, 1: 200, 2: 300}, 8)) for trace in traces]


def test_rows_are_in_the_order_of_workloads_and_setups(workloads: list[Workload]) -> None:
    rows = sweep(workloads, SETUPS)
    expected = [
        (workload.trace.content_id, str(setup.bank), setup.policy.spec) for workload in workloads for setup in SETUPS
    ]
    assert [(row["trace_id"], row["bank"], row["policy"]) for row in rows] == expected
    assert rows == sweep(workloads, SETUPS, threads=1)
    assert rows[len(SETUPS) :] == sweep(workloads[1:], SETUPS)


def test_nothing_without_hindsight_beats_the_ceiling(workloads: list[Workload]) -> None:
    for row in sweep(workloads, SETUPS):
        if row["policy"] == "min":
            assert (row["hit_rate"], row["bytes_per_token"]) == (row["best_hit_rate"], row["best_bytes_per_token"])
        elif row["policy"] != "static":
            assert row["hit_rate"] <= row["best_hit_rate"]


def test_no_ceiling_for_bytes_that_experts_of_different_sizes_share(workloads: list[Workload]) -> None:
    bank = Bank(budget_bytes=1500)
    shared, own = Setup(bank, contract="atomic", scope="global"), Setup(bank, contract="atomic")
    assert ceiling_setup(workloads[0], shared) is None
    assert ceiling_setup(workloads[0], own) is not None
    rows = sweep(workloads[:1], [shared, own])
    assert [row["best_hit_rate"] is None for row in rows] == [True, False]


def test_progress_begins_at_none_and_ends_at_all(workloads: list[Workload]) -> None:
    seen: list[tuple[int, int]] = []
    sweep(workloads, SETUPS, progress=lambda done, total: seen.append((done, total)))
    total = seen[0][1]
    assert seen == [(done, total) for done in range(total + 1)]


def test_a_setup_that_does_not_fit_is_refused_before_anything_runs(workloads: list[Workload]) -> None:
    seen: list[int] = []
    with pytest.raises(BadInput, match="bank 9: "):
        sweep(workloads, [*SETUPS, Setup(Bank(slots=9))], progress=lambda done, total: seen.append(done))
    assert seen == []
