"""A warm start: what is there before the first call, and what it is worth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashmoe_sim import api
from flashmoe_sim.io.errors import Malformed, Unsupported
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency.many import count, plan_counts
from flashmoe_sim.residency.workload import Setup
from flashmoe_sim.sweep.left_out import LeftOut
from flashmoe_sim.sweep.plan import _rules, plan_setup, plan_setups
from flashmoe_sim.sweep.summary import foresees
from flashmoe_sim.sweep.workloads import by_hindsight
from flashmoe_sim.trace.store import write_store
from tests.residency.builders import run, totals, trace_of
from tests.residency.compare import workload_of
from tests.residency.test_seen import All

USED = [(0, [1, 2], 1), (0, [2, 3], 1), (0, [2, 3], 1), (0, [0], 1)]  # 2 three times, 3 twice, 0 and 1 once


def test_the_most_used_are_there_and_the_most_used_of_all_is_the_newest() -> None:
    """By hand: 3 and 2 are loaded, 1 takes the place of 3, 3 that of 1, 0 that of 2."""
    workload = workload_of(USED, {0: 4})
    result = run(workload, 2, "lru:warm=trace", "protected", record=True)
    assert result.slot.tolist() == [0, 1, 1, 0, 1, 0, 1]
    counted = totals(result)
    assert (counted["hits"], counted["cold"], counted["evictions"]) == (4, 0, 3)
    first = run(workload, 2, "lru:warm=first-1", "protected", record=True)
    assert totals(first)["hits"] == 5, "1 and 2 are both there: only 3 and 0 are missing"


def test_a_bank_larger_than_what_is_used_stays_open(tmp_path: Path) -> None:
    profile = tmp_path / "profile.parquet"
    write_store(trace_of([(0, [3], 1)], 4), profile)
    result = run(workload_of(USED, {0: 4}), 3, f"lru:warm={profile}", "atomic")
    assert (totals(result)["cold"], totals(result)["evictions"]) == (2, 1)


@given(
    calls=st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=3), min_size=1, max_size=30),
    slots=st.integers(3, 8),
)
def test_lru_and_the_optimum_never_hit_less(calls: list[list[int]], slots: int) -> None:
    workload = workload_of([(0, call, 1) for call in calls], {0: 8})
    for policy, contract in (("lru", "protected"), ("lru", "atomic"), ("min", "atomic"), ("min:forced", "sequential")):
        cold, warm = (totals(run(workload, slots, name, contract)) for name in (policy, f"{policy}:warm=trace"))
        assert warm["hits"] >= cold["hits"]


def test_passes_over_all_sizes_leave_it_to_replays() -> None:
    workload = workload_of(USED, {0: 4})
    for contract in ("runtime", "protected", "atomic"):
        setups = [Setup(Bank(slots=slots), Lru(warm="trace"), contract) for slots in (2, 3, 4)]
        assert {one.kind for one in plan_counts(workload, setups)} == {"walk"}
        for setup in setups:
            assert (
                count(workload, setup).total() == run(workload, setup.bank, "lru:warm=trace", contract).counts.total()
            )


def test_a_profile_of_the_judged_trace_is_told() -> None:
    message = "lru:warm=python-256: its profile is of python-256 itself, in hindsight"
    asked: dict[str, Any] = {"policy": "lru:warm=python-256", "bank": 64}
    traces = ["python-256", "prose-256"]
    for run_it in (
        lambda: api.sweep(traces, **asked),
        lambda: api.judge_policies(traces, **asked),
        lambda: api.fit_policy(traces, values="stamp=first", **asked),
    ):
        with pytest.warns(UserWarning, match=message) as warned:
            run_it()
        assert len(warned) == 1
    first = by_hindsight([api.load_trace("python-256")], [Lru(), Lru(warm="trace"), Lru(warm="first-9")])
    assert first == [], "their names say it"


def test_only_the_trace_itself_is_hindsight_by_name() -> None:
    foreseen = [foresees({"policy": f"lru:warm={source}", "prefetch": "none"}) for source in ("trace", "trace.jsonl")]
    assert foreseen == [True, False]


def test_a_profile_is_a_trace(tmp_path: Path) -> None:
    (tmp_path / "uses.json").write_text('{"enabled": true}')
    with pytest.raises(Malformed, match=r"uses.json': expected a trace, whose requests count: .*no format claims it"):
        run(workload_of(USED, {0: 4}), 2, f"lru:warm={tmp_path}/uses.json", "protected")


def test_one_word_starts_every_policy_that_installs() -> None:
    rules = _rules("lru,static,lfu:warm=trace", "first-9", None)
    specs = [setup.policy.spec for setup in plan_setups("4", policy=rules)]
    assert specs == ["lru:warm=first-9", "static", "lfu:warm=trace"]
    left_out: list[LeftOut] = []
    plan_setups("4", policy=_rules("all", "trace", None), contract="atomic", left_out=left_out)
    assert not left_out


def test_what_cannot_start_warm() -> None:
    with pytest.raises(Unsupported, match="sees the tokens of each reference, which no profile has; leave out warm="):
        plan_setup("4", policy=All, warm="trace")
    with pytest.raises(Malformed, match="an empty warm; give first-N"):
        plan_setup("4", warm="")
    with pytest.raises(Malformed, match="profile 'nowhere': expected first-N"):
        run(workload_of(USED, {0: 4}), 2, "lru:warm=nowhere", "protected")
