"""Systems side by side: sizing, the best setting, hit rates, borrowed traces, and what cannot run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.model import Attention, LayerCache
from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, TooLarge, UnknownName
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.machines.belief import Whose
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.systems.base import System
from flashmoe_sim.systems.borrow import borrow, bundled, lenders
from flashmoe_sim.systems.compare import GROUPS, NEAR, Compared, case_of, compare
from flashmoe_sim.systems.resolve import parse_systems, resolve
from flashmoe_sim.systems.slot_bank import SlotBank
from flashmoe_sim.systems.table import SYSTEMS, parse_system
from flashmoe_sim.timeline.from_replay import time_replay
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.verbs.compare import Compare, Comparison
from tests.systems.cases import case, machine, model, served_by, workload

EVERY = [kind() for kind in SYSTEMS.values()]


def by_name(rows: list[Compared]) -> dict[str, Compared]:
    return {row.system.name: row for row in rows}


def test_the_fastest_comes_first_and_what_cannot_run_last() -> None:
    small = case()
    rows = compare(workload(small.model), small, EVERY)
    speeds = [row.tok_s for row in rows if row.tok_s is not None]
    assert speeds == sorted(speeds, reverse=True)
    assert [row.tok_s is None for row in rows] == [bool(row.why_not) for row in rows]
    assert rows[-1].tok_s is None
    for row in rows[: len(speeds)]:
        assert row.tok_s_lo < row.tok_s < row.tok_s_hi
        assert set(row.ms_per_token) == set(GROUPS)
        assert sum(row.ms_per_token.values()) == pytest.approx(1e3 / row.tok_s)


def test_a_row_is_the_replay_of_its_system() -> None:
    small, of = case(), workload(case().model)
    (row,) = compare(of, small, [SlotBank(slots=8)])
    plan = SlotBank(slots=8).plan(small)
    replayed = replay(of, plan.setup, record=True)
    whose = Whose("slot-bank", "slot-bank", row.system.spec, small.model.base_name)
    timed = time_replay(of, replayed, plan.machine, plan.conditions(small), whose=whose)
    assert row.hit_rate == replayed.counts.total()["hit_rate"]
    assert row.tok_s == timed.speeds.tok_s
    assert (row.tok_s_lo, row.tok_s_hi) == pytest.approx((timed.tok_s_lo, timed.tok_s_hi))


def test_everything_on_the_gpu_hits_and_nothing_is_moved() -> None:
    small = case()
    row = by_name(compare(workload(small.model), small, EVERY))["all-gpu"]
    assert (row.hit_rate, row.miss_bytes_per_token, row.storage_bytes_per_token) == (1.0, 0.0, 0.0)
    assert row.gpu_bytes == sum(share.size_bytes for share in row.system.memory(small))


@pytest.mark.parametrize("name", ["m1-ultra-128", "m3-ultra-256", "m5-max-128", "strix-halo-128", "gb10-128"])
def test_small_steps_are_no_faster_on_the_cpu_than_on_the_gpu_beside_it(name: str) -> None:
    asked = Compare(model="qwen3.8-flash-next", machine=name, systems="all-gpu,cpu", hit_rate=1.0)
    rows = by_name(asked.run().rows)
    assert rows["cpu"].tok_s < rows["all-gpu"].tok_s


def test_best_is_the_smallest_setting_near_the_fastest() -> None:
    small, of = case(), workload(case().model)
    system = SlotBank()
    each = {size: compare(of, small, [replace(system, slots=size)])[0] for size in system.sizes(small)}
    fastest = max(row.tok_s or 0.0 for row in each.values())
    wanted = min(size for size, row in each.items() if (row.tok_s or 0.0) >= (1 - NEAR) * fastest)
    (best,) = compare(of, small, [system], best=True)
    assert best.system == SlotBank(slots=wanted)
    (own,) = compare(of, small, [system])
    assert own.system == SlotBank(slots=2)
    (given,) = compare(of, small, [SlotBank(slots=4)], best=True)
    assert given.system == SlotBank(slots=4)
    (other,) = compare(of, small, [SlotBank(io_split=2)], best=True)
    assert other.system == SlotBank(slots=wanted, io_split=2)
    assert SlotBank(slots=4).size_given
    assert parse_system("all-gpu").size_given


def test_a_hit_rate_instead_of_a_trace() -> None:
    small = case()
    rows = by_name(compare(None, small, EVERY, hit_rate=0.75))
    assert rows["slot-bank"].hit_rate == pytest.approx(0.75)
    assert rows["slot-bank"].miss_bytes_per_token == pytest.approx(0.25 * small.model.token_cycle_bytes())
    assert rows["all-gpu"].hit_rate == 1.0
    with pytest.raises(Conflict, match="give either a trace or a hit rate"):
        compare(None, small, EVERY)


def test_what_does_not_fit_is_told_from_what_cannot_run() -> None:
    small = case(gpu_gib=1)
    rows = by_name(compare(workload(small.model), small, parse_systems("all-gpu,flash-moe,cpu")))
    assert {name: row.code for name, row in rows.items()} == {"all-gpu": TooLarge.code, "flash-moe": "", "cpu": ""}
    assert rows["flash-moe"].why_not


def test_a_borrowed_trace_widens_what_misses_decide_and_nothing_else() -> None:
    small, of = case(), workload(case().model)
    systems: list[System] = [SlotBank(slots=4), parse_system("all-gpu"), parse_system("placed:cpu_layers=4")]
    own, lent = (by_name(compare(of, small, systems, borrowed=borrowed)) for borrowed in (False, True))
    assert (own["all-gpu"].tok_s_lo, own["all-gpu"].tok_s_hi) == (lent["all-gpu"].tok_s_lo, lent["all-gpu"].tok_s_hi)
    assert own["placed"].tok_s_lo == lent["placed"].tok_s_lo  # what the CPU computes is decided by the layers alone
    assert (own["slot-bank"].tok_s_lo or 0) > (lent["slot-bank"].tok_s_lo or 0)
    assert (own["slot-bank"].tok_s_hi or 0) < (lent["slot-bank"].tok_s_hi or 0)


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("gpt-oss-120b", ("gpt-oss-120b",)),
        ("gpt-oss-20b", ("gpt-oss-120b",)),
        ("deepseek-v2-lite", ("deepseek-v2-lite",)),
        ("glm-4.7-flash", ("deepseek-v2-lite",)),
        ("qwen3-30b-a3b", ("gpt-oss-120b", "deepseek-v2-lite")),  # whose recordings are short
        ("kimi-k2.5", ("gpt-oss-120b", "deepseek-v2-lite")),
    ],
)
def test_whom_a_trace_is_borrowed_from(model: str, names: tuple[str, ...]) -> None:
    assert lenders(load_model(model)) == names


def test_a_trace_is_borrowed_for_every_layer() -> None:
    model = load_model("olmoe-1b-7b")
    made, note = borrow(model)
    assert (made.trace.top_k, made.trace.layers, set(made.n_experts)) == (8, tuple(range(16)), {64})
    assert "no trace of olmoe-1b-7b:q4_k_m is at hand" in note


def test_the_bundled_trace_of_the_very_model_is_not_borrowed() -> None:
    model = load_model("gpt-oss-120b")
    on = resolve(workload=None, model=model, machine=load_machine("rtx-4090"))
    assert on.workload.trace.content_id == load_trace("gpt-oss-120b").content_id
    assert on.borrowed == ""
    assert "the bundled trace gpt-oss-120b is used" in on.notes[0]
    assert bundled(load_model("olmoe-1b-7b")) is None


def test_dense_weights_of_the_trace() -> None:
    small = case()
    bare = replace(small.model, dense_bytes=None)
    of = workload(small.model)
    with_dense = replace(of, trace=of.trace.with_(dense_bytes=dict.fromkeys(of.trace.layers, 7)))
    assert case_of(bare, small.machine, workload=with_dense).dense_bytes == 28
    with pytest.raises(Incomplete, match="does not record its dense weights"):
        case_of(bare, small.machine, workload=None)


def test_a_profile_of_the_very_trace_is_said() -> None:
    small = case()
    on = Compare(workload(small.model), machine=small.machine, systems="hot-cache:profile=all,all-gpu", kv=0)
    assert on.run().notes[-1] == "hot-cache: the profile comes from this very trace, which flatters it"


def compared(**asked: Any) -> Comparison:
    """Layers of 4 x (32 + 32) numbers of a token beside 1 GiB of dense weights, on a GPU of 8 GiB."""
    of = replace(model(), attention=Attention((LayerCache(4096, 4096),) * 4))
    on = machine(gpu_gib=8, ram_gib=32)
    return Compare(model=of, machine=on, systems="all-gpu", hit_rate=0.5, **asked).run()


def kept(found: Comparison) -> dict[str, int]:
    return {share.what: share.size_bytes for share in found.rows[0].system.memory(found.case)}


def command(found: Comparison) -> str:
    return found.rows[0].launch.line


def test_a_context_takes_memory() -> None:
    """A token takes 4 x 8192 x 2 bytes: 64 KiB."""
    found = compared()
    assert (
        found.notes[-1]
        == "room for a context of 4,096 tokens, 256 MiB; speeds are at an empty one; --context changes it"
    )
    assert kept(found)["context"] == 256 * MIB
    assert command(found) == "llama-server -m MODEL.gguf -c 4096 -ngl 99 -fa on -ub 512 -np 1"
    found = compared(context=16384)
    assert found.notes[-1] == "room for a context of 16,384 tokens, 1.00 GiB; speeds are at an empty one"
    assert kept(found)["context"] == GIB


def test_the_type_of_the_cache() -> None:
    found = compared(context=16384, kv_type="q8_0")
    assert found.notes[-1] == "room for a context of 16,384 tokens, 544 MiB in q8_0; speeds are at an empty one"
    assert kept(found)["context"] == 544 * MIB
    assert command(found) == "llama-server -m MODEL.gguf -c 16384 -ctk q8_0 -ctv q8_0 -ngl 99 -fa on -ub 512 -np 1"


def test_bytes_of_the_context_win_over_its_tokens() -> None:
    found = compared(context=16384, kv="2GiB")
    assert kept(found)["context"] == 2 * GIB
    assert "-c 16384" in command(found)
    assert not any("context" in note for note in found.notes)
    assert "-c" not in command(compared(kv="2GiB")).split()


def test_without_a_context() -> None:
    found = compared(context=0)
    assert (kept(found)["context"], command(found)) == (0, "llama-server -m MODEL.gguf -ngl 99 -fa on -ub 512 -np 1")
    assert not any("context" in note for note in found.notes)


def test_buffers_and_reserve_as_asked() -> None:
    before, after = compared(), compared(buffers="2GiB", reserve="4GiB")
    assert kept(after) == kept(before) | {"compute buffers": 2 * GIB}
    assert (before.case.ram_bytes, after.case.ram_bytes) == (31.5 * GIB, 28 * GIB)
    assert before.case.gpu_bytes == after.case.gpu_bytes


def test_a_model_that_does_not_tell_what_its_context_takes() -> None:
    small = case()
    found = Compare(model=small.model, machine=small.machine, hit_rate=0.5, systems="all-gpu").run()
    assert found.notes[-1] == "the context counts as no memory; give its size, such as --kv 2GiB"
    assert found.case.context == 0


def test_words_for_systems() -> None:
    assert parse_systems("slot-bank:slots=8, all-gpu,slot-bank:slots=8") == [SlotBank(slots=8), SYSTEMS["all-gpu"]()]
    assert parse_systems("all") == EVERY
    assert parse_systems(SlotBank()) == [SlotBank()]
    with pytest.raises(UnknownName, match="unknown system 'slotbank'; did you mean 'slot-bank'"):
        parse_systems("slotbank")
    with pytest.raises(Incomplete, match="no systems given"):
        parse_systems([])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": None}, "give --model with one or several names of `sim model list`, such as --model gpt-oss-20b,"),
        ({"hit_rate": 1.5}, r"--hit-rate 1\.5; expected 0 to 1"),
        ({"hit_rate": 0.5, "best": True}, "with one hit rate for every setting"),
        ({"kv": "much"}, "--kv 'much': expected a size with its unit"),
        ({"context": -1}, "--context -1; expected a number of tokens from 0"),
        ({"context": 512}, "--context 512: small does not give the size of a context; give it, such as --kv 2GiB"),
        ({"kv_type": "q8"}, "unknown --kv-type 'q8'; did you mean 'q8_0'"),
        ({"buffers": "much"}, "--buffers 'much': expected a size with its unit"),
        ({"reserve": "9999GiB"}, "--reserve 9.76 TiB: rtx-3090 has 64 GiB of RAM; give less"),
        ({"systems": "placed", "machine": load_machine("laptop-ddr4")}, "laptop-ddr4: no system can run small there"),
    ],
)
def test_what_cannot_be_compared(given: dict[str, object], message: str) -> None:
    asked: dict[str, Any] = {"model": case().model, "machine": machine(), "hit_rate": 0.5} | given
    with pytest.raises(BadInput, match=message):
        Compare(**asked).run()


@pytest.mark.parametrize("ram_gib", [6, 7, 8, 64])
@pytest.mark.parametrize("name", [name for name, kind in SYSTEMS.items() if not kind.caches])
def test_what_ram_holds_is_read_once_and_never_again(name: str, ram_gib: int) -> None:
    """Only the experts that a system keeps in RAM need room there, however large the file is."""
    on = case(gpu_gib=6, ram_gib=ram_gib, layers=range(40), experts=64)  # 10 GiB of experts
    on = replace(on, model=served_by(SYSTEMS[name](), on.model))
    (row,) = compare(workload(on.model), on, [SYSTEMS[name]()])
    if row.tok_s is None or row.system.plan(on).direct_io:
        return
    held = row.ram_bytes + row.mapped_bytes
    if held <= on.ram_bytes:
        assert row.storage_bytes_per_token == 0
        assert row.ms_per_token["read"] == 0


def test_a_file_larger_than_ram_is_as_fast_if_its_layers_on_the_cpu_fit() -> None:
    for system in ("placed", "placed-ik"):
        speeds = []
        for ram_gib in (64, 192):
            on = replace(load_machine("rtx-3090"), memory=machine("rtx-3090", ram_gib=ram_gib).memory)
            asked = Compare(model="qwen3.5-122b-a10b", machine=on, systems=system)
            speeds.append(asked.run().rows[0].tok_s)
        assert speeds[0] == pytest.approx(speeds[1], rel=1e-6)
