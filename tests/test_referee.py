"""The referee: what others say is taken as they say it, and scores are those of the kept answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flashmoe_sim.field.estimators import DEEPEST, OneEstimate, bytes_over_bandwidth
from flashmoe_sim.field.rows import WAYS
from flashmoe_sim.field.scores import AnswerBeside, answered_by_all, of_way, score
from flashmoe_sim.machines.belief import published_times
from native_bridge.advisers.ask import ADVISERS
from reports.field import first, residuals
from reports.referee import ask, memory
from reports.referee.estimators import before, estimators, recorded
from reports.referee.page import PAGE, markdown, outcomes
from reports.referee.questions import questions

ROOT = Path(__file__).parents[1]


def question(**known: Any) -> dict[str, Any]:
    told = {"gpu": "RTX 3060", "gpu_gib": 10.0, "gpu_gb_s": 400.0, "ram_gib": 30.0, "ram_gb_s": 40.0, "ssd_gb_s": 4.0}
    sizes = {"file_gib": 50.0, "active_gib": 5.0, "unified": False, "strategy": "n_cpu_moe", "tok_s": 10.0}
    return {"id": "one", **told, **sizes, **known}


def test_the_page_is_made_from_the_kept_answers() -> None:
    assert PAGE.read_text("utf-8") == markdown(), "run python -m reports.referee"
    assert "(reports/referee/README.md)" in (ROOT / "README.md").read_text()


def test_many_are_asked_and_every_program_answers_or_refuses_each() -> None:
    asked = questions()
    assert len(asked) >= 300
    assert len({one["id"] for one in asked}) == len(asked)
    assert {one["strategy"] for one in asked} == {strategy for way in WAYS.values() for strategy in way}
    kept = recorded()
    assert set(kept) == {f"{one.name} {ask.VERSIONS[one.name]}" for one in ADVISERS}
    for rows in kept.values():
        assert set(rows) == {one["id"] for one in asked}
        assert all((one.value is None) == bool(one.why_not) for one in rows.values())
    assert len(estimators()) >= 4 + len(kept)


def test_scores_by_hand() -> None:
    given = [
        (10.0, OneEstimate(10.0, 5.0, 20.0)),
        (10.0, OneEstimate(30.0, 20.0, 40.0)),
        (10.0, OneEstimate(8.0, 4.0, 16.0)),
        (10.0, OneEstimate(why_not="no")),
    ]
    found = score(AnswerBeside(question(tok_s=tok_s), one) for tok_s, one in given)
    assert (found.asked, found.answered) == (4, 3)
    assert (found.factor, found.bias) == (pytest.approx(1.25), pytest.approx(1.0))
    assert (found.within_2, found.inside, found.apart) == (
        pytest.approx(2 / 3),
        pytest.approx(2 / 3),
        pytest.approx(4.0),
    )
    assert score([AnswerBeside(question(), OneEstimate(why_not="no"))]).answered == 0


def test_only_what_all_answer_is_compared() -> None:
    one, other = question(), question(id="other")
    found = {
        "a": [AnswerBeside(one, OneEstimate(1.0)), AnswerBeside(other, OneEstimate(2.0))],
        "b": [AnswerBeside(one, OneEstimate(3.0)), AnswerBeside(other, OneEstimate(why_not="no"))],
    }
    assert [[each.question["id"] for each in of] for of in answered_by_all(found).values()] == [["one"], ["one"]]
    assert of_way(found["a"], "all on the GPU") == []


def test_bytes_over_bandwidth_by_hand() -> None:
    """A fifth of the file is on the GPU, three fifths in RAM, the rest on the drive."""
    seconds = 5.0 * 1.073741824 * (0.2 / 400 + 0.6 / 40 + 0.2 / 4)
    assert bytes_over_bandwidth(question()).value == pytest.approx(1 / seconds)
    assert bytes_over_bandwidth(question(gpu_gb_s=None)).why_not
    unified = bytes_over_bandwidth(question(unified=True, gpu_gib=None, ram_gib=64.0))
    assert unified.value == pytest.approx(400 / (5.0 * 1.073741824))


def test_nothing_that_was_seen_counts_as_unseen() -> None:
    """The commands' own first answers are of other rows than those that were in view before."""
    old = set(pl.read_csv(first.TABLE).filter(pl.col("commit").is_in(first.OLD))["id"])
    seen = {one["id"]: one for one in questions() if one["id"] not in before()}
    assert not old & before().keys()
    estimate = estimators()["flashmoe-sim, before it saw the row"]
    assert all(estimate(one).value is None for one in seen.values())
    planted = question(id=next(iter(old)))
    assert estimate(planted).why_not == "not asked, or the row was seen before"


def test_our_speeds_are_those_of_the_field_report() -> None:
    own = {row["id"]: row for row in residuals.on_parts(pl.read_csv(residuals.TABLE)).to_dicts()}
    found = outcomes()
    for each in found["flashmoe-sim, without who measured it"]:
        row = own[each.question["id"]]
        assert each.estimate.value == row["without_source_tok_s"]
        assert each.question["tok_s"] == pytest.approx(row["measured_tok_s"], rel=1e-3)
    for each in found["flashmoe-sim on paper"]:
        row = own[each.question["id"]]
        assert each.estimate.value == pytest.approx(row["tok_s"] / published_times(row["system"] or ""))
    assert DEEPEST == 8192


def test_memory_of_cards_beside_the_plan() -> None:
    """llama.cpp's placements are planned within a fifth; Crow's are short by the same at any size."""
    found = {one.question["id"]: one.planned_gib - one.measured_gib for one in memory.held()}
    assert len(found) == 9
    crow = [short for name, short in found.items() if name.startswith("crow")]
    assert len(crow) == 4
    assert max(crow) - min(crow) < 0.2
    assert max(crow) < -2
    ratios = [one.planned_gib / one.measured_gib for one in memory.held() if one.question["id"].startswith("card")]
    assert 0.99 < min(ratios) < max(ratios) < 1.18
    assert sorted(ratios)[2] < 1.01


def test_every_program_was_asked_about_memory() -> None:
    kept, ids = memory.kept(), {one.question["id"] for one in memory.held()}
    assert set(kept) == set(recorded())
    for rows in kept.values():
        assert set(rows) == ids
        assert all((one.value is None) == bool(one.why_not) for one in rows.values())


def test_buffers_that_engines_logged() -> None:
    ratios = [ratio for _, ratio in memory.logged()]
    assert len(ratios) == 11
    assert 1 <= min(ratios) <= max(ratios) < 1.12
