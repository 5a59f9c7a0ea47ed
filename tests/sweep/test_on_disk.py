"""A sweep over a trace on disk gives the rows of the sweep over the trace in memory, with their ids."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from flashmoe_sim import api
from flashmoe_sim.cli.main import main
from flashmoe_sim.io.errors import Conflict
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import Candidates, PinningPolicy
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.prefetchers.table import parse_prefetcher
from flashmoe_sim.question import SweepOptions
from flashmoe_sim.residency import capacity
from flashmoe_sim.residency.workload import Setup, prepare, why_not
from flashmoe_sim.sweep.collect import sweep
from flashmoe_sim.sweep.ledger import FILE
from flashmoe_sim.sweep.left_out import LeftOut
from flashmoe_sim.sweep.plan import plan_sweep
from flashmoe_sim.sweep.task import Task
from flashmoe_sim.sweep.workers import in_threads
from flashmoe_sim.trace import routing
from flashmoe_sim.trace.long_traces import cut_up, unpack
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.store import write_store
from tests.prefetchers.test_twins import random_trace
from tests.residency.builders import geometry_of
from tests.residency.test_on_disk import cuts_of
from tests.support import document, refusal
from tests.trace.strategies import trace_of

POLICIES, PREDICTORS = ("lru", "fifo", "demand", "min", "min:forced", "static"), ("none", "temporal", "markov")
CONTRACTS = ("runtime", "protected", "atomic", "sequential")


def setups_of(contract: str, scope: Any, banks: list[Bank]) -> list[Setup]:
    """All that can be under a contract."""
    combinations = [(parse_policy(one), parse_prefetcher(two)) for one in POLICIES for two in PREDICTORS]
    return [
        Setup(bank, policy, contract, prefetch, scope)
        for bank in banks
        for policy, prefetch in combinations
        if not why_not(policy, contract, prefetch)
    ]


def recorded(trace: RoutingTrace, rng: np.random.Generator) -> RoutingTrace:
    """The trace with all that a recording can have."""
    return trace.with_(
        weight=rng.random(trace.refs, np.float32),
        slot=rng.integers(0, 4, trace.refs).astype(np.int16),
        phase=rng.integers(0, 3, trace.calls).astype(np.uint8),
        sequence=rng.integers(0, 3, trace.calls).astype(np.int32),
        dense_bytes=dict.fromkeys(trace.layers, 7),
    )


def narrow(trace: RoutingTrace) -> RoutingTrace:
    """The trace with its top-k, without which predictors in chunks need a width."""
    width = np.diff(trace.offset) // np.maximum(trace.n_tokens, 1)
    return trace.with_(top_k=int(width.max()))


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("scope", ["layer", "global"])
def test_rows_are_those_of_the_whole_trace(contract: str, scope: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "BLOCK", 5)
    compared = 0
    for seed in range(7):
        rng = np.random.default_rng(seed)
        trace = narrow(random_trace(seed))
        if seed % 2:
            trace = recorded(trace, rng)
        sizes = {layer: int(rng.integers(1, 4)) * 100 for layer in trace.layers}
        geometry = geometry_of(sizes, dict(trace.n_experts)) if seed % 3 else None
        most = max(trace.n_experts.values())
        banks = [Bank(slots=slots) for slots in {1, max(most // 2, 1), most, most + 1}]
        if geometry is not None and contract in ("atomic", "sequential"):
            banks.append(Bank(budget_bytes=len(sizes) * 300 * most // 2 + 300))
        setups, gone, lost = setups_of(contract, scope, banks), list[LeftOut](), list[LeftOut]()
        expected = sweep([prepare(trace, geometry)], setups, left_out=gone)
        workload = prepare(unpack(cut_up(trace, cuts_of(trace, rng))), geometry)
        found = sweep([workload], setups, workers=in_threads(2), left_out=lost)
        assert found == expected
        assert [list(row) for row in found] == [list(row) for row in expected]
        assert lost == gone
        compared += len(found)
    assert compared > 70


def test_without_the_optimum_the_other_rows_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bank with more references than min can count has rows, but for min."""
    monkeypatch.setattr(capacity, "MOST_REFERENCES", 10)
    trace, left_out = narrow(random_trace(5)), list[LeftOut]()
    assert trace.refs > 20
    setups = [Setup(Bank(slots=2), parse_policy(name), "atomic", scope="global") for name in ("lru", "min")]
    (row,) = sweep([prepare(unpack(cut_up(trace, [4])))], setups, left_out=left_out)
    monkeypatch.undo()
    (whole, _) = sweep([prepare(trace)], setups)
    assert row == whole | {"best_hit_rate": None, "best_bytes_per_token": None}
    assert [(one.policy, "at most 10 references" in one.reason) for one in left_out] == [("min", True)]


@dataclass(frozen=True)
class Pinned(PinningPolicy):
    """Hold the experts requested most."""

    name: ClassVar[str] = "pinned"

    def pinned(self, candidates: Candidates) -> list[np.ndarray]:
        return [np.isin(np.arange(len(counts)), np.argsort(counts)[-2:]) for counts in candidates.counts]


class OwnLru(Lru):
    """LRU under a name of its own."""

    name: ClassVar[str] = "own-lru"


def test_ids_of_own_policies_cover_what_was_recorded() -> None:
    """A user's policy may read all of a trace, so its id covers all of it."""
    trace = recorded(narrow(random_trace(7)), np.random.default_rng(1))
    ids = []
    for one in (trace, trace.with_(weight=trace.weight * 2)):
        for setup in (Setup(Bank(slots=2), OwnLru()), Setup(Bank(slots=2))):
            chunks = Task(prepare(unpack(cut_up(one, [2, 9]))), setup)
            assert chunks.strong_id == Task(prepare(one), setup).strong_id is not None
            ids.append(chunks.strong_id)
    assert ids[1] == ids[3]
    assert len(set(ids)) == 3


def test_an_own_policy_that_pins_by_requests() -> None:
    setups, _ = plan_sweep(SweepOptions(bank="2", policy=Pinned, contract="atomic"), in_chunks=True)
    trace = narrow(random_trace(5))
    assert sweep([prepare(unpack(cut_up(trace, [4])))], setups) == sweep([prepare(trace)], setups)


# ---------------------------------------------------------------------------------------------------- the command line


@pytest.fixture
def store(tmp_path: Path) -> str:
    rng = np.random.default_rng(1)
    experts = rng.integers(0, 16, (300, 3, 2))
    path = tmp_path / "trace.parquet"
    calls = [(layer, [a, (a + 1 + b % 15) % 16]) for step in experts for layer, (a, b) in enumerate(step)]
    write_store(trace_of(*calls, top_k=2), path)
    return str(path)


def test_either_goes_on_with_the_ledger_of_the_other(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(banks: str, *flags: str) -> dict[str, Any]:
        asked = ["--policy", "lru,fifo,min", "--prefetch", "none,temporal", "--out", str(tmp_path)]
        return dict(document(capsys, "sweep", store, "--bank", banks, *asked, *flags))

    plan = run("4", "--in-chunks", "--dry-run")
    assert (plan["in_ledger"], plan["to_compute"], plan["passes"]) == (0, 5, {"stack": 3, "walk": 9})
    assert plan["estimate"]["seconds"] > 0
    for banks, flags in (("4", ["--in-chunks"]), ("4,8", []), ("4,8,12", ["--in-chunks"])):
        assert len(run(banks, *flags)["rows"]) == 5 * len(banks.split(","))
    for flags in ([], ["--in-chunks"]):
        plan = run("4,8,12", "--dry-run", *flags)
        assert (plan["in_ledger"], plan["to_compute"], plan["passes"]) == (15, 0, {})
    assert len((tmp_path / FILE).read_bytes().splitlines()) == 16


def test_the_table_and_the_json_are_those_of_the_whole_trace(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    for options in (["--json"], []):
        shown = []
        for flags in ([], ["--in-chunks"]):
            assert main(["sweep", store, "--bank", "4,8", "--policy", "lru,fifo,min,min:forced", *flags, *options]) == 0
            shown.append(capsys.readouterr())
        assert shown[0] == shown[1]


def test_what_chunks_cannot_serve(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["sweep", store, "--bank", "4", "--contract", "atomic", "--in-chunks"]
    for options, says in (
        (["--policy", "lru,hot-window"], "policy hot-window plans over all steps in memory; leave out --in-chunks"),
        (["--prefetch", "oracle-1"], "predictor oracle-1 keeps all predictions in memory; leave out --in-chunks"),
        (["--machine", "m3-max-48"], "--in-chunks only counts; leave out --machine, or sweep the trace in memory"),
        (["--cluster", "local:2"], "--in-chunks sweeps in one process; leave out --cluster"),
        (["--topk", "1"], "--in-chunks with --topk: a trace is cut to fewer experts in memory; leave one of them out"),
    ):
        assert refusal(capsys, *command, *options).startswith(f"sim: {says}")
    plan = document(capsys, *command, "--policy", "lru,all", "--prefetch", "none", "--dry-run")
    left_out = {one["policy"]: one["reason"] for one in plan["left_out"]}
    assert {"hot-window", "hot-profile", "bounded-swaps", "scored-swaps"} == left_out.keys()
    assert all("or replay a part (`sim trace cut`)" in reason for reason in left_out.values())


def test_from_python_too(store: str) -> None:
    whole, in_chunks = (
        api.sweep(store, bank="4,8", policy="lru,min", contract="atomic", in_chunks=given) for given in (False, True)
    )
    assert in_chunks.equals(whole)
    assert in_chunks.height == 4
    with pytest.raises(Conflict, match="in_chunks reads files; give the path"):
        api.sweep(api.load_trace(store), bank=4, in_chunks=True)
