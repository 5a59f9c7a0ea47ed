"""Facts on engines: every one has a source, and they decide who runs what."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from flashmoe_sim.geometry.graph import Graph
from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.named import model_names, named_models
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.compare import compare
from flashmoe_sim.systems.facts import GROUPED, REFUSED, STATUSES, engine_file, engine_names, facts_of
from flashmoe_sim.systems.hot_cache_flags import ARCHS
from flashmoe_sim.systems.slot_bank_flags import STREAMED
from flashmoe_sim.systems.table import SYSTEMS, parse_system
from tests.systems.cases import case, workload
from tests.systems.cases import model as small

COMMIT = re.compile(
    r"@[0-9a-f]{6,9}|commit [0-9a-f]{6,9}|#\d+|patch:\d|as llama\.cpp, its base|LICENSE of|README|ls-tree"
)


@pytest.mark.parametrize("name", engine_names())
def test_every_fact_names_where_it_was_read(name: str) -> None:
    facts = facts_of(name)
    assert facts.name == name
    always = (facts.state, facts.licence, facts.platform, facts.formats, facts.archs)
    for part in (*always, facts.graph, facts.shape, facts.reported):
        assert part is None or COMMIT.search(part.source), part
    assert facts.state.date <= facts.looked_up
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", facts.state.date)
    assert set(facts.archs.status.values()) <= set(STATUSES)
    assert COMMIT.search(facts.get.source)


def test_every_system_has_an_engine_and_every_engine_a_system() -> None:
    assert {kind.program for kind in SYSTEMS.values()} == set(engine_names())
    declared = [name for engine in engine_names() for name in engine_file(engine, "")[1]["systems"]]
    assert sorted(declared) == sorted(SYSTEMS)


def test_programs_that_start_an_engine_know_the_same_architectures() -> None:
    assert set(ARCHS) == set(facts_of("hot-cache").archs.served)
    streamed = {name.removesuffix(GROUPED) for name in facts_of("slot-bank").archs.served}
    assert streamed == set(STREAMED) - {"mistral4"}  # an architecture without a named model


def test_models_that_differ_from_their_architecture_are_known() -> None:
    for name in engine_names():
        assert set(facts_of(name).models) <= set(model_names())


def why_not(system: str, model: str, machine: str) -> str:
    return parse_system(system).why_not(Case(load_model(model), load_machine(machine)))


IGNORED = "takes GPU memory for its cache, which the graph of {} never uses"


@pytest.mark.parametrize(
    ("system", "model", "machine", "reason"),
    [
        # flags without effect
        ("static-profile", "gpt-oss-20b", "rtx-3060", IGNORED.format("gpt-oss")),
        ("static-profile", "gemma-4-26b-a4b", "rtx-3060", "accepts its flags, and computes gemma4 as"),
        ("static-profile", "qwen3.5-35b-a3b", "rtx-3060", ""),
        ("static-profile", "kimi-k2", "rtx-4090 + 512GiB", ""),
        ("hot-cache", "deepseek-v3", "rtx-4090 + 512GiB", IGNORED.format("deepseek2")),
        # no such architecture
        ("big-moe-on-edge", "glm-4.6", "m1-ultra-128", "does not run glm4moe; it serves qwen3moe"),
        ("slot-bank", "gpt-oss-120b", "m3-max-48", "streams deepseek2"),
        ("slot-remap", "deepseek-v3", "strix-halo-128", "computes deepseek2 wrongly"),
        # formats
        (
            "ktransformers",
            "glm-4.5-air",
            "2x rtx-3090 + epyc-9354 + 256GiB",
            "only, not q4_k_m; give --model glm-4.5-air:int4, ",
        ),
        ("ktransformers", "glm-4.5-air:bf16", "2x rtx-3090 + epyc-9354 + 256GiB", ""),
        ("placed", "gemma-4-26b-a4b:mlx-4bit", "rtx-3090", "reads GGUF, not mlx"),
        ("turbofieldfare", "gemma-4-26b-a4b", "m2-16", "give --model gemma-4-26b-a4b:mlx-4bit, "),
        ("turbofieldfare", "gemma-4-26b-a4b:mlx-4bit", "m2-16", ""),
        ("ds4", "deepseek-v4-flash:q4_k_m", "m5-max-128", "loads ds4-q2, ds4-q4 or mxfp4 only"),
        ("ds4", "deepseek-v4-flash:ds4-q2", "4x v100-32gb + 128GiB", ""),
        ("ds4", "deepseek-v4-flash:ds4-q2", "2x rtx-3090 + 64GiB", "reads experts from storage on one GPU only"),
        (
            "ds4:experts=512",
            "deepseek-v4-flash:ds4-q2",
            "4x v100-32gb + 128GiB",
            "reads experts from storage on one GPU",
        ),
        (
            "ds4",
            "deepseek-v4-flash:ds4-q2",
            "rtx-3090 + rtx-4090 + 64GiB",
            "is known for equal GPUs only; the machine has",
        ),
        ("ds4", "deepseek-v4-flash:ds4-q2", "2x rx-7900-xtx + 64GiB", "is known for one GPU only with rocm"),
        ("ds4", "deepseek-v4-flash:ds4-q2", "arc-b580 + 64GiB", "needs metal or cuda or rocm; the machine has"),
        ("ds4", "deepseek-v4-flash:ds4-q2", "laptop-ddr4", "needs a GPU"),
        ("ds4", "deepseek-v4-flash:ds4-q2", "rtx-3090 + 64GiB + windows", "runs on macOS or Linux only"),
        (
            "ds4:inert=true",
            "deepseek-v4-flash:ds4-q2",
            "strix-halo-128",
            "inert=true is of builds with CUDA; leave it out",
        ),
        ("ds4", "glm-5.3-flash:ds4-q4", "gb10-128", "computes no experts of GLM in ds4-q4 with CUDA"),
        ("ds4", "glm-5.3-flash:ds4-q4", "strix-halo-128", ""),
        ("moe-cache", "gpt-oss-120b", "rx-9070-xt + 64GiB", "needs cuda"),
        ("moe-cache", "gpt-oss-120b", "gtx-1080-ti + 64GiB", "compute capability 7.0 or more; this GPU has 6.1"),
        ("slotstream", "qwen3.8-flash-next:mlx-4bit", "m5-pro-48", ""),
        ("slotstream", "qwen3.8-flash-next", "m5-pro-48", "give --model qwen3.8-flash-next:mlx-4bit, "),
        # generations, sizes and systems of machines
        ("imp", "qwen3-30b-a3b", "rtx-4090", "compute capability 12.0 or more; this GPU has 8.9"),
        ("crow", "qwen3-30b-a3b", "rtx-3060", "needs a GPU with 16 GB; its installer refuses less"),
        ("crow", "qwen3-30b-a3b", "rtx-4090 + 64GiB + linux", "runs on Windows only"),
        ("crow:slots=8", "kimi-k2", "rtx-4090 + 512GiB", "8 slots; the engine needs at least 24, 3 for each of the 8"),
    ],
)
def test_what_an_engine_cannot_do_is_its_reason(system: str, model: str, machine: str, reason: str) -> None:
    found = why_not(system, model, machine)
    assert found.startswith(reason) or reason in found
    assert bool(found) == bool(reason)


def test_a_file_can_differ_from_its_architecture() -> None:
    on = case()
    for graph, what in (
        (Graph(fused=True), "a file with gate and up in one tensor"),
        (Graph(scales=True), "a file with a scale for each expert"),
        (Graph(biases=True), "experts with biases"),
        (Graph(activation="gelu"), "experts with gelu"),
    ):
        of = Case(replace(on.model, graph=graph), on.machine)
        assert parse_system("static-profile").why_not(of) == IGNORED.format(what)
    assert parse_system("static-profile").why_not(on) == ""


def test_an_architecture_that_no_table_has_leaves_llama_cpp_alone() -> None:
    on = case(arch="neverseen")
    served = [name for name in SYSTEMS if not parse_system(name).why_not(on)]
    assert set(served) <= {"all-gpu", "cpu", "placed", "whole-layers", "cached"}
    assert "placed" in served


def test_a_size_that_the_engine_does_not_take_is_never_tried() -> None:
    on = Case(load_model("kimi-k2"), load_machine("rtx-4090 + 512GiB"))
    assert min(parse_system("crow").sizes(on), default=24) >= 24
    assert list(parse_system("turbofieldfare").sizes(on)) == [8, 16, 24, 32]
    for size in parse_system("slot-remap").sizes(Case(small(experts=256), load_machine("strix-halo-128"))):
        assert 8 <= size <= 64


@pytest.mark.parametrize("name", sorted(named_models()))
def test_every_named_model_gets_one_line_or_runs(name: str) -> None:
    of = load_model(name)
    for machine in ("rtx-3060", "m2-16", "strix-halo-128", "vm-2core"):
        on = Case(of, load_machine(machine))
        for system in SYSTEMS:
            reason = parse_system(system).why_not(on)
            assert "\n" not in reason
            assert not reason.endswith(".")


def test_a_refused_engine_has_no_speed() -> None:
    on = case(arch="gpt-oss")
    (row,) = compare(workload(on.model), on, [parse_system("static-profile")])
    assert row.tok_s is None
    assert row.why_not == IGNORED.format("gpt-oss")
    assert set(REFUSED) < set(STATUSES)
