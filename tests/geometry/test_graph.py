"""Graphs: the table of architectures, what a model and a file add, and entries that are refused."""

from __future__ import annotations

import struct
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.geometry import load_model, named_model, named_models, read_manifest
from flashmoe_sim.geometry.graph import Graph, graph_of, graphs, read_graph
from flashmoe_sim.io.errors import Malformed
from tests.geometry.conftest import document, entry, gguf, key, tensor, text, write
from tests.support import refused

SILU = Graph(
    activation="silu", gated=True, biases=False, fused=False, groups=0, scales=False, weights_first=False, clamped=False
)
U32, F32, ARRAY = 4, 6, 9


def test_every_named_model_has_an_architecture_of_the_table() -> None:
    assert {model.arch for model in named_models().values()} <= graphs().keys()


@pytest.mark.parametrize("name", named_models())
def test_the_graph_agrees_with_the_tensors_of_a_named_model(name: str) -> None:
    model, graph = named_models()[name], named_model(name).graph
    assert graph.gated == model.gated
    assert graph.fused in (model.fused, None)
    assert named_model(name).width == model.width


def test_known_graphs() -> None:
    assert graph_of("qwen3moe") == SILU
    assert named_model("gpt-oss-120b").graph == SILU.narrowed(Graph(activation="swiglu-oai", biases=True))
    assert named_model("gemma-4-26b-a4b").graph == SILU.narrowed(Graph(activation="gelu", fused=True, scales=True))
    nemotron = named_model("nemotron-3-nano-30b-a3b").graph
    assert nemotron == SILU.narrowed(Graph(activation="relu-sqr", gated=False, groups=1))
    assert named_model("llama-4-scout").graph.weights_first
    assert named_model("deepseek-v4-flash").graph.clamped
    assert named_model("deepseek-r1").graph.groups == named_model("deepseek-v3.2").graph.groups == 8
    assert named_model("kimi-k2").graph.groups == 1
    assert graph_of("deepseek2").groups is None  # its models differ


def test_an_architecture_that_no_table_has_brings_nothing() -> None:
    assert graph_of("new-arch") == Graph()
    assert graph_of("new-arch", Graph(fused=True)) == Graph(fused=True)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "x: source is nothing; expected repository path:line@commit; add where this was read"),
        ({"source": ""}, "x: source is ''; expected repository path:line@commit"),
        ({"source": "a", "gropus": 1}, "x: gropus is 1; expected one of activation, gated"),
        ({"source": "a", "groups": "1"}, "x: groups is '1'; expected groups as int"),
        ({"source": "a", "biases": 0}, "x: biases is 0; expected biases as bool"),
    ],
)
def test_refused_entries(table: dict[str, Any], message: str) -> None:
    with refused(Malformed, begins=message):
        read_graph("x", table)


def test_narrowing_keeps_what_is_not_known() -> None:
    for item in fields(Graph):
        assert SILU.narrowed(Graph(**{item.name: getattr(SILU, item.name)})) == SILU
    assert SILU.narrowed(Graph(groups=8)).groups == 8
    assert SILU.narrowed(Graph()) == SILU


def read(path: Path, keys: list[bytes], tensors: list[bytes]) -> Graph:
    path.write_bytes(gguf(keys, tensors, data_bytes=4096))
    return load_model(path).graph


def test_a_file_says_what_it_has(tmp_path: Path, moe_keys: list[bytes], moe_tensors: list[bytes]) -> None:
    path = tmp_path / "a.gguf"
    assert read(path, moe_keys, moe_tensors) == SILU
    model = load_model(path)
    assert (model.width, model.format) == (2, "gguf")
    grouped = [*moe_keys, key("qwen3moe.expert_group_count", U32, struct.pack("<I", 4))]
    assert read(path, grouped, moe_tensors) == SILU.narrowed(Graph(groups=4))
    biased = [*moe_tensors, tensor("blk.0.ffn_up_exps.bias", (2, 4), 0)]
    assert read(path, moe_keys, biased) == SILU.narrowed(Graph(biases=True))
    scaled = [*moe_tensors, tensor("blk.0.ffn_down_exps.scale", (4,), 0)]
    assert read(path, moe_keys, scaled) == SILU.narrowed(Graph(scales=True))
    other = [*moe_tensors, tensor("blk.0.ffn_up_shexp.bias", (2, 4), 0)]
    assert read(path, moe_keys, other) == SILU


def test_a_file_with_gate_and_up_in_one_tensor(tmp_path: Path, moe_keys: list[bytes], moe_tensors: list[bytes]) -> None:
    fused = [tensor("blk.0.ffn_gate_up_exps.weight", (8, 4, 4), 0), *moe_tensors[2:]]
    assert read(tmp_path / "a.gguf", moe_keys, fused) == SILU.narrowed(Graph(fused=True))


def test_a_file_without_gates(tmp_path: Path, moe_keys: list[bytes], moe_tensors: list[bytes]) -> None:
    assert read(tmp_path / "a.gguf", moe_keys, moe_tensors[1:]) == SILU.narrowed(Graph(gated=False))


@pytest.mark.parametrize(
    ("limits", "clamped"), [((0.0, 7.0), True), ((0.0, 0.0), False), ((1e-7,), False), ((7,), True)]
)
def test_a_clamp_of_some_layers(
    tmp_path: Path, moe_keys: list[bytes], moe_tensors: list[bytes], limits: tuple[float, ...], clamped: bool
) -> None:
    values = struct.pack(f"<{len(limits)}f", *limits)
    clamp = key("qwen3moe.swiglu_clamp_exp", F32, values)
    if len(limits) > 1:
        clamp = key("qwen3moe.swiglu_clamp_exp", ARRAY, struct.pack("<IQ", F32, len(limits)) + values)
    assert read(tmp_path / "a.gguf", [*moe_keys, clamp], moe_tensors).clamped is clamped


def test_a_file_of_an_architecture_that_no_table_has(tmp_path: Path, moe_tensors: list[bytes]) -> None:
    keys = [key("general.architecture", 8, text("new-arch"))]
    header = Graph(gated=True, biases=False, fused=False, groups=0, scales=False, clamped=False)
    assert read(tmp_path / "a.gguf", keys, moe_tensors) == header


def test_layers_of_unlike_width_have_no_width(tmp_path: Path, moe_keys: list[bytes], moe_tensors: list[bytes]) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(
        gguf(moe_keys, [*moe_tensors, tensor("blk.1.ffn_down_exps.weight", (4, 8, 4), 0)], data_bytes=4096)
    )
    assert load_model(path).width == 0


def test_a_sidecar_is_of_its_architecture(tmp_path: Path) -> None:
    families = ("ffn_gate_up_exps", "ffn_down_exps")
    model = read_manifest(write(tmp_path, document([entry(0, family, 64) for family in families])))
    assert model.graph == graph_of("qwen35moe", Graph(fused=True))
    assert model.format == "gguf"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("qwen3-30b-a3b:bf16", "gguf"),
        ("gpt-oss-20b", "gguf"),
        ("qwen3-30b-a3b:mlx-4bit", "mlx"),
        ("qwen3-30b-a3b:fp8", "safetensors"),
        ("laguna-xs.2:nvfp4", "safetensors"),
        ("kimi-k3:vq3r", "warp"),
    ],
)
def test_the_format_of_a_quantization(spec: str, expected: str) -> None:
    assert named_model(spec).format == expected


def test_files_in_nvfp4_have_scales() -> None:
    assert named_model("laguna-xs.2:nvfp4").graph.scales
    assert named_model("laguna-xs.2:fp8").graph.scales is False
