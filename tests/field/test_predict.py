"""Speeds of made rows, worked out by hand: each strategy's bytes over the bandwidth of where they lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reports.field.outcome import Outcome, outcome
from reports.field.predict import Raw, raw_of
from reports.field.prior import HitCurve
from reports.field.serving import Way
from reports.field.tune import Cost, Tuned, best_cost, costs_of, engine_of, load, price_of, save
from tests.field.builders import row

CURVES = {kind: HitCurve(2.0, 1.0, 0.5) for kind in ("lru", "hindsight", "held-out")}
LAYERS, ACTIVE = 48, 48 * 8  # Qwen3-30B-A3B; its Q4_K_M: 16.3 GiB of 6,144 experts
EXPERT_GB = 16.34 * 2**30 / 6144 / 1e9


def raw(folder: Path, **cells: str) -> Raw:
    return raw_of(row(folder, **cells), CURVES)


def way(found: Raw) -> Way:
    assert found.way is not None, found.why
    return found.way


def parts_ms(found: Raw) -> dict[str, float]:
    return {name: 1e3 * seconds for name, seconds in price_of(found).part_s.items()}


def test_placed_layers_are_computed_on_the_cpu(tmp_path: Path) -> None:
    """12 of 48 layers: a quarter of the active experts, the first a little larger, over what the CPU streams."""
    found = raw(tmp_path, experts_on_cpu_layers="12")
    cpu = way(found).machine.cpu
    assert parts_ms(found)["cold_lane"] == pytest.approx(1e3 * 96 * EXPERT_GB / cpu.weights_gb_s.value, rel=0.04)
    assert price_of(raw(tmp_path, experts_on_cpu_layers="48")).tok_s < price_of(found).tok_s


def test_all_on_the_gpu_waits_for_nothing(tmp_path: Path) -> None:
    found = parts_ms(raw(tmp_path, strategy="all_gpu"))
    assert found["experts"] > 0
    assert found["dense"] > 0
    assert found["cold_lane"] == found["read"] == found["upload"] == 0


def test_the_cpu_alone_computes_all(tmp_path: Path) -> None:
    found = raw(tmp_path, strategy="cpu_only", gpu="")
    assert way(found).machine.gpu is None
    assert parts_ms(found)["read"] == 0  # 64 GiB hold 17


def test_what_ram_does_not_hold_is_read(tmp_path: Path) -> None:
    assert parts_ms(raw(tmp_path, strategy="page_cache_mmap", ram_gib="16", experts_on_cpu_layers="48"))["read"] > 0


@pytest.mark.parametrize(
    ("engine", "flags", "waits"),
    [
        ("FreeToken", "", "upload"),
        ("llama.cpp", "", "cold_lane"),
        ("llama.cpp", "--moe-cache-mib 4000", "upload"),
        ("llama.cpp", "--moe-cache-mib 4000 --load-mode none", "upload"),
    ],
)
def test_misses_of_a_cache_are_uploaded_or_computed(tmp_path: Path, engine: str, flags: str, waits: str) -> None:
    """32 of 128 slots at odds of 1/3: the hit rate is the logistic of 2 + ln(1/3), 0.711."""
    cells = {"strategy": "vram_lru", "engine": engine, "slots_per_layer_or_cache_gib": "32 slots/layer", "flags": flags}
    found = raw(tmp_path, **cells)
    assert price_of(found).missed.rate == pytest.approx(1 - 0.711, abs=0.001)
    assert parts_ms(found)[waits] > 0
    with_rate = raw(tmp_path, **cells, hit_rate_pct="90")
    assert price_of(with_rate).missed.rate == pytest.approx(0.1)
    assert with_rate.blind.missed.rate == pytest.approx(1 - 0.711, abs=0.001)


def test_fewer_slots_than_a_token_routes_hold_nothing(tmp_path: Path) -> None:
    """12 projection slots are 4 experts; a token routes 8."""
    cells = {"strategy": "vram_lru", "engine": "kekzl/imp", "slots_per_layer_or_cache_gib": "12 projection slots/layer"}
    assert price_of(raw(tmp_path, **cells)).missed.rate == 1


@pytest.mark.parametrize(("placement", "missed"), [("random", 0.5), ("frequency", 0.119)])
def test_a_list_hits_by_how_it_was_chosen(tmp_path: Path, placement: str, missed: float) -> None:
    """Half of the experts: at random half of the hits, by frequency the logistic of 2."""
    found = raw(
        tmp_path,
        strategy="vram_static_profile",
        engine="ktransformers",
        flags=f"--kt-expert-placement-strategy {placement}; TP 2",
        slots_per_layer_or_cache_gib="50 % of 128 experts/layer on GPU",
    )
    assert price_of(found).missed.rate == pytest.approx(missed, abs=0.001)


def test_a_bank_reads_from_the_drive_what_ram_does_not_serve(tmp_path: Path) -> None:
    """With direct reads each miss comes from the drive: 384 x 0.289 experts over its speed, requests on top."""
    cells = {"strategy": "slot_bank_ssd", "engine": "nvmoe", "slots_per_layer_or_cache_gib": "32 slots/layer"}
    direct = raw(tmp_path, **cells, ssd_gb_s="5")
    least_ms = 1e3 * ACTIVE * (1 - 0.711) * EXPERT_GB / 5
    assert least_ms < parts_ms(direct)["read"] < 1.6 * least_ms
    assert price_of(raw(tmp_path, **(cells | {"engine": "other"}), ssd_gb_s="5")).missed.in_ram > 0.9


def test_a_tier_in_ram_takes_from_the_page_cache_and_adds_to_direct_reads(tmp_path: Path) -> None:
    """Of 16.3 GiB of experts RAM holds as many with a tier of 2 GiB as without; with direct reads, only the tier's."""
    cells = {"strategy": "slot_bank_ssd", "ssd_gb_s": "5", "ram_gib": "16"}
    slots, tier = "32 slots/layer", "32 slots/layer + 2 GiB pinned RAM tier"
    plain, tiered, direct = (
        way(raw(tmp_path, **cells, slots_per_layer_or_cache_gib=text, flags=flags))
        for text, flags in ((slots, ""), (tier, ""), (tier, "DIRECT=1"))
    )
    assert plain.tier_bytes == 0
    assert tiered.tier_bytes == direct.tier_bytes == 2 * 2**30
    assert 0.5 < plain.ram_share < 1
    assert tiered.ram_share == pytest.approx(plain.ram_share)
    assert direct.ram_share == pytest.approx(2 / 16.34, rel=0.01)


def test_a_hot_cache_leaves_its_reserve_and_computes_empty_experts(tmp_path: Path) -> None:
    """Its automatic size is what the GPU has left less 1024 MiB, or the reserve that the flags name."""
    cells = {"strategy": "vram_static_profile", "engine": "adrianhoehne/llama.cpp hot-cache", "hit_rate_pct": "40"}
    other = way(raw(tmp_path, **(cells | {"engine": "another"}), gpu_vram_gib="12"))
    hot = way(raw(tmp_path, **cells, gpu_vram_gib="12"))
    more = way(raw(tmp_path, **cells, gpu_vram_gib="12", flags="--moe-hot-cache-auto-reserve-mib 2048"))
    assert hot.execution.name == "hot-cold-padded"
    assert (other.execution.name, hot.kind) == ("hot-cold", "held-out")
    gib = 1 / 16.34
    assert other.share - hot.share == pytest.approx(gib, rel=0.01)
    assert hot.share - more.share == pytest.approx(gib, rel=0.01)
    assert price_of(raw(tmp_path, **cells)).missed.rate == pytest.approx(0.6)


def test_a_chip_with_cuda_computes_what_it_streams(tmp_path: Path) -> None:
    cells = {"strategy": "ssd_stream", "gpu": "GB10", "cpu": "GB10", "ram_gib": "128", "ssd_gb_s": "5"}
    assert way(raw(tmp_path, **cells)).machine.gpu is None
    assert way(raw(tmp_path, **cells, engine_version_or_pr="PR 1031 (CUDA)")).machine.gpu is not None


def test_streaming_from_a_drive_computes_on_the_cpu(tmp_path: Path) -> None:
    found = raw(tmp_path, strategy="ssd_stream", engine="colibri", ssd_gb_s="5", flags="DIRECT=1", ram_gib="16")
    assert way(found).machine.gpu is None
    assert way(found).direct_io
    assert parts_ms(found)["read"] > 0


def test_the_engine_fits_layers_if_no_one_says_how_many(tmp_path: Path) -> None:
    fitted = way(raw(tmp_path, strategy="other", flags="--fit on", gpu="RTX 3060 12GB"))
    by_flag = way(raw(tmp_path, strategy="other", flags="-ngl 38"))
    assert 0 < fitted.far_layers < LAYERS
    assert by_flag.far_layers == 10


def test_a_filled_context_costs_and_an_allocated_one_does_not(tmp_path: Path) -> None:
    empty, filled, allocated = (
        price_of(raw(tmp_path, strategy="all_gpu", context=context, flags=flags)).tok_s
        for context, flags in (("", ""), ("32768", ""), ("32768", "-c 32768"))
    )
    assert filled < 0.8 * empty
    assert allocated == empty


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ({"model": "Nobody-7B"}, "unknown model"),
        ({"strategy": "by magic"}, "unknown strategy"),
        ({"engine": "transformers+accelerate"}, "not modelled"),
        ({"gpu": "", "cpu": "", "strategy": "cpu_only"}, "names no GPU"),
    ],
)
def test_no_prediction_says_why_in_one_line(tmp_path: Path, cells: dict[str, Any], why: str) -> None:
    found = outcome(raw(tmp_path, **cells), Tuned(CURVES))
    assert found.tok_s is None
    assert found.why is not None
    assert why in found.why
    assert "\n" not in found.why


def test_costs_are_medians_shrunk_by_rows(tmp_path: Path) -> None:
    """Four rows that take twice as long as priced: a factor of 2 to the power of 4 / 6."""
    speed = price_of(raw(tmp_path, strategy="all_gpu")).tok_s
    rows = [raw(tmp_path, strategy="all_gpu", id=str(n), decode_tok_s=f"{speed / 2}") for n in range(4)]
    assert best_cost(tuple(rows)).seconds(price_of(rows[0]), LAYERS) * speed == pytest.approx(2 ** (4 / 6), rel=0.06)


def test_a_strategy_counts_each_engine_once(tmp_path: Path) -> None:
    """Three rows of one engine are as fast as priced; one row of each of two others takes twice as long."""
    speed = price_of(raw(tmp_path, strategy="all_gpu")).tok_s
    measured = [("one", speed), ("one", speed), ("one", speed), ("two", speed / 2), ("three", speed / 2)]
    rows = [
        raw(tmp_path, strategy="all_gpu", id=str(n), engine=engine, machine_id=str(n), decode_tok_s=f"{tok_s}")
        for n, (engine, tok_s) in enumerate(measured)
    ]
    cost = costs_of(rows, CURVES).strategies["all_gpu"]
    assert cost.seconds(price_of(rows[0]), LAYERS) * speed == pytest.approx(2 ** (5 / 7), rel=0.06)


def test_a_layer_cost_adds_to_every_layer(tmp_path: Path) -> None:
    found = price_of(raw(tmp_path, strategy="all_gpu"))
    assert Cost("layer", 100.0).seconds(found, LAYERS) == pytest.approx(1 / found.tok_s + 0.0048)
    assert Cost("all", 2.0).seconds(found, LAYERS) == pytest.approx(2 / found.tok_s)


def test_the_interval_holds_the_prediction(tmp_path: Path) -> None:
    found: Outcome = outcome(raw(tmp_path, experts_on_cpu_layers="12"), load())
    assert found.lo < found.tok_s < found.hi


def test_engines_lose_versions_and_remarks(tmp_path: Path) -> None:
    names = ("ds4 (Metal)", "turboquant-mlx 0.5.0", "Swiftlet f44e29f", "llama.cpp + moe-stream patch (Crow)")
    assert [engine_of(row(tmp_path, engine=name)) for name in names] == [
        "ds4",
        "turboquant-mlx",
        "Swiftlet",
        "llama.cpp + moe-stream patch",
    ]


def test_what_is_tuned_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = Tuned({"lru": HitCurve(2.0, 1.0, 0.5, 0.25, {"gpt-oss-120b": 0.5})}, {"ds4": Cost("read", 2.0)})
    save(found, tmp_path / "tuned.toml")
    assert load(tmp_path / "tuned.toml") == found
