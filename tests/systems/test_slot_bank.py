"""The slot bank: settings, memory, flags and variables, and that its replay is the runtime's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.systems.base import BUFFERS_BYTES
from flashmoe_sim.systems.slot_bank import SlotBank
from tests.systems.cases import case, workload


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
        "--moe-cache-io-split 2 --moe-prefetch-temporal -ngl 99 --fit off -ub 1"
    )
    assert "-ngl" not in SlotBank(slots=8).launch(case("laptop-ddr4")).line


@pytest.mark.parametrize(
    ("install", "io_split", "execution", "variables"),
    [
        ("default", 4, "split-install", 0),
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
