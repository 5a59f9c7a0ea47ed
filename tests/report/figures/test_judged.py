"""Policies against another one, with intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars
import pytest

import flashmoe_sim.api as sim
from flashmoe_sim.report.figures import judged
from flashmoe_sim.schema import JUDGED, frame
from tests.report.figures.made import Row, rows_of, svg


def against_lru(policy: str, trace: str | None, more: float, **changes: Any) -> Row:
    known = {
        "policy": policy,
        "prefetch": "none",
        "trace": trace,
        "traces": 2 if trace is None else 1,
        "bank": "16",
        "against": "lru",
    }
    ends = {"more_hits": more, "more_hits_lo": more - 0.01, "more_hits_hi": more + 0.02}
    return known | {"contract": "atomic", "hit_rate": 0.5, "ahead": 1, "p": 0.5} | ends | changes


def table(*rows: Row) -> polars.DataFrame:
    return frame(rows, JUDGED)


def test_each_trace_and_the_mean_have_their_ends() -> None:
    """They are those of the table of `judge_policies`, in points."""
    rows = sim.judge_policies(["python-256", "prose-256"], bank=32, policy="lfu-decay,min,fifo", contract="atomic")
    chart = judged(rows)
    drawn = {(one["policy"], one["trace"]): (one["value"], one["lo"], one["hi"]) for one in rows_of(chart, "trace")}
    expected = {
        (row["policy"], row["trace"] or "mean"): tuple(100 * row[f"more_hits{end}"] for end in ("", "_lo", "_hi"))
        for row in rows.to_dicts()
    }
    assert {line: pytest.approx(ends) for line, ends in expected.items()} == drawn
    kinds = {one["policy"]: one["kind"] for one in rows_of(chart, "kind")}
    assert kinds == {"lfu-decay": "online", "fifo": "online", "min": "knows the future"}
    fine = "Fine: each of 2 traces, from top: prose-256, python-256; heavy: their means."
    assert f"lfu-decay: +4.5 points. Lines: intervals. {fine}" in chart.description
    assert "Policies against lru on 2 traces, bank 32" in chart.description


def test_your_own_policy_is_first_and_others_follow_by_their_means(tmp_path: Path) -> None:
    rows = [against_lru(name, None, more) for name, more in (("arc", 0.02), ("gap", -0.05), ("s3fifo", 0.04))]
    chart = judged(table(*rows))
    drawn = svg(chart, tmp_path)
    assert drawn.index(">gap<") < drawn.index(">s3fifo<") < drawn.index(">arc<")
    assert "gap: -5.0 points; the best, s3fifo: +4.0. Lines: intervals." in chart.description


def test_speeds_of_one_trace_in_several_banks() -> None:
    gain = {"gain": 1.2, "gain_lo": 1.1, "gain_hi": 1.4, "tok_s": 9.0, "faster": 1}
    chart = judged(table(*(against_lru("arc", "a", 0.1, bank=bank, **gain) for bank in ("16", "32"))))
    drawn = {one["policy"]: (one["value"], one["lo"], one["hi"]) for one in rows_of(chart, "policy")}
    assert drawn == {"arc, 16": (1.2, 1.1, 1.4), "arc, 32": (1.2, 1.1, 1.4)}
    assert chart.description == "Policies against lru on a. arc: 1.20 times as fast. Lines: intervals."


def test_an_interval_that_is_not_known_has_no_line() -> None:
    chart = judged(table(against_lru("arc", "a", 0.1, more_hits_lo=None, more_hits_hi=None)))
    assert [set(one) for one in rows_of(chart, "policy")] == [{"policy", "trace", "kind", "value"}]


def test_many_are_cut_to_the_best() -> None:
    rows = [against_lru(f"lfu-decay:factor={number / 100}", "a", number / 1000) for number in range(1, 31)]
    chart = judged(table(*rows))
    assert len(rows_of(chart, "policy")) == 24
    assert chart.description.endswith("Not shown: 6 others.")


def test_banks_of_a_policy_stand_together_and_the_subtitle_has_their_range(tmp_path: Path) -> None:
    rows = [
        (one, bank, more) for one, more in (("arc", 0.01), ("gap", 0.0)) for bank, more in (("8", 0.0), ("16", more))
    ]
    made = judged(table(*(against_lru(one, "a", more, bank=bank) for one, bank, more in [*rows, ("arc", "32", -0.02)])))
    drawn = svg(made, tmp_path)
    places = [drawn.index(f">{name}<") for name in ("gap, 8", "gap, 16", "arc, 8", "arc, 16", "arc, 32")]
    assert places == sorted(places)
    assert "gap: +0.0 points" in made.description
    without_gap = judged(
        table(*(against_lru("arc", "a", more, bank=str(bank)) for bank, more in ((8, 0.01), (16, -0.02))))
    )
    assert "arc: -2.0 to +1.0 points" in without_gap.description
