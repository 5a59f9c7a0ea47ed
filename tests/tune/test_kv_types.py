"""Other types of keys and values: weighed at depth, and proposed where they are faster, with their line and memory."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.io.sections import Command
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.report.advice import sections
from flashmoe_sim.report.advice_json import document
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.compare import Compared
from flashmoe_sim.systems.resolve import parse_systems
from flashmoe_sim.systems.table import SYSTEMS
from flashmoe_sim.tune.kv_types import KvTypes, other_types
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.recommend import Recommendation, recommend
from tests.systems.cases import machine, workload

MODEL = load_model("qwen3-30b-a3b:q4_k_m")
PLAIN = tuple(parse_systems("all-gpu,placed,cpu"))
LARGE = machine("rtx-3090", gpu_gib=24, ram_gib=64)
TIGHT = machine("rtx-3090", gpu_gib=12, ram_gib=64)  # keys and values of 16 bits leave no room for a layer's experts
VULKAN = replace(LARGE, api="vulkan")


@cache
def routed() -> Workload:
    return workload(MODEL)


def case(on: Machine, *, depth: int = 65_536, kv_type: str = "f16") -> Case:
    size = MODEL.attention.context_bytes(depth or 4096, kv_type=kv_type)
    return Case(MODEL, on, size, depth or 4096, kv_type, leaves_spare=True, depth=depth)


@cache
def found(on: Machine, *, depth: int = 65_536, kv_type: str = "f16") -> Recommendation:
    return recommend(routed(), case(on, depth=depth, kv_type=kv_type), PLAIN)


def words(of: Recommendation) -> str:
    return "\n".join(
        part.line if isinstance(part, Command) else str(part) for one in sections(of)[:1] for part in one.parts
    )


@pytest.mark.parametrize("depth", [65_536, 98_304])
def test_cuda_stays_in_16_bits_where_they_fit(depth: int) -> None:
    """It unpacks a quantized cache for every query head, which costs more than the experts that then fit gain."""
    on = found(LARGE, depth=depth)
    assert on.kv_types.proposed is None
    assert [one.kv_type for one in on.kv_types.tried] == ["q8_0", "q4_0"]
    assert all(one.best.tok_s < on.best.best.tok_s for one in on.kv_types.tried)
    assert "Keys and values stay in f16: q8_0 would be" in words(on)
    assert "-ctk" not in words(on)


def test_where_16_bits_do_not_fit_8_are_proposed() -> None:
    """The line, the memory and the speed are those of the proposed type; the first line stays exact."""
    on = found(TIGHT, depth=131_072)
    better = on.kv_types.proposed
    assert (on.best.best.system.name, better.kv_type, better.best.system.name) == ("cpu", "q8_0", "placed")
    assert "-ctk" not in on.best.best.launch.line
    assert "-ctk q8_0 -ctv q8_0" in better.best.launch.line
    own = found(TIGHT, depth=131_072, kv_type="q8_0").best.best
    assert better.best.tok_s == pytest.approx(own.tok_s)
    assert (better.best.gpu_bytes, better.best.ram_bytes) == (own.gpu_bytes, own.ram_bytes)
    assert better.best.launch == own.launch
    assert "--kv-type q8_0 would be" in words(on)
    assert "it changes the text slightly" in words(on)
    assert document(on)["kv_types"]["proposed"] == "q8_0"


def test_a_given_type_is_weighed_against_16_bits_too() -> None:
    on = found(LARGE, kv_type="q8_0")
    better = on.kv_types.proposed
    assert (better.kv_type, better.best.system.name) == ("f16", "placed")
    assert "-ctk" not in better.best.launch.line
    assert "-ctk q8_0 -ctv q8_0" in on.best.best.launch.line
    assert "it no longer changes the text" in words(on)


@pytest.mark.parametrize(("depth", "kv_type"), [(65_536, "q8_0"), (131_072, "q4_0")])
def test_4_bits_only_if_they_gain_over_8(depth: int, kv_type: str) -> None:
    on = found(VULKAN, depth=depth)
    assert on.kv_types.proposed.kv_type == kv_type
    assert ("it changes the text slightly" in words(on)) == (kv_type == "q8_0")


def test_a_given_size_is_kept() -> None:
    """With 45 layers on the CPU, 8 bits stay there too, although more would fit on the GPU."""
    only = tuple(parse_systems("placed:cpu_layers=45"))
    on = recommend(routed(), case(TIGHT), only)
    assert [one.best.system for one in on.kv_types.tried] == [only[0]] * 2


def test_it_does_not_matter_at_an_empty_context_for_a_prompt_or_with_given_bytes() -> None:
    assert found(LARGE, depth=0).kv_types is None
    assert other(LARGE, objective=Objective(goal="prompt", prompt_tokens=64)) is None
    assert other(LARGE, kv_bytes=GIB) is None
    assert other(LARGE, model=replace(MODEL, attention=None)) is None
    assert other(LARGE, name="imp") is None


def other(on: Machine, *, name: str = "all-gpu", objective: Objective | None = None, **changes: Any) -> KvTypes | None:
    """What is found beside a system that runs."""
    of = replace(case(on), **changes)
    system = SYSTEMS[name]()
    return other_types(routed(), of, [system], Compared(system, tok_s=10.0), objective=objective)
