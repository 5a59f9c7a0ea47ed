"""Passes: values that can be sent, and rows that do not depend on how the work was shared out."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashmoe_sim.api import load_trace
from flashmoe_sim.ceilings.optimum import ceiling_setup
from flashmoe_sim.io.errors import SimError
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.many import CountPass
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from flashmoe_sim.sweep.collect import plan_tasks, sweep
from flashmoe_sim.sweep.ledger import Ledger
from flashmoe_sim.sweep.left_out import LeftOut
from flashmoe_sim.sweep.passes import TimedPass, plan_passes, run_pass
from flashmoe_sim.sweep.plan import plan_setups
from flashmoe_sim.sweep.task import Task, row_of, seconds
from flashmoe_sim.sweep.workers import Workers
from flashmoe_sim.timeline.assemble import Conditions, DoesNotFit
from flashmoe_sim.timeline.from_replay import time_replay
from tests.residency.builders import geometry_of, random_calls, trace_of

POLICIES = ["lru", "fifo", "random:seed=3", "min", "static", "lru"]
MACHINES = [load_machine(name) for name in ("m1-8", "rtx-4090")]
CONDITIONS = Conditions(dense_bytes=1 << 20)


def some_setups(rng: np.random.Generator) -> list[Setup]:
    """Distinct ones, in no order."""
    found = [
        Setup(Bank(slots=int(rng.integers(2, 9))), parse_policy(str(rng.choice(POLICIES))), "atomic", scope=scope)
        for scope in rng.choice(["layer", "global"], 12).tolist()
    ]
    return list(dict.fromkeys(found))


def some_workload(seed: int) -> Workload:
    rng = np.random.default_rng(seed)
    trace = trace_of(random_calls(rng, n_experts=8, layers=int(rng.integers(1, 12)), steps=30, width=2), 8)
    return prepare(trace.with_(name=f"t{seed}"), geometry_of(dict.fromkeys(trace.layers, 1 << 20), 8))


def alone(task: Task) -> dict[str, Any]:
    """The row by one replay of its own, and one of the optimum."""
    replayed = replay(task.workload, task.setup, record=True)
    timing = None
    if task.machine is not None and task.conditions is not None:
        try:
            timed = time_replay(task.workload, replayed, task.machine, task.conditions)
        except DoesNotFit:
            timed = None
        timing = seconds(task, timed)
    best = ceiling_setup(task.workload, task.setup)
    optimum = None if best is None else replay(task.workload, best).counts.total()
    return row_of(task, replayed.counts.total() | (timing or {}), best=optimum)


@contextmanager
def elsewhere() -> Iterator[Workers]:
    """Runs jobs here; they and their results are pickled as for another machine."""

    def sent(value: Any) -> Any:
        return pickle.loads(pickle.dumps(value))

    yield Workers(lambda run, jobs: ((number, sent(run(*sent(job)))) for number, job in enumerate(jobs)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("timed", [False, True])
def test_a_row_is_that_of_its_own_replay_wherever_it_runs(seed: int, timed: bool) -> None:
    rng, workloads = np.random.default_rng(seed), [some_workload(seed), some_workload(seed + 100)]
    setups, machines = some_setups(rng), MACHINES if timed else []
    asked: dict[str, Any] = {"machines": machines, "conditions": lambda *_: CONDITIONS}
    expected = [alone(task) for task in plan_tasks(workloads, setups, **asked)]
    assert sweep(workloads, setups, **asked) == expected
    assert sweep(workloads, setups, workers=elsewhere, **asked) == expected
    half = len(setups) // 2
    parts = [sweep([workload], some, **asked) for workload in workloads for some in (setups[:half], setups[half:])]
    assert [row for part in parts for row in part] == expected


def test_equal_values_come_back_from_a_pickle() -> None:
    workload = load_trace("prose-256")
    setups = plan_setups("16..64", policy="all", contract="protected", prefetch="none,eam")
    tasks = plan_tasks([workload], [setup for setup in setups if setup.policy.has_bank], machines=MACHINES)
    passes = plan_passes([*plan_tasks([workload], setups), *tasks], refused={})
    assert {type(one.work) for one in passes} == {CountPass, TimedPass}
    for one in passes:
        assert pickle.loads(pickle.dumps(one)) == one
    assert len(pickle.dumps(passes)) < 40 * len(pickle.dumps(setups))


def test_a_workload_is_sent_without_what_was_worked_out() -> None:
    workload = load_trace("python-256")
    small = len(pickle.dumps(load_trace("python-256")))
    replay(workload, plan_setups("16", prefetch="eam")[0])
    assert workload.content_id
    sent = pickle.dumps(workload)
    assert len(sent) == small
    assert "content_id" not in vars(pickle.loads(sent)) | vars(pickle.loads(sent).trace)
    assert pickle.loads(sent).content_id == workload.content_id


def test_a_worker_with_another_workload_is_found_out() -> None:
    one = plan_passes(plan_tasks([load_trace("python-256")], plan_setups("16")))[0]
    with pytest.raises(SimError, match=r"a worker holds <Workload prose-256.*not "):
        run_pass(one, load_trace("prose-256"))


def test_what_is_worked_out_is_part_of_a_workload() -> None:
    """Everything that a user's predictor may read is part of the content."""
    workload = some_workload(1)
    trace = workload.trace
    weighted = trace.with_(weight=np.ones(trace.refs, np.float32))
    ids = {one.content_id for one in (workload, replace(workload, trace=weighted), replace(workload, geometry=None))}
    assert len(ids) == 3
    assert Workload(trace.with_(name="other"), workload.geometry).content_id == workload.content_id


def test_sizes_and_machines_share_replays() -> None:
    tasks = plan_tasks([load_trace("python-256")], plan_setups("16..256", policy="lru,fifo"), machines=MACHINES)
    timed = [one.work for one in plan_passes(tasks) if isinstance(one.work, TimedPass)]
    asked = [asked for work in timed for asked in work.replays]
    assert len(asked) == 10
    assert {asked.machines for asked in asked} == {tuple(MACHINES)}


def test_equal_traces_are_walked_once(tmp_path: Path) -> None:
    """Two files of one content have a row each, in the ledger too."""
    first = some_workload(3)
    second = Workload(first.trace.with_(name="again"), first.geometry)
    setups = some_setups(np.random.default_rng(1))
    assert len(plan_passes(plan_tasks([first, second], setups))) == len(plan_passes(plan_tasks([first], setups)))
    with Ledger(tmp_path) as ledger:
        rows = sweep([first, second], setups, ledger=ledger)
        assert ledger.rows(rows) == rows
    assert [row["trace"] for row in rows] == ["t3"] * len(setups) + ["again"] * len(setups)


def test_a_wider_sweep_computes_only_what_is_missing(tmp_path: Path) -> None:
    """Under another name, too: rows have the names that things have now."""
    workload, seen = some_workload(4), list[int]()
    few, many = plan_setups("2,4", policy="lru,fifo"), plan_setups("2,4,6", policy="lru,fifo,clock")
    asked: dict[str, Any] = {"conditions": lambda *_: CONDITIONS, "progress": lambda _, total: seen.append(total)}
    with Ledger(tmp_path) as ledger:
        sweep([workload], few, ledger=ledger, machines=MACHINES[:1], **asked)
    renamed = [replace(machine, name="mine") for machine in MACHINES]
    for machines, setups in ((MACHINES[:1], few), (renamed[:1], few), (MACHINES[:1], many), (MACHINES, many)):
        seen.clear()
        workload = Workload(workload.trace.with_(name=f"{len(setups)}{machines[0].name}"), workload.geometry)
        with Ledger(tmp_path) as ledger:
            rows = sweep([workload], setups, ledger=ledger, machines=machines, **asked)
        assert rows == sweep([workload], setups, machines=machines, conditions=lambda *_: CONDITIONS)
        assert (seen[-1] == 0) == (setups is few)


def test_what_does_not_fit_is_left_out_again_when_going_on(tmp_path: Path) -> None:
    workload, setups = some_workload(5), [Setup(Bank(slots=slots), contract="atomic") for slots in (4, 9)]
    for _ in range(2):
        left_out: list[LeftOut] = []
        with Ledger(tmp_path) as ledger:
            rows = sweep([workload], setups, ledger=ledger, left_out=left_out)
        assert ([row["bank"] for row in rows], [one.bank for one in left_out]) == (["4"], ["9"])


def test_a_workload_that_nothing_fits_has_no_passes() -> None:
    wide = load_trace("python-256")  # requests 8 experts a call
    setups, left_out = plan_setups("4"), list[LeftOut]()
    rows = sweep([wide, some_workload(6)], setups, left_out=left_out)
    assert ([row["trace"] for row in rows], [one.trace for one in left_out]) == (["t6"], ["python-256"])
