"""Named models: every name loads, and the sizes are those that were published."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from importlib import resources
from itertools import pairwise

import pytest

from flashmoe_sim.geometry import ModelGeometry, named_model, named_models
from flashmoe_sim.geometry.graph import UNKNOWN
from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.named import (
    DENSE_ESTIMATED,
    NEAR_DUPLICATE,
    fewest_bits,
    is_listed,
    is_name,
    model_names,
    smaller,
)
from flashmoe_sim.io.errors import UnknownName
from flashmoe_sim.trace import load_trace
from tests.support import refused

REPOSITORIES = {name: model.repository for name, model in named_models().items() if model.repository}
GB, GIB, MIB, KIB = 10**9, 2**30, 2**20, 2**10


def expert_bytes(model: ModelGeometry) -> list[int]:
    return [layer.expert_bytes for layer in model.layers.values()]


@pytest.mark.parametrize("name", REPOSITORIES)
def test_the_repository_of_a_model_has_it(name: str) -> None:
    """By its name; each downloads with the line of an answer."""
    spec = f"{REPOSITORIES[name]}:{named_models()[name].default.upper()}"
    model = load_model(spec)
    assert (model.base_name, model.repository) == (name, spec)


def weight(model: ModelGeometry) -> int:
    return model.routed_bytes + (model.dense_bytes or 0)


@pytest.mark.parametrize("name", named_models())
def test_every_quantization_loads(name: str) -> None:
    """Dense bytes come from a file or an estimate; smaller quantizations are smaller, in the same format."""
    entry = named_models()[name]
    for quant_name, quant in entry.quants.items():
        spec = f"{name}:{quant_name}"
        model = named_model(spec)
        assert list(model.layers) == list(entry.layer_numbers)
        assert {layer.n_experts for layer in model.layers.values()} == {entry.experts}
        assert 1 <= model.top_k == entry.top_k < entry.experts
        assert (model.name, model.quant) == (spec, quant_name)
        assert entry.source in model.source
        assert quant.source in model.source
        assert min(expert_bytes(model)) > 0
        assert (quant.dense_gib is None) == bool(quant.dense_bits), spec
        assert 3.4 < model.dense_bytes * 8 / (entry.dense_params_b * 1e9) < 16.2, spec
        if quant.dense_gib is None:
            assert model.notes[-1].startswith(DENSE_ESTIMATED), spec
            assert entry.dense_source in model.notes[-1]
        others = [named_model(one) for one in smaller(model)]
        assert {other.format for other in others} <= {model.format}, spec
        assert {other.name.partition(":")[0] for other in others} <= {name}
        weights = [weight(model), *map(weight, others)]
        assert all(after <= NEAR_DUPLICATE * before for before, after in pairwise(weights)), spec


def test_a_model_is_read_without_the_others_and_as_the_whole_file_says() -> None:
    """Each model's lines are parsed when it is first asked for."""
    text = resources.files("flashmoe_sim.geometry").joinpath("named_models.toml").read_text("utf-8")
    whole = tomllib.loads(text)["models"]
    assert [*named_models()] == sorted(whole)
    assert model_names() == {known: name for name in whole for known in (name, *whole[name].get("aliases", ()))}
    for name, model in named_models().items():
        table = whole[name]
        assert set(model.quants) == {*table["recipes"], *table.get("quants", {})}
        assert (model.title, model.blocks, model.context) == (
            table["title"],
            table["blocks"],
            table.get("context", {}),
        )
        assert (model.graph != UNKNOWN) == ("graph" in table)


@pytest.mark.parametrize("name", named_models())
def test_the_default_has_four_bits(name: str) -> None:
    """As people run it. Rows that fill no K block take more: Nemotron's published q4_k_m file has 6.2 bits a weight."""
    entry, model = named_models()[name], named_model(name)
    assert model == named_model(f"{name}:{entry.default}") == named_model(name.upper())
    assert entry.default in ("q4_k_m", "mxfp4", "int4-g64")
    assert 4 <= 8e-9 * model.routed_bytes / entry.routed_params_b < 6.3


EXACT = {
    "gpt-oss-120b": {13_219_200},
    "qwen3-30b-a3b": {3_059_712, 2_654_208},
    "qwen3-30b-a3b:mlx-4bit": {2_654_208},
    "gemma-4-26b-a4b": {4_336_640, 3_593_216},
    "qwen3.5-397b-a17b:mlx-4bit": {7_077_888},
    "qwen3.5-397b-a17b:mlx-5bit": {
        3 * 4096 * 1024 * 44 // 64
    },  # 40 bytes of weights for each 64, two of scale and bias
    "qwen3.5-397b-a17b:mlx-mxfp4": {3 * 4096 * 1024 * 17 // 32},
    "gpt-oss-120b:mxfp4-q8": {13_219_200},
    "qwen3.5-35b-a3b:ud-iq2_m": {920 * KIB},
    "deepseek-v2-lite:q8_0": {3 * 2048 * 1408 * 34 // 32},
}


@pytest.mark.parametrize(("spec", "sizes"), EXACT.items(), ids=EXACT.keys())
def test_bytes_of_an_expert_as_published(spec: str, sizes: set[int]) -> None:
    assert set(expert_bytes(named_model(spec))) == sizes


def test_layers_of_the_route_traces() -> None:
    """Which layers are larger, as the preambles of the BigMoeOnEdge traces tell."""
    qwen = [number for number, size in enumerate(expert_bytes(named_model("qwen3-30b-a3b"))) if size == 3_059_712]
    assert qwen == [*range(6), *range(8, 42, 3), *range(42, 48)]
    gemma = [number for number, size in enumerate(expert_bytes(named_model("gemma-4-26b-a4b"))) if size == 4_336_640]
    assert gemma == [*range(7), *range(9, 28, 3)]


# spec, what is measured, its published value, relative tolerance (the digits that were printed)
PUBLISHED = [
    ("qwen3.5-35b-a3b:ud-iq2_m", lambda model: model.routed_bytes, 9.0 * GIB, 0.006),
    ("qwen3.5-35b-a3b:ud-iq2_m", lambda model: model.bank_bytes(8), 0.3 * GIB, 0.17),
    ("qwen3.5-35b-a3b:ud-iq2_m", lambda model: model.bank_bytes(32), 1.1 * GIB, 0.05),
    ("qwen3.5-35b-a3b:ud-iq2_m", lambda model: model.bank_bytes(128), 4.5 * GIB, 0.012),
    ("qwen3.5-35b-a3b:ud-iq2_m", lambda model: 24_642 // 3 * expert_bytes(model)[0], 7.21 * GIB, 0.001),
    ("qwen3.5-35b-a3b:ud-iq2_m", lambda model: 9_297 // 3 * expert_bytes(model)[0], 2.72 * GIB, 0.002),
    ("kimi-k2.5:ud-tq1_0", lambda model: model.routed_bytes, 217 * GIB, 0.0024),
    ("kimi-k2.5:ud-tq1_0", lambda model: model.routed_bytes, 232.58 * GB, 0.001),
    ("kimi-k2.5:ud-tq1_0", lambda model: model.bank_bytes(4), 2.26 * GIB, 0.0025),
    ("kimi-k2.5:ud-tq1_0", lambda model: model.bank_bytes(64), 36.10 * GIB, 0.0005),
    ("kimi-k2.5:ud-tq1_0", lambda model: model.routed_bytes / 60 / 384 / 3, 3.28 * MIB, 0.025),
    ("glm-5.1:ud-iq1_m", lambda model: model.routed_bytes / 75 * 76, 177 * GIB, 0.005),
    ("glm-5.1:ud-q2_k_xl", lambda model: model.routed_bytes / 75 * 76 + 14 * GIB, 252 * GIB, 0.02),
    ("gpt-oss-120b", lambda model: model.token_cycle_bytes(), 1815 * MIB, 0.001),
    ("qwen3-30b-a3b", lambda model: model.token_cycle_bytes(), 1051 * MIB, 0.01),
    ("gemma-4-26b-a4b", lambda model: model.token_cycle_bytes(), 904 * MIB, 0.01),
    ("qwen3-235b-a22b", lambda model: model.routed_bytes, 133 * GIB, 0.05),
    ("qwen3-235b-a22b:q2_k", lambda model: model.routed_bytes, 80 * GIB, 0.05),
    ("qwen3.5-122b-a10b:q4_k_l", lambda model: model.bank_bytes(42), 9.9 * GIB, 0.01),
    ("qwen3.6-35b-a3b:ud-q6_k_xl", lambda model: (2367 + 40) * expert_bytes(model)[0], 6554 * MIB, 0.01),
    ("gpt-oss-20b", lambda model: model.routed_bytes + model.dense_bytes, 11.27 * GIB, 0.001),
    ("deepseek-v4-flash:ds4-q2", lambda model: 700 * expert_bytes(model)[0], 4.61 * GIB, 0.001),
    ("deepseek-v4-flash:ud-iq2_xxs", lambda model: model.bank_bytes(1), 327_614_463, 1e-8),
    ("deepseek-v4-flash:ud-iq3_xxs", lambda model: model.bank_bytes(62), 22_362.62 * MIB, 1e-6),
    ("deepseek-v4-flash:ud-iq3_xxs", lambda model: model.routed_bytes + model.dense_bytes, 97.05 * GIB, 0.001),
    ("deepseek-v4-flash:mxfp4", lambda model: model.routed_bytes + model.dense_bytes, 140.6 * GIB, 0.03),
    # and one more layer in 8 bits
    (
        "glm-5.2:int4-g64",
        lambda model: model.routed_bytes + 256 * 3 * 6144 * 2048 + model.dense_bytes,
        399.5 * GIB,
        0.001,
    ),
    ("glm-5.3-flash", lambda model: expert_bytes(model)[0], 14.2 * 10**6, 0.005),
    ("qwen3-next-80b-a3b", lambda model: model.routed_bytes + model.dense_bytes, 45.10 * GIB, 0.02),
    ("qwen3-30b-a3b:iq4_xs", lambda model: model.routed_bytes + model.dense_bytes, 15.32 * GIB, 0.002),
    ("qwen3.8-flash-next:mlx-4bit", lambda model: expert_bytes(model)[0], 2_764_800, 0),
    ("qwen3.8-flash-next:nvfp4", lambda model: model.routed_bytes, 63 * GIB, 0.006),
    ("glm-4.7-flash", lambda model: model.routed_bytes + model.dense_bytes, 17.05 * GIB, 0.03),
    ("kimi-k3:vq3r", lambda model: 259 * expert_bytes(model)[0], 3072 * MIB, 0.005),
    ("qwen3.6-35b-a3b:mlx-8bit", lambda model: model.routed_bytes + model.dense_bytes, 37 * GB, 0.01),
    ("inkling-small:mlx-4bit", lambda model: model.routed_bytes + model.dense_bytes, 148 * GB, 0.005),
    ("qwen3.5-397b-a17b:mlx-2bit", lambda model: expert_bytes(model)[0], 3.9 * 10**6, 0.01),
    ("deepseek-v4.1-flash", lambda model: model.routed_bytes, 289 * GB, 0.002),
    ("deepseek-v4.1-flash", lambda model: model.token_cycle_bytes(), 4.5 * GB, 0.005),
]


@pytest.mark.parametrize(("spec", "measure", "published", "tolerance"), PUBLISHED)
def test_totals_as_published(spec: str, measure, published: float, tolerance: float) -> None:  # type: ignore[no-untyped-def]
    assert measure(named_model(spec)) == pytest.approx(published, rel=tolerance)


# name, billions of weights in all and of a token as published, and those of an embedding that the latter leave out
ACTIVE = [
    ("qwen3.5-35b-a3b", 34.66, 3, 0.51),
    ("qwen3.6-35b-a3b", 34.66, 3, 0.51),
    ("qwen3.5-122b-a10b", 122.11, 10, 0),
    ("qwen3.5-397b-a17b", 396.35, 17, 0),
    ("qwen3-30b-a3b", 30.53, 3.3, 0),
    ("qwen3-235b-a22b", 235.09, 22, 0),
    ("gemma-4-26b-a4b", 25.23, 3.8, 0),
    ("kimi-k2", 1026, 32, 0),
    ("kimi-k2.5", 1026, 32, 0),
    ("glm-5.1", 744, 40, 0),
    ("deepseek-v2-lite", 15.71, 2.4, 0.21),
    ("gpt-oss-120b", 116.83, 5.13, 0.58),
    ("olmoe-1b-7b", 6.919, 1.3, 0),
    ("gpt-oss-20b", 20.91, 3.6, 0.58),
    ("deepseek-v3", 671.03, 37, 0),
    ("deepseek-v3.2", 671.03, 37, 0),
    ("deepseek-v4-flash", 284, 13, 0.53),
    ("glm-5.2", 744, 40, 0),
    ("glm-5.3-flash", 313.5, 18, 0),
    ("glm-4.5-air", 106.85, 12, 1.24),
    ("glm-4.6", 352.8, 32, 0.78),
    ("qwen3.8-flash-next", 125, 6, 0.64),
    ("qwen3-coder-480b-a35b", 480.15, 35, 0),
    ("minimax-m2.1", 228.69, 10, 1.23),
    ("laguna-xs.2", 33.4, 3, 0),
    ("laguna-s-2.1", 117.6, 8.5, 0),
    ("deepseek-v4.1-flash", 552, 16, 0.66),
    ("inkling-small", 263.7, 12, 0),
    ("kimi-k3", 2778, 104, 0),
    ("nemotron-3-nano-30b-a3b", 31.58, 3.2, 0.35),
    ("mixtral-8x7b", 46.70, 12.9, 0),
    ("llama-4-scout", 107.77, 17, 0),
    ("llama-4-maverick", 400.71, 17, 0),
    ("mixtral-8x22b", 140.62, 39, 0),
    ("hunyuan-a13b", 80.39, 13, 0),
    ("deepseek-v2", 235.74, 21, 0),
    ("nemotron-3-super-120b-a12b", 120.67, 12, 0.54),
    ("ernie-4.5-21b-a3b", 21.83, 3, 0.26),
    ("granite-4.0-h-small", 32.21, 9, 0),
    ("lfm2-8b-a1b", 8.34, 1.5, 0),
    ("lfm2.5-8b-a1b", 8.468, 1.5, 0.13),
]
# totals published in whole billions or nearly
NEARLY = [
    ("step-3.5-flash", 196, 11, 0.53),
    ("mimo-v2-flash", 309, 15, 0),
    ("mellum2-12b-a2.5b", 12, 2.5, 0),
    ("dots.llm1", 142, 14, 0),
    ("trinity-mini", 26, 3, 0.41),
    ("trinity-large", 400, 13, 0),
    ("ernie-4.5-300b-a47b", 300, 47, 0),
    ("minimax-m3", 427, 23, 2.46),
    ("moonlight-16b-a3b", 16, 3, 0),
    ("phi-3.5-moe", 41.9, 6.6, 0),
    ("qwen1.5-moe-a2.7b", 14.3, 2.7, 0),
]
# the same, of a token published with one digit
ROUNDED = [
    ("qwen3-next-80b-a3b", 79.67, 3, 0.62),
    ("glm-4.7-flash", 29.94, 3, 0.63),
    ("granite-4.0-h-tiny", 6.94, 1, 0.15),
    ("lfm2-24b-a2b", 23.84, 2, 0),
]


EXACTLY, TO_A_BILLION = 6e-4, 0.013
ONE_DIGIT = {name for name, *_ in ROUNDED}
TOTALS = {name: (*row, EXACTLY) for name, *row in ACTIVE + ROUNDED} | {
    name: (*row, TO_A_BILLION) for name, *row in NEARLY
}


@pytest.mark.parametrize("name", named_models())
def test_weights_in_all_and_of_a_token_as_published(name: str) -> None:
    entry, (total, active, left_out, tolerance) = named_models()[name], TOTALS[name]
    routed = entry.routed_params_b
    assert entry.dense_params_b + routed == pytest.approx(total, rel=tolerance)
    used = entry.dense_params_b + routed * entry.top_k / entry.experts - left_out
    digits = {"abs": 0.5} if name in ONE_DIGIT else {"rel": 0.05}
    assert used == pytest.approx(active, **digits)


# spec, GiB of a whole file as llama-bench prints them, relative tolerance of what is outside its experts
FILES = [
    ("qwen3-30b-a3b:q8_0", 30.25, 0.01),
    ("qwen3-30b-a3b:q6_k", 23.36, 0.01),
    ("qwen3-30b-a3b:q5_k_m", 20.23, 0.01),
    ("qwen3-30b-a3b:q4_k_m", 17.28, 0.01),
    ("qwen3-30b-a3b:q2_k", 10.48, 0.015),
    ("qwen3.5-35b-a3b:q8_0", 34.36, 0.01),
    ("qwen3.5-35b-a3b:q6_k", 26.55, 0.01),
    ("qwen3.5-122b-a10b:q4_k_m", 69.10, 0.01),
    ("deepseek-v2-lite:q8_0", 15.55, 0.02),
    ("deepseek-v2-lite:q4_k_m", 9.65, 0.025),
    ("olmoe-1b-7b:q4_k_m", 4_211_730_432 / GIB, 0.005),
    ("gpt-oss-120b:mxfp4", 59.02, 0.005),
    ("hunyuan-a13b:q4_k_m", 45.38, 0.2),
    ("lfm2.5-8b-a1b:q4_k_m", 5_147_326_208 / GIB, 0.05),
    ("ernie-4.5-21b-a3b:q4_k_m", 12.51, 0.2),
    ("granite-4.0-h-tiny:q4_k_m", 3.94, 0.03),
]


@pytest.mark.parametrize(("spec", "file_gib", "tolerance"), FILES)
def test_dense_bytes_are_those_of_published_files(spec: str, file_gib: float, tolerance: float) -> None:
    model = named_model(spec)
    assert model.dense_bytes == pytest.approx(file_gib * GIB - model.routed_bytes, rel=tolerance)


def test_dense_bytes_of_the_gemma_trace() -> None:
    """The 30 layers in the preamble of the BigMoeOnEdge trace, and the embedding in Q6_K."""
    layers = load_trace("gemma-4-26b-phone").dense_bytes
    embedding = 262_144 * 2816 * 210 // 256
    assert named_model("gemma-4-26b-a4b").dense_bytes == pytest.approx(sum(layers.values()) + embedding, rel=0.002)


def test_rows_that_fill_no_k_block_fall_back() -> None:
    """DeepSeek-V2-Lite's down rows have 1,408 weights: Q5_0 and Q8_0 in place of Q4_K and Q6_K."""
    layers = named_model("deepseek-v2-lite:q4_k_m").layers
    sizes = {layer.family_bytes["ffn_down_exps"] for layer in layers.values()}
    assert sizes == {2048 * 1408 // 32 * 22, 2048 * 1408 // 32 * 34}


def test_experts_without_a_gate_lie_between_other_layers() -> None:
    """The pattern of the layers as published: M is Mamba, * attention, E routed experts."""
    pattern = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
    layers = named_model("nemotron-3-nano-30b-a3b").layers
    assert list(layers) == [number for number, kind in enumerate(pattern) if kind == "E"]
    assert list(layers[1].family_bytes) == ["ffn_up_exps", "ffn_down_exps"]


def test_an_alias_gives_the_model_of_the_same_dimensions() -> None:
    assert named_model("DeepSeek-R1:q2_k") == named_model("deepseek-v3:q2_k")
    assert named_model("Qwen3-30B-A3B-Instruct-2507:q8_0") == named_model("qwen3-30b-a3b:q8_0")
    assert is_name("Qwen3-30B-A3B-Thinking-2507")
    assert named_model("gpt-oss-120b-GGUF") == named_model("gpt-oss-120b")
    names = [*named_models(), *(alias for model in named_models().values() for alias in model.aliases)]
    assert len(names) == len(set(names))
    assert all(name == name.lower() for name in names)


def test_a_table_that_is_looked_up_is_no_dense_weight() -> None:
    model = named_model("qwen3.8-flash-next:mlx-4bit")
    assert model.dense_bytes == round(4.2e9 * 4.5 / 8)
    assert any(note.startswith("51.2 billion weights more are looked up") for note in model.notes)


def test_smaller_quantizations_largest_first() -> None:
    of = named_model("qwen3-235b-a22b")
    assert smaller(of) == [f"qwen3-235b-a22b:{quant}" for quant in ("iq4_xs", "q3_k_m", "q2_k")]
    assert smaller(named_model("qwen3-30b-a3b:mlx-3bit")) == smaller(named_model("gpt-oss-120b")) == []
    assert smaller(named_model("qwen3.5-397b-a17b:mlx-3bit")) == ["qwen3.5-397b-a17b:mlx-2bit"]


def test_two_bits_and_fewer_by_recipe() -> None:
    of = named_model("qwen3-235b-a22b")
    assert fewest_bits(of) == ["qwen3-235b-a22b:ud-iq2_xxs", "qwen3-235b-a22b:ud-iq1_s"]
    assert not any(map(is_listed, fewest_bits(of)))
    assert is_listed(smaller(of)[-1])
    assert weight(named_model(fewest_bits(of)[0])) <= NEAR_DUPLICATE * weight(named_model(smaller(of)[-1]))
    for other in ("gpt-oss-120b", "qwen3-30b-a3b:mlx-3bit"):  # experts of the same bytes in every file; no GGUF
        assert fewest_bits(named_model(other)) == []


def test_only_a_named_model_has_smaller_quantizations() -> None:
    of = named_model("qwen3-30b-a3b")
    for other in (replace(of, gguf="a.gguf"), replace(of, name="mine:q4_k_m"), replace(of, name="qwen3-30b-a3b:mine")):
        assert smaller(other) == []


@pytest.mark.parametrize(
    ("quant", "nearest"),
    [
        ("q4", ("iq4_xs", "q4_k_m")),
        ("ud-iq1", ("iq1_s", "iq1_m")),
        ("mlx-7bit", ("mlx-6bit", "mlx-8bit")),
        ("7bit", ("mlx-6bit", "mlx-8bit")),
    ],
)
def test_an_unknown_quantization_is_not_taken_for_another(quant: str, nearest: tuple[str, ...]) -> None:
    with pytest.raises(UnknownName) as caught:
        named_model(f"qwen3.6-35b-a3b:{quant}")
    message = str(caught.value)
    assert "did you mean" not in message
    assert ": no recipe says its size; give its size, such as qwen3.6-35b-a3b@20GB, or its GGUF file" in message
    _, _, near = message.partition("the nearest by bits: ")
    assert tuple(re.findall(r"([\w-]+) \([\d.]+ GiB\)", near)) == nearest


def test_a_shortened_name_that_can_mean_one_quantization_only() -> None:
    assert named_model("qwen3.6-35b-a3b:Q8") == named_model("qwen3.6-35b-a3b:q8_0")
    assert named_model("qwen3.6-35b-a3b:4bit") == named_model("qwen3.6-35b-a3b:mlx-4bit")
    assert named_model("ornith-1.5-35b-a3b:q6") == named_model("qwen3.6-35b-a3b:q6_k")
    assert named_model("qwen3.6-35b-a3b:UD-Q8") == named_model("qwen3.6-35b-a3b:ud-q8_k_xl")


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ("qwen3-30b-a3", "unknown model 'qwen3-30b-a3'; did you mean 'qwen3-30b-a3b'? `sim model list` lists all"),
        ("qwen3-30b-a3b-lite", "unknown model 'qwen3-30b-a3b-lite'"),
        ("gpt-oss:20b", "unknown model 'gpt-oss'; did you mean 'gpt-oss-20b'?"),  # as Ollama writes it
        ("olmoe", "unknown model 'olmoe'; did you mean 'olmoe-1b-7b'?"),
        ("zzz", "unknown model 'zzz': dense, or a mixture of experts that is not known"),
        ("kimi-k2:", "unknown quantization of kimi-k2 ''"),
        *((f"qwen3.6-35b-a3b:{quant}", "; did you mean 'q4_k_m'?") for quant in ("q4km", "Q4-K-M", "q4_km")),
        ("qwen3.6-35b-a3b:best", "'best'; give its size, "),
        ("qwen3.6-35b-a3b:best", "; known, among others: bf16, int4, iq4_xs"),
    ],
)
def test_unknown_names(spec: str, line: str) -> None:
    with refused(UnknownName, line):
        named_model(spec)
