"""Static sets chosen from a profile: the beginning of the trace, or another trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.static import Static, StaticGlobal
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.curve import hit_curve
from flashmoe_sim.residency.many import plan_jobs
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from flashmoe_sim.sweep.collect import sweep
from flashmoe_sim.sweep.task import Task
from flashmoe_sim.trace.store import write_store
from flashmoe_sim.trace.write_jsonl import write_jsonl
from tests.residency.builders import geometry_of, one_layer, random_calls, run, some, trace_of
from tests.support import document, refusal, refused

# Three steps request 0, four request 1, five request 2.
TRACE = trace_of(one_layer([[0], [0], [1], [0], [1], [1], [1], [2], [2], [2], [2], [2]]), 4)


def pinned(policy: str, slots: int = 1) -> tuple[list[int], int]:
    """What is pinned, and how often the whole trace hits it."""
    result = run(TRACE, slots, policy)
    return result.contents[0].tolist(), some(result, "hits")[0]


@pytest.mark.parametrize(
    ("profile", "kept"),
    [
        ("first-1", ([0], 3)),
        ("first-4", ([0], 3)),  # 0 three times, 1 once
        ("first-6", ([0], 3)),  # three times each: the lower number
        ("first-7", ([1], 4)),
        ("first-11", ([1], 4)),
        ("first-12", ([2], 5)),
        ("first-999999999", ([2], 5)),  # all there is
    ],
)
def test_the_first_steps_choose_and_the_whole_trace_is_replayed(profile: str, kept: tuple[list[int], int]) -> None:
    assert pinned(f"static:profile={profile}") == kept
    assert pinned("static") == ([2], 5)


def test_a_global_set_takes_a_profile_too() -> None:
    """Of equal counts it takes the larger number."""
    assert pinned("static:global:profile=first-4") == ([0], 3)
    assert pinned("static:global:profile=first-6") == ([1], 4)
    assert pinned("static:global:profile=first-11") == pinned("static:global") == ([2], 5)


def test_what_the_profile_never_asks_for_is_not_pinned() -> None:
    assert pinned("static:profile=first-6", slots=4) == ([0, 1], 7)


def test_steps_are_counted_from_the_first_of_the_trace() -> None:
    later = prepare(TRACE.with_(step=np.arange(12, dtype=np.int32) + 100))
    assert run(later, 1, "static:profile=first-7").contents[0].tolist() == [1]


def test_a_step_is_all_of_its_layers_calls() -> None:
    """A layer that the profile does not reach pins nothing."""
    trace = trace_of([(0, [1], 1), (0, [1], 1), (1, [2], 1), (0, [3], 1), (1, [2], 1)], 4)
    assert [keys.tolist() for keys in run(trace, 2, "static:profile=first-1").contents] == [[1], []]
    assert [keys.tolist() for keys in run(trace, 2, "static:profile=first-2").contents] == [[1], [2]]


@pytest.fixture
def workload() -> Workload:
    rng = np.random.default_rng(1)
    calls = random_calls(rng, n_experts=9, layers=3, steps=40, most_tokens=2, width=2, missing=0.2)
    return prepare(trace_of(calls, 9), geometry_of({0: 16, 1: 48, 2: 32}, 9))


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another trace of the same model."""
    rng = np.random.default_rng(2)
    path = tmp_path / "other.parquet"
    write_store(trace_of(random_calls(rng, n_experts=9, layers=3, steps=30, width=2), 9), path)
    return path


def test_another_trace_chooses(workload: Workload, other: Path) -> None:
    """What it pins is what the other trace would pin for itself."""
    geometry = workload.geometry
    from_other = prepare(
        trace_of(random_calls(np.random.default_rng(2), n_experts=9, layers=3, steps=30, width=2), 9), geometry
    )
    for name in ("static", "static:ties_by=first-seen", "static:global"):
        for bank in (Bank(slots=3), Bank(budget_bytes=500)):
            found = run(workload, bank, f"{name}:profile={other}").contents
            expected = run(from_other, bank, name).contents
            assert [keys.tolist() for keys in found] == [keys.tolist() for keys in expected]


@pytest.mark.parametrize("ties_by", ["id", "first-seen"])
@pytest.mark.parametrize("profile", ["first-5", "other"])
def test_one_pass_counts_what_replays_count(workload: Workload, other: Path, profile: str, ties_by: str) -> None:
    policy = Static(profile=str(other) if profile == "other" else profile, ties_by=ties_by)
    curve = hit_curve(workload, policy)
    setups = [Setup(Bank(slots=slots), policy, "atomic") for slots in range(1, 10)]
    found: dict[Setup, Counts] = {}
    for job in plan_jobs(workload, setups):
        for setup, counts in job().items():
            found[setup] = found[setup].joined(counts) if setup in found else counts
    for slots, setup in enumerate(setups, start=1):
        counts = replay(workload, setup).counts
        for each in (curve[slots], found[setup]):
            assert np.array_equal(each.table, counts.table)
            assert each.total() == counts.total()
    assert curve[9].total()["hits"] < hit_curve(workload, Static())[9].total()["hits"]


def test_the_id_is_of_what_the_profile_says(workload: Workload, other: Path, tmp_path: Path) -> None:
    def id_of(profile: str, kind: type[Static | StaticGlobal] = Static) -> str:
        return str(Task(workload, Setup(Bank(slots=3), kind(profile=profile), "atomic")).strong_id)

    again, elsewhere, different = tmp_path / "again.jsonl", tmp_path / "elsewhere.parquet", tmp_path / "more.parquet"
    elsewhere.write_bytes(other.read_bytes())
    calls = random_calls(np.random.default_rng(2), n_experts=9, layers=3, steps=30, width=2)
    write_jsonl(trace_of(calls, 9), again)
    write_store(trace_of([*calls, (0, [1, 2], 1)], 9), different)
    assert id_of(str(other)) == id_of(str(elsewhere)) == id_of(str(again))
    assert len({id_of(profile) for profile in ("", "first-1", "first-2", str(other), str(different))}) == 5
    assert id_of(str(other), StaticGlobal) != id_of(str(other))
    row = Task(workload, Setup(Bank(slots=3), Static(profile=str(other)), "atomic")).identity()
    assert parse_policy(row["policy"]) == Static(profile=str(other))


def test_a_bad_profile_is_refused_before_anything_runs(workload: Workload, tmp_path: Path) -> None:
    def write(name: str, layers: int, n_experts: int, seen: int) -> str:
        path = tmp_path / name
        calls = random_calls(np.random.default_rng(0), n_experts=seen, layers=layers, steps=50, width=2)
        write_store(trace_of(calls, n_experts), path)
        return str(path)

    (tmp_path / "text").write_text("no trace at all")
    for profile, says in (
        ("nowhere.jsonl", "profile 'nowhere.jsonl': expected first-N, such as first-100 steps, the file of another"),
        ("first-0", "profile 'first-0': expected first-N"),
        ("first--1", "profile 'first--1': expected first-N"),
        ("first-x", "profile 'first-x': expected first-N"),
        (str(tmp_path / "text"), "known trace formats"),
        (write("layers", 2, 9, 9), "has MoE layers 0-1, but written by hand has 0-2; give a trace of the same model"),
        (write("more", 3, 12, 12), "layer 0 has 12 experts, but 9 in written by hand"),
        (write("fewer", 3, 8, 8), "layer 0 has 8 experts, but 9 in written by hand"),
    ):
        seen: list[int] = []
        setups = [Setup(Bank(slots=3), policy, "atomic") for policy in (Static(), Static(profile=profile))]
        with refused(BadInput, says):
            sweep([workload], setups, progress=lambda done, total, seen=seen: seen.append(done))
        assert seen == []
        with pytest.raises(BadInput):
            hit_curve(workload, Static(profile=profile))


def test_an_unknown_number_of_experts_need_not_agree(workload: Workload, tmp_path: Path) -> None:
    """JSONL does not record how many experts a layer has; the experts that it names must exist."""
    path = tmp_path / "few.jsonl"
    write_jsonl(trace_of([(layer, [0, layer], 1) for _ in range(3) for layer in range(3)], 9), path)
    assert [keys.tolist() for keys in run(workload, 2, f"static:profile={path}").contents] == [[0], [0, 1], [0, 2]]


def test_the_command_line_takes_profiles(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    policies = "static,static:profile=first-100"
    rows = document(capsys, "sweep", "python-256", "--bank", "16", "--policy", policies)["rows"]
    assert [row["policy"] for row in rows] == ["static", "static:profile=first-100"]
    assert rows[0]["hits"] > rows[1]["hits"] > 0
    assert refusal(capsys, "replay", "python-256", "--bank", "16", "--policy", f"static:profile={tmp_path}/none")
