"""The slot bank: settings, memory, flags and variables, and that its replay is the runtime's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.residency.workload import prepare
from flashmoe_sim.systems.base import BUFFERS_BYTES, Case
from flashmoe_sim.systems.compare import Compared, compare
from flashmoe_sim.systems.slot_bank import SlotBank
from flashmoe_sim.timeline.timed import Timed, time_replay
from tests.residency.builders import Call, trace_of
from tests.systems.cases import case, model, workload


def test_the_default_bank_has_a_slot_for_each_expert_of_a_token() -> None:
    assert SlotBank().sized(case()) == SlotBank(slots=2)
    assert SlotBank(top_k=1).sized(case()) == SlotBank(slots=1, top_k=1)
    assert SlotBank(slots=7).sized(case()) == SlotBank(slots=7)
    assert SlotBank().sizes(case()) == [2, 4, 6, 8, 12, 16]


@pytest.mark.parametrize(
    ("name", "where", "buffers"), [("rtx-3090", "gpu", 1), ("m3-max-48", "gpu", 0), ("laptop-ddr4", "ram", 0)]
)
def test_where_the_bank_is(name: str, where: str, buffers: int) -> None:
    shares = SlotBank(slots=8).memory(case(name))
    assert {one.where for one in shares} == {where}
    assert sum(one.size_bytes for one in shares) == 8 * 4 * 4 * MIB + GIB + buffers * BUFFERS_BYTES


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
    system = SlotBank(mode=mode, slots=8 if "slot" in mode else 0)
    assert system.launch(case()).line == f"llama-cli -m MODEL.gguf --moe-mode {mode} {words}"


def test_a_resident_bank_has_all_experts_and_misses_none() -> None:
    system, small = SlotBank(mode="resident-bank").sized(case()), case()
    assert sum(one.size_bytes for one in system.memory(small)) == GIB + BUFFERS_BYTES + small.model.routed_bytes
    (row,) = compare(workload(small.model), small, [system], best=True)
    assert (row.hit_rate, row.miss_bytes_per_token) == (1, 0)
    with pytest.raises(BadInput, match="of the GPU"):
        system.check(case(gpu_gib=2, experts=160))
    large = case(gpu_gib=99, experts=16 * 160)
    assert system.why_not(large) == "40.0 GiB of experts; resident-bank refuses more than 32, see mode=resident"
    assert SlotBank(mode="resident").why_not(large) == ""


def test_packed_experts_are_copied_from_ram() -> None:
    """Each miss is 4 MiB at the speed of copies, then uploaded; nothing is read from storage, not even the first."""
    small, system = case(), SlotBank(mode="resident-slot-bank", slots=2)
    assert (system.memory(small)[-1].where, system.memory(small)[-1].size_bytes) == ("ram", small.model.routed_bytes)
    of, plan = workload(small.model), system.plan(small)
    replayed = system.replay(of, plan.setup)
    timed = time_replay(of, plan.setup, replayed, plan.machine, plan.conditions(small), interval=False)
    assert plan.machine.memory is not None
    copied_s = int(timed.work.misses.sum()) * 4 * MIB / (plan.machine.memory.copy_gb_s.value * 1e9)
    assert timed.storage_bytes == 0
    assert timed.timing.part_ms_per_token["read"] * of.trace.tokens / 1e3 == pytest.approx(copied_s)
    streamed = SlotBank(slots=2).plan(small)
    assert np.array_equal(timed.work.misses, SlotBank(slots=2).replay(of, streamed.setup).stream.misses)  # type: ignore[union-attr]
    with pytest.raises(BadInput, match="of RAM"):
        system.check(case(ram_gib=0.6))


def test_asynchronous_uploads_hide_behind_the_next_read() -> None:
    """Each family is uploaded while the next is read, which takes longer; the last one of a call is waited for."""
    small = case()
    of = workload(small.model)

    def timed(install: str) -> Timed:
        system = SlotBank(slots=2, install=install)
        plan = system.plan(small)
        replayed = system.replay(of, plan.setup)
        return time_replay(of, plan.setup, replayed, plan.machine, plan.conditions(small), interval=False)

    waiting, beside = timed("default"), timed("async")
    last_s = float(beside.costs.family_upload_s[0, -1])
    calls = int(np.count_nonzero(beside.work.misses))
    parts, others = beside.timing.part_ms_per_token, waiting.timing.part_ms_per_token
    assert {name: parts[name] for name in parts if name != "upload"} == pytest.approx(
        {name: others[name] for name in others if name != "upload"}
    )
    assert 0 < parts["upload"] * of.trace.tokens / 1e3 == pytest.approx(calls * last_s)
    assert SlotBank(install="async").why_not(case("m3-max-48")) == "install=async needs a GPU with a memory of its own"


def test_a_prompt_is_routed_in_micro_batches_whose_union_the_slots_must_hold() -> None:
    """Tokens 1 and 2 of the prompt use 0 to 3, token 3 uses 4 and 5."""
    calls: list[Call] = [(0, [0, 1, 2, 3, 4, 5], 3), (0, [0, 1], 1)]
    trace = trace_of(calls, 16).with_(top_k=2, phase=np.array([1, 2], np.uint8))
    of = prepare(trace, model(layers=range(1)))
    small = Case(model(layers=range(1)), case().machine)

    def row(ubatch: int, slots: int) -> Compared:
        return compare(of, small, [SlotBank(slots=slots, ubatch=ubatch)])[0]

    assert row(0, 2).why_not == row(1, 2).why_not == row(2, 4).why_not == ""
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
    assert system.plan(case()).execution.name == execution
    assert len(system.launch(case()).environment) == variables


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"slots": -1}, "expected 0 or more"),
        ({"ubatch": -1}, "expected 0 or more"),
        ({"mode": "stock"}, "unknown mode of slot-bank 'stock'"),
        ({"mode": "resident", "slots": 8}, "resident has no slots"),
        ({"mode": "resident-bank", "prefetch": "temporal"}, "resident-bank has no slots"),
        ({"mode": "resident-slot-bank", "install": "batched"}, "resident-slot-bank reads nothing"),
        ({"io_split": 9}, "io_split 9; expected 1 to 8"),
        ({"prefetch": "oracle"}, "unknown prefetch of slot-bank 'oracle'"),
        ({"install": "magic"}, "unknown install of slot-bank 'magic'"),
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


def test_fewer_experts_a_token_are_cut_from_the_trace() -> None:
    of = workload(case().model)
    assert SlotBank(top_k=1).prepared(of).trace.top_k == 1
    assert SlotBank().prepared(of) is of
