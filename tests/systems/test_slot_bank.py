"""The slot bank: settings, memory, flags and variables, and that its replay is the runtime's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flashmoe_sim.io.errors import BadInput, TooLarge
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.residency.workload import prepare
from flashmoe_sim.systems.base import BUFFERS_BYTES, Case
from flashmoe_sim.systems.compare import Compared, compare
from flashmoe_sim.systems.slot_bank import SlotBank
from flashmoe_sim.timeline.assemble import page_cache_bytes
from flashmoe_sim.timeline.from_replay import Timed, time_replay
from tests.residency.builders import Call, trace_of
from tests.systems.cases import case, model, workload


def test_the_default_bank_has_a_slot_for_each_expert_of_a_token() -> None:
    assert SlotBank().sized(case()) == SlotBank(slots=2)
    assert SlotBank(top_k=1).sized(case()) == SlotBank(slots=1, top_k=1)
    assert SlotBank(slots=7).sized(case()) == SlotBank(slots=7)
    assert SlotBank().sizes(case()) == [2, 4, 6, 8, 12, 16]


@pytest.mark.parametrize(
    ("name", "arch", "slots", "rest"),
    [
        ("rtx-3090", "qwen35moe", "ram", "gpu"),
        ("rtx-3090", "gemma4", "gpu", "gpu"),
        ("strix-halo-128", "qwen35moe", "ram", "gpu"),
        ("m3-max-48", "qwen35moe", "gpu", "gpu"),
        ("laptop-ddr4", "qwen35moe", "ram", "ram"),
    ],
)
def test_where_the_bank_is(name: str, arch: str, slots: str, rest: str) -> None:
    bank, *others = SlotBank(slots=8).memory(replace(case(name, arch=arch), buffers_bytes=3 * GIB))
    assert (bank.where, bank.size_bytes) == (slots, 8 * 4 * 4 * MIB)
    assert {one.where for one in others} == {rest}
    assert sum(one.size_bytes for one in others) == (1 + 3) * GIB


def timed(system: SlotBank, small: Case) -> Timed:
    of, plan = workload(small.model), system.plan(small)
    replayed = system.replay(of, plan.setup)
    return time_replay(of, replayed, plan.machine, plan.conditions(small), interval=False)


@pytest.mark.parametrize("install", ["default", "batched"])
def test_the_cpu_computes_the_experts_of_a_bank_in_ram(install: str) -> None:
    """4 MiB each at the speed of the CPU, beside dense weights at the GPU's; nothing is uploaded, and the page cache
    has what the bank leaves of RAM."""
    small = case(arch="gemma4")
    in_ram, on_gpu = SlotBank(slots=4, install=install, host_bank=True), SlotBank(slots=4, install=install)
    one, other = timed(in_ram, small), timed(on_gpu, small)
    parts, others = one.timing.part_ms_per_token, other.timing.part_ms_per_token
    tokens = workload(small.model).trace.tokens
    computed_s = int(one.work.requests.sum()) * 4 * MIB / (small.machine.cpu.weights_gb_s.value * 1e9)
    assert parts["experts"] * tokens / 1e3 == pytest.approx(computed_s)
    assert parts["experts"] > others["experts"]
    assert parts["dense"] == pytest.approx(others["dense"])
    assert parts["upload"] == 0 < others["upload"]
    assert np.array_equal(one.work.misses, other.work.misses)
    of, plan = workload(small.model), in_ram.plan(small)
    room = page_cache_bytes(of, plan.setup, in_ram.replay(of, plan.setup), plan.machine, plan.conditions(small))
    assert room == small.ram_bytes - 4 * 4 * 4 * MIB
    assert in_ram.launch(small).environment["LLAMA_FLASH_MOE_DISABLE_GPU_BANK"] == "1"
    assert "LLAMA_FLASH_MOE_DISABLE_GPU_BANK" not in on_gpu.launch(small).environment


def test_flags() -> None:
    on_gpu, given = replace(case(), context=4096), SlotBank(slots=8, top_k=1, prefetch="temporal", io_split=2)
    assert given.launch(on_gpu).line == (
        "llama-cli -m MODEL.gguf -c 4096 --moe-mode slot-bank --moe-sidecar SIDECAR --moe-slot-bank 8 --moe-topk 1 "
        "--moe-cache-io-split 2 --moe-prefetch-temporal -ngl 99 -ub 1"
    )
    assert "-ngl 0" in SlotBank(slots=8).launch(case("laptop-ddr4")).line


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("resident-slot-bank", "--moe-sidecar SIDECAR --moe-slot-bank 8 -ngl 99 -ub 1"),
        ("resident-bank", "--moe-sidecar SIDECAR -ngl 99 -ub 512"),
        ("resident", "-ngl 99 -ub 512"),
    ],
)
def test_modes(mode: str, words: str) -> None:
    system = SlotBank(mode=mode, slots=8 if "slot" in mode else None)
    assert system.launch(case()).line == f"llama-cli -m MODEL.gguf --moe-mode {mode} {words}"


def test_a_resident_bank_has_all_experts_and_misses_none() -> None:
    system, small = SlotBank(mode="resident-bank").sized(case()), case()
    assert sum(one.size_bytes for one in system.memory(small)) == GIB + BUFFERS_BYTES + small.model.routed_bytes
    (row,) = compare(workload(small.model), small, [system], best=True)
    assert (row.hit_rate, row.miss_bytes_per_token) == (1, 0)
    with pytest.raises(TooLarge, match="of the GPU"):
        system.check(case(gpu_gib=2, experts=160))
    large = case(gpu_gib=99, experts=16 * 160)
    assert system.why_not(large) == "40.0 GiB of experts; resident-bank refuses more than 32, see mode=resident"
    assert SlotBank(mode="resident").why_not(large) == ""


def test_packed_experts_are_copied_from_ram() -> None:
    """Each miss is 4 MiB at the speed of copies, then uploaded; nothing is read from storage, not even the first."""
    small, system = case(arch="gemma4"), SlotBank(mode="resident-slot-bank", slots=2)
    assert (system.memory(small)[-1].where, system.memory(small)[-1].size_bytes) == ("ram", small.model.routed_bytes)
    packed, streamed = timed(system, small), timed(SlotBank(slots=2), small)
    copied_s = int(packed.work.misses.sum()) * 4 * MIB / (small.machine.memory.copy_gb_s.value * 1e9)
    assert packed.storage_bytes == 0 < streamed.storage_bytes
    assert packed.timing.part_ms_per_token["read"] * workload(small.model).trace.tokens / 1e3 == pytest.approx(copied_s)
    assert packed.timing.part_ms_per_token["upload"] > 0
    assert timed(SlotBank(mode="resident-slot-bank", slots=2), case()).timing.part_ms_per_token["upload"] == 0
    assert np.array_equal(packed.work.misses, streamed.work.misses)
    with pytest.raises(TooLarge, match="of RAM"):
        system.check(case(ram_gib=0.6))


def test_asynchronous_uploads_hide_behind_the_next_read() -> None:
    """Each family is uploaded while the next is read, which takes longer; the last one of a call is waited for."""
    small = case(arch="gemma4")
    waiting, beside = (timed(SlotBank(slots=2, install=install), small) for install in ("default", "async"))
    last_s = float(beside.costs.family_upload_s[0, -1])
    calls = int(np.count_nonzero(beside.work.misses))
    parts, others = beside.timing.part_ms_per_token, waiting.timing.part_ms_per_token
    assert {name: parts[name] for name in parts if name != "upload"} == pytest.approx(
        {name: others[name] for name in others if name != "upload"}
    )
    assert 0 < parts["upload"] * workload(small.model).trace.tokens / 1e3 == pytest.approx(calls * last_s)
    for other in (case(), case("m3-max-48")):
        assert "install=async needs slots in a GPU's own memory" in SlotBank(install="async").why_not(other)


def test_a_prompt_is_routed_in_micro_batches_whose_union_the_slots_must_hold() -> None:
    """Tokens 1 and 2 of the prompt use 0 to 3, token 3 uses 4 and 5."""
    calls: list[Call] = [(0, [0, 1, 2, 3, 4, 5], 3), (0, [0, 1], 1)]
    trace = trace_of(calls, 16).with_(top_k=2, phase=np.array([1, 2], np.uint8))
    of = prepare(trace, model(layers=range(1)))
    small = Case(model(layers=range(1)), case().machine)

    def row(ubatch: int | None, slots: int) -> Compared:
        return compare(of, small, [SlotBank(slots=slots, ubatch=ubatch)])[0]

    assert row(None, 2).why_not == row(1, 2).why_not == row(2, 4).why_not == ""
    assert "asks for 4 distinct experts and a bank holds 3" in row(2, 3).why_not
    assert "asks for 6 distinct experts and a bank holds 4" in row(3, 4).why_not


@pytest.mark.parametrize(
    ("install", "io_split", "execution", "variables"),
    [
        ("default", 4, "split-install", 0),
        ("async", 4, "split-install", 1),
        ("batched", 4, "parallel-install", 2),
        ("futures", 1, "async-upload", 1),
    ],
)
def test_install_paths(install: str, io_split: int, execution: str, variables: int) -> None:
    system = SlotBank(slots=8, install=install, io_split=io_split)
    assert system.plan(case(arch="gemma4")).execution.name == execution
    assert len(system.launch(case()).environment) == variables


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"slots": -1}, "slots=-1 is not in 1.."),
        ({"ubatch": -1}, "ubatch=-1 is not in 1.."),
        ({"mode": "stock"}, "mode='stock' is not one of"),
        ({"mode": "resident", "slots": 8}, "resident has no slots"),
        ({"mode": "resident-bank", "prefetch": "temporal"}, "resident-bank has no slots"),
        ({"mode": "resident-slot-bank", "install": "batched"}, "resident-slot-bank reads nothing"),
        ({"io_split": 9}, "io_split=9 is not in 1..8"),
        ({"prefetch": "oracle"}, "prefetch='oracle' is not one of"),
        ({"install": "magic"}, "install='magic' is not one of"),
        ({"install": "futures"}, "install=futures needs io_split=1"),
    ],
)
def test_settings_that_cannot_be(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        SlotBank(**given)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"slots": 17}, "17 slots; small has 16 experts a layer"),
        ({"slots": 1}, "1 slots; a token routes 2 experts, and each needs a slot"),
        ({"top_k": 3}, "top_k 3; small routes 2 experts a token"),
    ],
)
def test_settings_that_the_model_does_not_allow(given: dict[str, Any], reason: str) -> None:
    assert SlotBank(**given).why_not(case()) == reason


@pytest.mark.parametrize("mode", ["slot-bank", "resident-slot-bank"])
def test_slots_are_refused_for_a_model_that_the_program_does_not_stream(mode: str) -> None:
    reason = "streams deepseek2, gemma4, glm-dsa, mistral4, qwen35moe, qwen3next, not gpt-oss; see mode=resident"
    assert SlotBank(mode=mode).why_not(case(arch="gpt-oss")) == reason
    branch = "not minimax-m2; its branch DeepSeek-V4-SSD-CUDA (bd11bd13a) does; see mode=resident"
    assert SlotBank(mode=mode).why_not(case(arch="minimax-m2")).endswith(branch)
    assert SlotBank(mode=mode).why_not(case(arch="gemma4")) == ""
    assert SlotBank(mode=mode).why_not(case(arch="")) == ""


@pytest.mark.parametrize("mode", ["resident-bank", "resident"])
def test_a_mode_without_slots_runs_any_model(mode: str) -> None:
    assert SlotBank(mode=mode).why_not(case(arch="gpt-oss")) == ""


def test_fewer_experts_a_token_are_cut_from_the_trace() -> None:
    of = workload(case().model)
    assert SlotBank(top_k=1).prepared(of).trace.top_k == 1
    assert SlotBank().prepared(of) is of
