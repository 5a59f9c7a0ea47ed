"""Published tables: predictions for rows on which nothing was fitted, and impossible published numbers."""

from __future__ import annotations

import math

import pytest

from flashmoe_sim.io.sizes import GIB
from reports.fidelity import hot_cache, hot_window, kimi_bank, layer_budget, qwen_bank, slot_remap
from reports.fidelity.from_table import column, fitted, passes_of_run, reading_sd, table
from reports.fidelity.measure import published
from reports.fidelity.prediction import Prediction

# Largest error of any row of a group, without its sign. Of the last two some rows are left out, for the reasons that
# `test_*_cannot_*` and `test_reads_*` give.
GOALS = [
    (hot_cache.group, 6, 0.02),
    (qwen_bank.bank_group, 4, 0.07),
    (qwen_bank.topk_group, 2, 0.10),
    (kimi_bank.group, 4, 0.08),
]


@pytest.mark.parametrize(("group", "rows", "goal"), GOALS, ids=lambda value: getattr(value, "__module__", None))
def test_goals(group: object, rows: int, goal: float) -> None:
    assert callable(group)
    found = group()
    assert len(found.predictions) == rows
    assert found.worst <= goal, [(row.name, row.error) for row in found.predictions]


def by_name(found: tuple[Prediction, ...]) -> dict[str, Prediction]:
    return {prediction.name: prediction for prediction in found}


def test_rows_are_reported_once_with_what_they_were_fitted_on() -> None:
    found = [row for group in published() for row in group.predictions]
    assert len({(row.group, row.name) for row in found}) == len(found) == 28
    for row in found:
        assert math.isfinite(row.predicted)
        assert row.fitted_on
        assert row.name not in row.fitted_on
        if row.measured_lo is not None and row.measured_hi is not None:
            assert row.measured_lo < row.measured < row.measured_hi
    for group in published():
        assert group.explanation.count("{") == 0


def test_intervals_hold_what_they_are_of() -> None:
    """They contain less than 90% of the measurements: they cover chance, not what a model leaves out."""
    assert reading_sd() == pytest.approx(0.024, abs=0.001)
    found = [row for group in published() for row in group.predictions]
    known = [row for row in found if row.lo is not None and row.hi is not None]
    inside = [row.lo <= row.measured <= row.hi for row in known if row.lo is not None and row.hi is not None]
    assert len(known) == 25
    assert sum(inside) >= 15
    for row in known:
        assert row.lo < row.predicted < row.hi


def test_hot_cache_is_fitted_on_the_ends() -> None:
    rows = hot_cache.runs()
    machine, errors = hot_cache.errors(rows, 0, 7)
    assert max(abs(errors[0]), abs(errors[7])) < 1e-6
    assert machine.gpu is not None
    rates = [float(row["hit_pct"]) for row in table("hot_cache_hit_vs_tok_s")]
    assert rates == sorted(rates)


def test_placed_layers_need_no_fit_and_a_hot_window_is_too_fast_even_with_its_own_hits() -> None:
    """Also with a made trace, which hits 46% where the README has 52%."""
    on_cpu, eight_on_gpu, borrowed, with_hits = hot_window.group().predictions
    assert max(abs(on_cpu.error), abs(eight_on_gpu.error)) <= 0.10
    assert 0.1 < borrowed.error < with_hits.error < 0.35


def test_passes_follow_from_rounded_misses() -> None:
    assert qwen_bank.passes() == 122
    assert kimi_bank.passes() * kimi_bank.layers() == 6120  # the calls that the page itself gives
    with pytest.raises(ArithmeticError, match="expected one"):
        passes_of_run([1000], [1.0], layers=1)


def test_breakdown_is_what_an_install_takes() -> None:
    machine, ms = qwen_bank.machine_with_parts(), column(qwen_bank.MS, "component", "ms")
    expert_bytes = 942_080
    source_us = expert_bytes / machine.memory.copy_gb_s.value / 1e3
    upload_us = expert_bytes / machine.link.pinned_gb_s.value / 1e3
    assert 3099 * (source_us + upload_us + machine.host.install_us.value) == pytest.approx(
        1e3 * ms["pread install total"]
    )


def test_kimi_is_flat_because_reads_that_repeat_come_from_the_page_cache() -> None:
    alike = kimi_bank.without_page_cache()
    assert alike["64"] == pytest.approx(0, abs=1e-6)
    assert alike["16"] < -0.2
    rows = {row["bank"]: row for row in table(kimi_bank.BANK)}
    assert kimi_bank.first_uses() * 3 == int(rows["128"]["pread_ops"]) == int(rows["256"]["pread_ops"])
    assert kimi_bank.first_uses() / kimi_bank.layers() < 128  # so that a bank of 128 evicts nothing


def test_kimi_bank_256_cannot_be_written_in_full() -> None:
    ram_gib = 128
    assert 256 * kimi_bank.layers() * kimi_bank.mean_expert_bytes() / GIB > ram_gib
    assert kimi_bank.first_uses() * kimi_bank.mean_expert_bytes() / GIB < ram_gib / 2


def test_slot_remap_64_slots_is_inside_its_range_and_96_cannot_be() -> None:
    rows = {row["slots"]: row for row in table(slot_remap.TABLE)}
    found = by_name(slot_remap.group().predictions)
    inside = found["64 slots"]
    assert inside.measured_lo <= inside.predicted <= inside.measured_hi
    compute_ms = slot_remap.published_ms("compute")
    assert compute_ms == 85
    least, _ = slot_remap.miss_ms(rows["32"], compute_ms)
    _, most = slot_remap.miss_ms(rows["96"], compute_ms)
    assert least > 1.5 * most  # whatever a miss takes, one of the two is not what 85 ms of compute and misses give
    assert "fits both" in found["96 slots"].note
    possible_ms = slot_remap.most_compute_ms(rows["32"], rows["96"])
    assert slot_remap.miss_ms(rows["32"], possible_ms)[0] == pytest.approx(
        slot_remap.miss_ms(rows["96"], possible_ms)[1]
    )


def test_slot_remap_on_the_preset_needs_no_fit() -> None:
    few, some, many = slot_remap.preset_group().predictions
    for row in (few, some):
        assert row.measured_lo <= row.predicted <= row.measured_hi
    assert many.predicted < many.measured_lo


def test_slot_remap_copies_of_3_5_ms_cannot_hold_the_misses() -> None:
    row = next(row for row in table(slot_remap.TABLE) if row["slots"] == "64")
    copied_gb = slot_remap.misses_per_token(row) * 11.4e6 / 1e9
    assert copied_gb / (slot_remap.published_ms("copy") / 1e3) > 4 * 30
    assert 1e3 / (slot_remap.published_ms("compute") + slot_remap.published_ms("copy")) > float(row["tok_s_hi"])


def test_layer_budget_is_that_of_the_older_version() -> None:
    parts_ms = sum(column(layer_budget.TABLE, "part", "ms").values())
    found = by_name(layer_budget.group().predictions)
    in_turn = found["all in turn, before the FMA kernel"]
    assert in_turn.predicted == pytest.approx(1e3 / (60 * parts_ms))
    assert abs(in_turn.error) < 0.01
    slow, _ = layer_budget.condition(r"([\d.]+)-([\d.]+) tok/s")
    assert in_turn.predicted < 0.9 * slow
    assert abs(found["second GPU command deferred"].error) < 0.03


def test_reads_that_miss_the_page_cache_come_together() -> None:
    apart = by_name(layer_budget.group().predictions)["reads of a layer, of which the page cache serves 71%"]
    warm_ms, cold_ms = layer_budget.condition(r"warm ([\d.]+) ms, cold ([\d.]+) ms")
    together_ms = layer_budget.PAGE_CACHE_SHARE * warm_ms + (1 - layer_budget.PAGE_CACHE_SHARE) * cold_ms
    assert apart.error < -0.15
    assert together_ms == pytest.approx(apart.measured, rel=0.02)


def test_a_machine_that_cannot_be_is_not_fitted() -> None:
    rows = hot_cache.runs()
    first, *_, last = rows
    with pytest.raises(ArithmeticError, match="above 0"):
        fitted(hot_cache.load_machine(hot_cache.MACHINE), hot_cache.UNKNOWN, {first: 1000.0, last: 10.0})
