"""Sweeps from Python: order of the rows, shared ceilings, progress, and what is refused before anything runs."""

from __future__ import annotations

import numpy as np
import pytest

from flashmoe_sim.api import load_trace
from flashmoe_sim.ceilings.optimum import ceiling_setup
from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from flashmoe_sim.schema import COUNTS
from flashmoe_sim.sweep.collect import sweep
from flashmoe_sim.sweep.plan import plan_setups
from flashmoe_sim.sweep.workers import in_threads
from flashmoe_sim.timeline.assemble import Conditions, DoesNotFit
from flashmoe_sim.timeline.from_replay import time_replay
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
    assert rows == sweep(workloads, SETUPS, workers=in_threads(1))
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
    with pytest.raises(OutOfRange, match="bank 9: "):
        sweep(
            workloads,
            [*SETUPS, Setup(Bank(slots=9), contract="runtime")],
            progress=lambda done, total: seen.append(done),
        )
    assert seen == []


def test_rows_of_machines_are_those_of_single_replays() -> None:
    """One replay for all machines equals one for each; if the model does not fit, there is no speed."""
    workload = load_trace("gemma-4-26b-phone")
    setups = plan_setups("16,128", policy="lru", contract="atomic")
    conditions = Conditions(dense_bytes=2 << 30)
    machines = [load_machine(name) for name in ("m1-8", "m2-16", "rtx-4090")]
    rows = sweep([workload], setups, machines=machines, conditions=lambda *_: conditions)
    assert [(row["bank"], row["machine"]) for row in rows] == [
        (str(setup.bank), machine.name) for setup in setups for machine in machines
    ]
    assert len({row["id"] for row in rows}) == len(rows)
    plain = sweep([workload], setups)
    for number, row in enumerate(rows):
        own = plain[number // len(machines)]
        assert {column.name: row[column.name] for column in COUNTS} == {
            column.name: own[column.name] for column in COUNTS
        }
        setup = setups[number // len(machines)]
        try:
            timed = time_replay(
                workload, replay(workload, setup, record=True), machines[number % len(machines)], conditions
            )
        except DoesNotFit:
            assert (row["tok_s"], row["bottleneck"]) == (None, "does-not-fit")
            continue
        assert (row["tok_s"], row["tok_s_lo"], row["tok_s_hi"]) == (
            timed.timing.tok_s,
            timed.tok_s_lo,
            timed.tok_s_hi,
        )
        assert row["bottleneck"] in ("compute", "upload", "read", "cpu")
    assert {row["bottleneck"] == "does-not-fit" for row in rows} == {True, False}
