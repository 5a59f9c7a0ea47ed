"""Counts: addition, and the columns derived from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flashmoe_sim.geometry.model import PAGE_BYTES
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.workload import prepare
from flashmoe_sim.schema import COUNTS
from tests.residency.builders import geometry_of, one_layer, run, trace_of

# Layer 0: 0 and 1 miss, then 0 hits and 2 displaces 1. Layer 1, a call of two tokens: 3 and 4 miss.
CALLS = [(0, [0, 1], 1), (1, [3, 4, 4, 3], 2), (0, [0, 2], 1)]


def counts_of(expert_bytes: dict[int, int] | None = None, bank: int | Bank = 2) -> Counts:
    geometry = None if expert_bytes is None else geometry_of(expert_bytes, 5)
    return run(prepare(trace_of(CALLS, 5), geometry), bank).counts


def test_derived_columns() -> None:
    total = counts_of({0: 4 * PAGE_BYTES, 1: 10}).total()
    assert total["hit_rate"] == 1 / 6
    assert total["full_hit_rate"] == 0
    assert total["misses_per_call"] == 5 / 3
    # The workload has 2 tokens: as many as each of the two layers saw.
    assert total["misses_per_token"] == 5 / 2
    assert total["bytes_read"] == 3 * 4 * PAGE_BYTES + 2 * 10
    assert total["bytes_per_token"] == total["bytes_read"] / 2
    # Whole pages are cut into 4 reads, 10 bytes are one.
    assert total["read_ops"] == 3 * 4 + 2 * 1
    assert total["resident_bytes"] == 2 * 4 * PAGE_BYTES + 2 * 10
    assert total["union_over_slots_p50"] == total["union_over_slots_p99"] == 2 / 2
    assert set(total) == {column.name for column in COUNTS if not column.name.startswith("best_")}


def test_by_layer() -> None:
    first, second = counts_of({0: 4 * PAGE_BYTES, 1: 10}).by_layer()
    assert (first["layer"], first["requests"], first["misses"], first["evictions"]) == (0, 4, 3, 1)
    assert (second["layer"], second["requests"], second["misses"], second["refs"]) == (1, 2, 2, 4)
    assert (first["bytes_read"], second["bytes_read"]) == (3 * 4 * PAGE_BYTES, 20)
    assert (first["read_ops"], second["read_ops"]) == (12, 2)
    assert (first["hit_rate"], second["hit_rate"]) == (1 / 4, 0)


def test_without_a_geometry_bytes_are_unknown() -> None:
    total = counts_of().total()
    for name in ("bytes_read", "bytes_per_token", "read_ops", "prefetch_bytes", "resident_bytes"):
        assert total[name] is None
    assert total["misses"] == 5


def test_union_quantiles() -> None:
    # Unions 1, 1, 1, 4 in 4 slots: the second smallest of four is the median, the largest the 99th percentile.
    counts = run(trace_of(one_layer([[0], [1], [2], [0, 1, 2, 3]]), 4), 4).counts
    assert counts.total()["union_over_slots_p50"] == 0.25
    assert counts.total()["union_over_slots_p99"] == 1.0
    # Calls without tokens request nothing.
    calls = [*one_layer([[0], [0, 1, 2, 3], [0, 1, 2, 3]]), *([(0, [], 0)] * 5)]
    total = run(trace_of(calls, 4), 4).counts.total()
    assert (total["calls"], total["union_over_slots_p50"]) == (8, 1.0)


def test_a_byte_bank_without_fixed_slots_has_no_union_over_slots() -> None:
    total = counts_of({0: 10, 1: 30}, Bank(budget_bytes=120)).total()
    assert total["union_over_slots_p50"] is None
    # Each layer has 60 bytes; layer 0 has no more than 5 experts of 10 to put there.
    assert total["resident_bytes"] == 50 + 60


def test_addition() -> None:
    counts = counts_of({0: 10, 1: 30})
    twice = counts + counts
    assert np.array_equal(twice.table, 2 * counts.table)
    assert np.array_equal(twice.unions, 2 * counts.unions)
    assert twice.tokens == 2 * counts.tokens
    one, two = counts.total(), twice.total()
    for name in ("hits", "misses", "bytes_read", "calls"):
        assert two[name] == 2 * one[name]
    for name in ("hit_rate", "bytes_per_token", "resident_bytes", "union_over_slots_p50"):
        assert two[name] == one[name]


def test_addition_of_unions_of_different_lengths() -> None:
    small = run(trace_of(one_layer([[0]]), 4), 4).counts
    large = run(trace_of(one_layer([[0, 1, 2]]), 4), 4).counts
    assert (small + large).unions.tolist() == (large + small).unions.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    "change",
    [
        {"layers": (0, 2)},
        {"slots": 3},
        {"expert_bytes": (10, 31)},
        {"expert_bytes": None},
        {"reads_per_install": (2, 2)},
        {"resident_bytes": 81},
    ],
)
def test_counts_of_different_configurations_do_not_add(change: dict[str, object]) -> None:
    counts = counts_of({0: 10, 1: 30})
    with pytest.raises(ValueError, match=f"different configurations: {next(iter(change))}"):
        counts + replace(counts, **change)
