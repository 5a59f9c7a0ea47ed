"""Sums over several traces: worked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from flashmoe_sim.schema import OF_SEVERAL_TRACES, RESULT_COLUMNS
from flashmoe_sim.sweep.summary import foresees, over_traces, yours_first


def row(trace: str, policy: str, **changes: Any) -> dict[str, Any]:
    known = {"trace": trace, "policy": policy, "bank": "16", "bank_slots": 16, "contract": "atomic"}
    known |= {"prefetch": "none", "scope": "layer"}
    return dict.fromkeys(column.name for column in RESULT_COLUMNS) | known | changes


def hits(trace: str, policy: str, hit_rate: float) -> dict[str, Any]:
    return row(trace, policy, hit_rate=hit_rate, best_hit_rate=0.75)


def test_means_ranges_and_wins() -> None:
    """On a: fifo and lru are first together; on b: lru. min knows the future and takes no win from them."""
    rows = [hits("a", "lru", 0.5), hits("a", "fifo", 0.5), hits("a", "min", 0.75)]
    rows += [hits("b", "lru", 0.25), hits("b", "fifo", 0.125), hits("b", "min", 0.75)]
    lru, fifo, best = over_traces(rows)
    assert [list(one) for one in (lru, fifo, best)] == [[column.name for column in OF_SEVERAL_TRACES]] * 3
    assert (lru["policy"], lru["bank_slots"], lru["traces"]) == ("lru", 16, 2)
    assert (lru["hit_rate"], lru["hit_rate_min"], lru["hit_rate_max"]) == (0.375, 0.25, 0.5)
    assert (lru["best_hit_rate"], lru["tok_s"], lru["tok_s_min"], lru["tok_s_max"]) == (0.75, None, None, None)
    assert [one["wins"] for one in (lru, fifo, best)] == [2, 1, None]


def test_a_share_is_of_models_of_unlike_size() -> None:
    rows = [hits("a", "lru", 0.5) | {"bank": "25%"}, hits("b", "lru", 0.25) | {"bank": "25%", "bank_slots": 32}]
    (found,) = over_traces(rows)
    assert (found["bank"], found["bank_slots"], found["hit_rate"]) == ("25%", None, 0.375)


def test_on_machines_the_fastest_wins() -> None:
    """More hits are not faster here; if nothing fits nothing wins, and there is no mean of some traces only."""
    of_m1 = [("a", "lru", 0.5, 2.0), ("a", "fifo", 0.25, 4.0), ("b", "lru", 0.5, 6.0), ("b", "fifo", 0.25, None)]
    rows = [row(t, p, machine="m1", execution="e", hit_rate=h, tok_s=s) for t, p, h, s in of_m1]
    rows += [row(t, p, machine="m2", execution="e", hit_rate=h, tok_s=None) for t, p, h, _ in of_m1]
    found = {(one["machine"], one["policy"]): one for one in over_traces(rows)}
    lru = found["m1", "lru"]
    assert (lru["tok_s"], lru["tok_s_min"], lru["tok_s_max"], lru["wins"]) == (4.0, 2.0, 6.0, 1)
    assert (found["m1", "fifo"]["tok_s"], found["m1", "fifo"]["wins"]) == (None, 1)
    assert [found["m2", policy]["wins"] for policy in ("lru", "fifo")] == [0, 0]


def test_a_bank_that_some_trace_overflows_is_of_fewer_traces() -> None:
    rows = [hits("a", "lru", 0.5), hits("b", "lru", 0.25), hits("b", "static", 0.125)]
    assert [one["traces"] for one in over_traces(rows)] == [2, 1]


def test_traces_on_which_your_own_policy_ran_come_first() -> None:
    rows = [row("a", "lru", trace_id="1"), row("b", "lru", trace_id="2"), row("c", "lru", trace_id="3")]
    assert yours_first(rows) == rows
    own = row("b", "mine:Gap", trace_id="2")
    assert yours_first([*rows, own]) == [rows[1], own, rows[0], rows[2]]


@pytest.mark.parametrize(
    ("policy", "prefetch", "knows"),
    [
        ("lru", "none", False),
        ("min:forced", "none", True),
        ("lookahead:steps=4", "none", True),
        ("static", "none", True),
        ("static:profile=other.jsonl", "none", False),
        ("lru", "oracle-1", True),
        ("lru", "synthetic:recall=0.5", True),
        ("lru", "eam:width=4", False),
        ("mine:Gap", "none", False),
    ],
)
def test_what_knows_the_future(policy: str, prefetch: str, knows: bool) -> None:
    assert foresees({"policy": policy, "prefetch": prefetch}) == knows
