"""The rule of each system, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashmoe_sim.geometry.model import LayerGeometry, ModelGeometry
from flashmoe_sim.io.errors import TooLarge, Unsupported
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Quantity
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.big_moe_on_edge import BigMoeOnEdge
from flashmoe_sim.systems.bounded_insert import BoundedInsert
from flashmoe_sim.systems.cpu import Cpu
from flashmoe_sim.systems.crow import Crow
from flashmoe_sim.systems.ds4 import Ds4
from flashmoe_sim.systems.hot_cache import HotCache
from flashmoe_sim.systems.hot_window import HotWindowSlots
from flashmoe_sim.systems.imp import Imp
from flashmoe_sim.systems.ktransformers import KTransformers
from flashmoe_sim.systems.moe_cache import MoeCache
from flashmoe_sim.systems.nvmoe import Nvmoe
from flashmoe_sim.systems.slotstream import Slotstream, own_pool_bytes
from flashmoe_sim.systems.static_profile import StaticProfile
from flashmoe_sim.systems.turbo_fieldfare import TurboFieldfare
from tests.residency.builders import Call, one_layer, some
from tests.systems.by_hand import misses_of, replayed_by, timed_by
from tests.systems.models import model_of

EXPERTS = 16
MODEL = model_of(EXPERTS * 100 * MIB, layers=1, arch="qwen35moe")  # an expert of 100 MiB
TWO_LAYERS = model_of(2 * EXPERTS * 100 * MIB, layers=2, arch="qwen35moe")


def _case(machine: str = "rtx-3090", model: ModelGeometry = MODEL) -> Case:
    return Case(model, load_machine(machine))


def _replayed(system: System, calls: list[Call], case: Case | None = None) -> Replayed:
    return replayed_by(system, calls, case or _case())


def test_bounded_insert_takes_in_two_a_call_and_nothing_of_a_prompt() -> None:
    calls = one_layer([[1, 2, 3], [1, 2, 3], [1, 2, 3]])
    replayed = _replayed(BoundedInsert(slots=8, inserts=2), calls)
    assert misses_of(_replayed(BoundedInsert(slots=8), calls)) == [3, 2, 1]  # one a call
    assert misses_of(replayed) == [3, 1, 0]
    assert some(replayed, "bypassed") == (1,)
    prompt_first = [(0, [1, 2, 3, 3], 2), *calls]
    assert misses_of(_replayed(BoundedInsert(slots=8, inserts=2), prompt_first)) == [3, 3, 1, 0]
    assert some(_replayed(BoundedInsert(slots=8), prompt_first), "calls", "refs", "requests") == (4, 13, 12)


def test_bounded_insert_copies_a_prompt_of_32_tokens_and_computes_a_smaller_one_on_the_cpu() -> None:
    large, small = ([(0, [1] * tokens, tokens)] for tokens in (32, 31))
    assert timed_by(BoundedInsert(slots=8), large, _case()).timing.part_ms_per_token["cold_lane"] == 0
    assert timed_by(BoundedInsert(slots=8), small, _case()).timing.part_ms_per_token["cold_lane"] > 0


def test_a_static_profile_is_the_first_half_and_never_changes() -> None:
    calls = one_layer([[1, 2], [1, 3], [2, 4], [3, 4]])
    assert misses_of(_replayed(StaticProfile(slots=2), calls)) == [0, 1, 1, 2]  # 1 and, of 2 and 3, the lower
    assert misses_of(_replayed(StaticProfile(slots=2, profile="all"), calls)) == [0, 1, 1, 2]
    assert misses_of(_replayed(StaticProfile(slots=4, profile="all"), calls)) == [0, 0, 0, 0]
    assert misses_of(_replayed(StaticProfile(slots=4), calls)) == [0, 0, 1, 1]


def test_ktransformers_places_evenly_from_the_front_or_by_use() -> None:
    calls: list[Call] = [(0, [0, 9], 1), (1, [0, 9], 1), (0, [0, 8], 1), (1, [8, 9], 1)]
    case = _case(model=TWO_LAYERS)
    assert misses_of(_replayed(KTransformers(experts=8), calls, case)) == [1, 1, 1, 2]
    assert misses_of(_replayed(KTransformers(experts=8, strategy="front-loading"), calls, case)) == [0, 2, 0, 2]
    by_use = KTransformers(experts=1, strategy="frequency", profile="all")
    assert misses_of(_replayed(by_use, calls, case)) == [1, 1, 1, 1]  # 0 of the first layer, 9 of the second


def test_imp_passes_over_slots_that_are_too_few_for_a_call() -> None:
    calls = one_layer([[1, 2], [1, 2, 3], [1, 2]])
    replayed = _replayed(Imp(slots=2), calls)
    assert misses_of(replayed) == [2, 3, 0]
    assert some(replayed, "bypassed", "evictions") == (3, 0)


def test_imp_copies_from_ram_and_reads_nothing() -> None:
    timed = timed_by(Imp(slots=2), one_layer([[1, 2], [3, 4]]), _case())
    assert timed.storage_bytes == 0
    assert timed.timing.part_ms_per_token["read"] == 0
    assert timed.timing.part_ms_per_token["cold_lane"] == 0
    pinned = timed_by(Imp(slots=2, pinned=True), one_layer([[1, 2], [3, 4]]), _case())
    assert 0 < pinned.timing.part_ms_per_token["upload"] < timed.timing.part_ms_per_token["upload"]


def test_imp_takes_fifteen_percent_of_the_free_gpu_memory() -> None:
    case = _case(model=model_of(40 * GIB, layers=4, n_experts=128))
    slots, more = Imp().sized(case).slots, Imp(percent=30).sized(case).slots
    assert 2 * slots <= more <= 2 * slots + 1


@pytest.mark.parametrize("system", [BoundedInsert(), HotCache(), HotWindowSlots(), Imp(), StaticProfile()])
def test_a_mapped_file_is_read_in_the_windows_of_the_operating_system(system: System) -> None:
    machine = load_machine("rtx-3090")
    windows = {"": (128, 2, 1.5), "linux": (256, 4, 2), "windows": (68, 1, 1.5), "macos": (32, 1, 1.5)}
    for os, (window_kib, at_once, around) in windows.items():
        found = system.adapted(replace(machine, os=os)).storage
        assert (found.by_faults, found.fault_kib.value, found.faults_in_flight.value) == (True, window_kib, at_once)
        assert found.around_bytes(1 << 20) == around * window_kib * 1024
    known = Quantity(1024, 1024, 1024, "read-ahead of 512 KiB", "made")
    own = replace(machine, storage=replace(machine.storage, fault_kib=known))
    assert system.adapted(own).storage.fault_kib == known
    assert Imp(pinned=True).adapted(machine) == machine


def test_page_faults_that_were_measured_on_the_machine_take_the_place_of_windows() -> None:
    """An engine reads 0.65 of what the probe did, 0.45 to as much."""
    machine = load_machine("rtx-3090")
    known = Quantity(1, 0.9, 1.2, "probed", "made")
    own = replace(machine, os="linux", storage=replace(machine.storage, faults_gb_s=known))
    found = Cpu().adapted(own).storage
    assert (found.faults_gb_s.lo, found.faults_gb_s.value, found.faults_gb_s.hi) == pytest.approx((0.405, 0.65, 1.2))
    assert found.chunk_s(4 << 20, 3) == pytest.approx(3 * ((4 << 20) + 512 * 1024) / 0.65e9)
    assert Imp(pinned=True).adapted(own) == own


def test_ktransformers_on_two_gpus() -> None:
    one, two = _case(), _case("2x rtx-3090 + 64GiB")
    system = KTransformers(experts=4)
    assert "--tensor-parallel-size" not in system.launch(one).line
    assert "--tensor-parallel-size 2" in system.launch(two).line


def test_nvmoe_has_one_list_for_all_layers_and_needs_room_for_a_layer() -> None:
    case = _case(model=TWO_LAYERS)
    assert "at least 1600 are needed" in Nvmoe(cache_mib=1500).why_not(case)
    # Room for 16 experts: layer 0 fills it, then layer 1 takes its oldest, 0.
    calls: list[Call] = [(0, list(range(16)), 8), (1, [5], 1), (0, [1], 1), (1, [5], 1), (0, [0], 1)]
    assert misses_of(_replayed(Nvmoe(cache_mib=1600), calls, case)) == [16, 1, 0, 0, 1]


def test_nvmoe_reads_past_the_page_cache() -> None:
    case = _case(model=TWO_LAYERS)
    calls = [(layer, [expert, (expert + 1) % 16], 1) for expert in (*range(16), *range(16)) for layer in (0, 1)]
    timed = timed_by(Nvmoe(cache_mib=1600), calls, case)
    assert timed.page_cache_bytes == 0
    assert timed.storage_bytes == int(timed.work.misses.sum()) * 100 * MIB


def test_big_moe_on_edge_hits_nothing_below_what_a_token_uses() -> None:
    """The cliff: a layer's experts less than what one token uses in all layers, and the cache is of no use at all."""
    case = _case("phone-ufs4", TWO_LAYERS)
    calls = [(layer, [1, 2], 1) for _ in range(20) for layer in (0, 1)]
    assert some(_replayed(BigMoeOnEdge(cache_mib=200), calls, case), "hits") == (0,)
    assert some(_replayed(BigMoeOnEdge(cache_mib=400), calls, case), "misses") == (4,)


def test_big_moe_on_edge_computes_on_the_cpu_past_the_page_cache() -> None:
    case = _case("m3-max-48", TWO_LAYERS)
    plan = BigMoeOnEdge(cache_mib=400).plan(case)
    assert plan.machine.gpu is None
    assert plan.conditions(case).direct_io
    timed = timed_by(BigMoeOnEdge(cache_mib=400), [(0, [1, 2], 1), (1, [3, 4], 1)] * 3, case)
    assert timed.page_cache_bytes == 0
    assert timed.timing.part_ms_per_token["upload"] == 0


def test_turbofieldfare_evicts_the_least_used_and_of_equal_ones_the_oldest() -> None:
    model = model_of(EXPERTS * 100 * MIB, layers=1, arch="gemma4")
    calls = one_layer([range(8), [0, 1], [8], [2], [0, 1]])
    case = _case("m3-max-48", model)
    # 8 takes the place of 2, the oldest of those used once; 2 takes the place of 3.
    assert misses_of(_replayed(TurboFieldfare(slots=8), calls, case)) == [8, 0, 1, 1, 0]
    assert timed_by(TurboFieldfare(slots=8), calls, case).timing.part_ms_per_token["upload"] == 0


def test_ds4_evicts_the_least_used_of_all_layers_and_keeps_a_model_that_fits() -> None:
    model = model_of(2 * EXPERTS * 100 * MIB, layers=2, arch="deepseek4")
    calls = [(0, [0, 1], 1), (1, [0, 1], 1), (0, [0, 2], 1), (1, [0, 1], 1), (0, [1, 2], 1)]
    case = _case("m3-max-48", model)
    # 2 takes the place of 1 in layer 0, used once and longer ago than those of layer 1; then 1 takes that of 0 there.
    assert misses_of(_replayed(Ds4(experts=4), calls, case)) == [2, 2, 1, 0, 1]
    assert misses_of(_replayed(Ds4().sized(case), calls, case)) == [2, 2, 1, 0, 0]
    assert Ds4().sized(case).launch(case).line == "ds4-server -m MODEL.gguf"
    assert Ds4(experts=4).launch(case).line.endswith(" --ssd-streaming --ssd-streaming-cache-experts 4")
    large = _case("m3-max-48", model_of(60 * GIB, layers=60, arch="deepseek4"))
    own = Ds4().sized(large)
    assert own.experts * (60 * GIB // 60 // 64) <= 0.8 * large.gpu_bytes
    with pytest.raises(Unsupported, match="experts=1; a token routes 2 in a layer"):
        Ds4(experts=1).check(large)


def test_slotstream_shares_its_slots_among_layers_and_a_hand_goes_round_them() -> None:
    model = model_of(2 * EXPERTS * 100 * MIB, layers=2, arch="qwen4exp")
    full = [(layer, list(range(first, first + 7)), 1) for layer in (0, 1) for first in (0, 7)]
    calls = [*full, (0, [14, 15], 1), (0, [0], 1), (1, [0, 13], 1), (0, [2], 1)]
    case = _case("m3-max-48", model)
    # 14 and 15 take the places of 0 and 1, 0 that of 2, all of layer 0; so 2 is missed, and those of layer 1 are not.
    assert misses_of(_replayed(Slotstream(experts_per_layer=14), calls, case)) == [7, 7, 7, 7, 2, 1, 0, 1]


@pytest.mark.parametrize(("ram_gb", "metal_gb", "experts"), [(51.5, 40.2, 152), (17.2, 12.2, 21), (137.4, 107.5, 152)])
def test_slotstream_sizes_its_pool_as_it_printed(ram_gb: float, metal_gb: float, experts: int) -> None:
    """docs/HARDWARE.md@1efe3aed: the M5 Pro with 48 GB, the M2 mini with 16 (a target of 10.2 GB), the M5 Max."""
    record_gb = 48 * 2_764_800 / 1e9
    assert own_pool_bytes(ram_bytes=ram_gb * 1e9, metal_bytes=metal_gb * 1e9) / 1e9 / record_gb == pytest.approx(
        experts, abs=3
    )


def test_moe_cache_waits_for_repeated_misses_and_longer_when_it_is_full() -> None:
    case = _case("rtx-3090", model_of(2 * 64 * 100 * MIB, layers=2, n_experts=64, arch="qwen3moe"))
    half = MoeCache(cache_mib=64 * 100)
    filling = [(0, [2 * pair, 2 * pair + 1], 1) for pair in range(32) for _ in range(2)]
    # Each pair is in with its second miss. Then the cache is full, and 5 of layer 1 needs eight misses to take the
    # place of 0 of layer 0. Nine tokens bypass the cache, eight do not.
    calls = [*filling, (0, [0], 1), (0, [2], 1), (0, [1, 3], 8), *[(1, [5], 1)] * 9, (0, [4], 1), (0, [5] * 9, 9)]
    assert misses_of(_replayed(half, calls, case)) == [2] * 64 + [0, 0, 0] + [1] * 8 + [0, 1, 1]
    assert misses_of(_replayed(MoeCache(cache_mib=2 * 64 * 100), [(0, [1, 2], 1), (0, [1, 2], 1)], case)) == [2, 0]


def test_moe_cache_uploads_behind_the_calls() -> None:
    case = _case("rtx-3090", model_of(64 * 100 * MIB, layers=1, n_experts=64, arch="qwen3moe"))
    whole = [(0, [0, 1], 1), (0, [2, 3], 1)]
    parts = timed_by(MoeCache(cache_mib=64 * 100), whole, case).timing.part_ms_per_token
    assert parts["upload"] == 0
    assert parts["cold_lane"] > 0


def test_moe_cache_has_room_for_64_matrices_of_each_kind_or_none() -> None:
    """Gate and up share a pool; in bytes, the one of down is 64 for each 64 experts, and theirs twice as many."""
    kinds = {"gate": MIB, "up": MIB, "down": 2 * MIB}
    model = replace(model_of(GIB, layers=1, arch="qwen3moe"), layers={0: LayerGeometry(128, kinds)})
    with pytest.raises(Unsupported, match="255 MiB; its cache begins with 256"):
        MoeCache(cache_mib=255).check(_case("rtx-3090", model))
    MoeCache(cache_mib=256).check(_case("rtx-3090", model))
    alike = replace(model, layers={0: LayerGeometry(128, dict.fromkeys(kinds, MIB // 2))})
    MoeCache(cache_mib=32).check(_case("rtx-3090", alike))
    variable = "GGML_CUDA_MOE_CACHE_MIN_EXPERT_KB=512 "
    assert MoeCache(cache_mib=32).launch(_case("rtx-3090", alike)).line.startswith(variable)
    assert not MoeCache(cache_mib=256).launch(_case("rtx-3090", model)).environment
    with pytest.raises(Unsupported, match="its cache takes no BF16"):
        MoeCache(cache_mib=256).check(_case("rtx-3090", replace(model, quant="BF16+Q8_0")))


@pytest.mark.parametrize("gpus", [1, 2])
def test_moe_cache_leaves_its_reserve_of_every_gpu(gpus: int) -> None:
    case = _case(
        f"{gpus}x rtx-3090 + 256GiB" if gpus > 1 else "rtx-3090",
        model_of(90 * GIB, layers=30, n_experts=64, arch="qwen3moe"),
    )
    sized = MoeCache().sized(case)
    sized.check(case)
    held = {share.what: share.size_bytes for share in sized.memory(case) if share.where == "gpu"}
    assert held["cached experts"] == gpus * sized.cache_mib * MIB
    assert 0 <= case.gpu_bytes - sum(held.values()) - gpus * 3072 * MIB < gpus * MIB
    assert sized.launch(case).line.endswith(f" --fit off --moe-cache {sized.cache_mib}")


@pytest.mark.parametrize(("tier_gib", "from_storage"), [(0, 8), (1, 8), (2, 0)])
def test_crow_reads_only_what_its_tier_does_not_hold(tier_gib: int, from_storage: int) -> None:
    calls = one_layer([[0, 1], [2, 3], [0, 1], [2, 3]])  # of 16 experts of 100 MiB; two slots hit nothing
    timed = timed_by(Crow(slots=2, tier_gib=tier_gib), calls, _case())
    assert timed.work.misses.tolist() == [2, 2, 2, 2]
    if tier_gib == 1:  # the tier begins with the last 10 experts, and takes in the first four
        from_storage = 4
    assert timed.storage_bytes == from_storage * 100 * MIB


def test_crow_takes_half_of_the_ram() -> None:
    assert Crow().tier(_case()) == 32
    assert Crow().sized(_case()).slots == EXPERTS - 1  # with all of them it would load the whole model
    assert "--moe-stream-l2 32" in Crow().sized(_case()).launch(_case()).line
    with pytest.raises(TooLarge, match="of RAM"):
        Crow(slots=6, tier_gib=60).check(_case())
