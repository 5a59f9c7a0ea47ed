"""Sizes that the engine's README advises, against what the model's bytes and `pick` say of the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.systems.borrow import borrow
from flashmoe_sim.systems.compare import Compared, case_of
from flashmoe_sim.systems.slot_bank import SlotBank
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.proof import pick
from flashmoe_sim.tune.recommend import Recommendation, recommend
from reports.fidelity import kimi_bank, qwen_bank
from reports.fidelity.from_table import fitted, table

QWEN = table(qwen_bank.BANK)
KIMI = table(kimi_bank.BANK)
BREAKDOWN = next(row for row in KIMI if row["bank"] == kimi_bank.ANCHOR)


def picked(speeds: Mapping[int, float], model: ModelGeometry) -> int:
    """The bank that `pick` takes of banks and their tokens a second."""
    tried = [
        Compared(SlotBank(slots=bank), gpu_bytes=model.bank_bytes(bank), ram_bytes=0, tok_s=tok_s)
        for bank, tok_s in speeds.items()
    ]
    found = pick(tried, Objective())
    assert isinstance(found.system, SlotBank)
    return found.system.slots


def published(rows: list[dict[str, str]]) -> dict[int, float]:
    return {int(row["bank"]): float(row["decode_tok_s"]) for row in rows}


@pytest.mark.parametrize("row", table("anemll_bank_memory"), ids=lambda row: f"bank{row['bank']}")
def test_the_sizing_table_is_slots_of_every_layer(row: dict[str, str]) -> None:
    """920 KiB a slot, of 40 layers; the table prints one digit."""
    model = load_model("qwen3.5-35b-a3b:ud-iq2_m")
    assert f"{model.bank_bytes(int(row['bank'])) / GIB:.1f}" == row["memory_gib"]
    assert model.bank_bytes(1) / len(model.layers) == 920 * 1024


@pytest.mark.parametrize("anchor", QWEN, ids=lambda row: f"bank{row['bank']}")
def test_the_sweet_spot_of_qwen(anchor: dict[str, str]) -> None:
    """The README calls 64 to 128 the sweet spot. Fitted on stock and any one row of the table, 64 is picked."""
    machine = qwen_bank.fit_on(anchor).machine
    speeds = {int(row["bank"]): qwen_bank.run_of(row, qwen_bank.TOP_K).tok_s(machine) for row in QWEN}
    assert picked(speeds, load_model(qwen_bank.MODEL)) == 64


def test_published_speeds_of_qwen_alone_pick_another_bank() -> None:
    """256 is published 3.6% faster than 64, though it installs the same as 128: noise that no prediction repeats.

    As published it is taken, as nothing else is within 3%. Without it 32 is: 2.4% slower than 64 with half the bytes.
    """
    speeds, model = published(QWEN), load_model(qwen_bank.MODEL)
    assert 1 - speeds[64] / speeds[256] == pytest.approx(0.036, abs=0.001)
    assert picked(speeds, model) == 256
    del speeds[256]
    assert 1 - speeds[32] / speeds[64] == pytest.approx(0.024, abs=0.001)
    assert picked(speeds, model) == 32


@pytest.mark.parametrize("anchor", KIMI, ids=lambda row: f"bank{row['bank']}")
def test_the_best_balance_of_kimi(anchor: dict[str, str]) -> None:
    """The README calls 64 the best balance; fitted on any row and the breakdown of bank 64, it is picked."""
    measured = {kimi_bank.run_of(anchor): float(anchor["decode_tok_s"])}
    machine = fitted(kimi_bank.machine_with_reads(BREAKDOWN), ("cpu.layer_us",), measured)
    speeds = {int(row["bank"]): kimi_bank.run_of(row).tok_s(machine) for row in KIMI}
    model = load_model(kimi_bank.MODEL)
    assert picked(speeds, model) == picked(published(KIMI), model) == 64


@cache
def on_a_small_mac(top_k: int | None) -> Recommendation:
    model, machine = load_model("qwen3.5-35b-a3b:ud-iq2_m"), load_machine("m1-8")
    workload, _ = borrow(model)
    case = case_of(model, machine, workload=workload)
    return recommend(workload, case, [SlotBank(top_k=top_k)], borrowed=True)


def speeds_on_a_small_mac(top_k: int | None) -> dict[int, float]:
    tried = [(one.system, one.tok_s) for one in on_a_small_mac(top_k).best.tried]
    return {system.slots: tok_s for system, tok_s in tried if isinstance(system, SlotBank) and tok_s is not None}


@pytest.mark.parametrize("top_k", [4, None], ids=["top_k 4", "all 8 experts"])
def test_few_slots_are_advised_for_8_gb(top_k: int | None) -> None:
    """The README advises 8 to 16 slots on 8 GB: the fastest size is one of them, and no more than that is advised.

    A slot takes its RAM from the page cache, which then serves fewer misses, but a hit in a slot needs no copy.
    """
    speeds = speeds_on_a_small_mac(top_k)
    assert 8 <= max(speeds, key=lambda slots: speeds[slots]) <= 16
    slots = on_a_small_mac(top_k).best.best.system.slots  # type: ignore[attr-defined]
    assert slots <= 16 < max(speeds)


def test_memory_bounds_the_slots_on_8_gb() -> None:
    """64 slots, which the README advises from 32 GB on, do not fit beside weights and buffers."""
    sizes = on_a_small_mac(4).sizes
    assert "slots=64" in sizes.refused.system.spec
    assert "of the GPU" in sizes.refused.why_not
