"""Points above LRU over several traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashmoe_sim.report.figures import gains
from tests.report.figures.made import Row, results, row, rows_of, svg


def on(trace: str, **rates: float) -> list[Row]:
    """Two banks of a trace; each policy hits a tenth more in the larger one."""
    return [
        row(bank, policy, trace=trace, trace_id=trace, hit_rate=rate + more)
        for policy, rate in rates.items()
        for bank, more in (("16", 0.0), ("32", 0.1))
    ]


def test_dots_are_traces_and_bars_their_means(tmp_path: Path) -> None:
    table = results(*on("a", lru=0.5, fifo=0.4, min=0.7), *on("b", lru=0.3, fifo=0.4, min=0.5))
    chart = gains(table)
    dots = {(one["policy"], one["trace"]): one["points"] for one in rows_of(chart, "policy", "trace")}
    assert dots == pytest.approx({("fifo", "a"): -10, ("fifo", "b"): 10, ("min", "a"): 20, ("min", "b"): 20})
    means = {one["policy"]: (one["points"], one["kind"]) for one in rows_of(chart, "policy", "traces")}
    assert means == {"min": (pytest.approx(20), "knows the future"), "fifo": (pytest.approx(0), "online")}
    assert "fifo: +0.0 points, above lru on 1 of 2 traces" in chart.description
    drawn = svg(chart, tmp_path)
    assert drawn.index(">min<") < drawn.index(">fifo<")
    assert ">Hit rate above LRU on 2 traces<" in drawn


def test_a_bank_that_lru_lacks_does_not_count() -> None:
    rows = [*on("a", lru=0.5, fifo=0.6), *on("b", lru=0.5, fifo=0.6)]
    more = [row("64", "fifo", trace=name, trace_id=name, hit_rate=0.9) for name in "ab"]
    alike = [rows_of(gains(results(*some)), "policy", "trace") for some in (rows, [*rows, *more])]
    assert alike[0] == alike[1]


def test_your_own_policy_is_always_shown_and_spoken_of() -> None:
    many = {f"lfu-decay:factor={number / 100}": 0.6 for number in range(1, 50)}
    chart = gains(results(*on("a", lru=0.5, gap=0.1, **many), *on("b", lru=0.5, gap=0.1, **many)))
    means = rows_of(chart, "policy", "traces")
    assert len(means) == 40
    assert [one["policy"] for one in means if one["kind"] == "your own"] == ["gap"]
    assert "gap: -40.0 points, above lru on 0 of 2 traces" in chart.description
    assert "Not shown: 10 others." in chart.description


def test_of_one_trace_with_many_policies_dots_are_banks(tmp_path: Path) -> None:
    many = {f"lfu-decay:factor={number / 100}": 0.5 + number / 100 for number in range(1, 10)}
    chart = gains(results(*on("a", lru=0.5, placed=0.1, **many)))
    dots = {(one["policy"], one["bank"]): one["points"] for one in rows_of(chart, "policy", "bank")}
    assert len(dots) == 20
    assert dots["placed", "16"] == dots["placed", "32"] == pytest.approx(-40)
    assert "Below -20 points, drawn there: placed." in chart.description
    assert "lfu-decay:factor=0.09: +9.0 points, above lru in 2 of 2 banks" in chart.description
    assert ">Hit rate above LRU: a<" in svg(chart, tmp_path)
