"""The model of a row has the row's dimensions and bytes, or one line says why there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashmoe_sim.field.model import model_of, name_of
from flashmoe_sim.field.quants import bits_of
from flashmoe_sim.field.rows import read_rows
from flashmoe_sim.geometry import named_model
from flashmoe_sim.io.errors import BadInput
from tests.field.builders import row
from tests.field.test_rows import TABLE
from tests.support import refused

GIB = 2**30


def test_every_published_row_has_a_model() -> None:
    for one in read_rows(TABLE):
        model = model_of(one)
        assert model.dense_bytes
        assert one.moe_layers is None or abs(len(model.layers) - one.moe_layers) <= 1
        assert one.top_k is None or model.top_k == one.top_k


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("unsloth/Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("Qwen3 30B", "qwen3-30b-a3b"),
        ("DeepSeek-R1-0528", "deepseek-v3"),
        ("DeepSeek-V4-Flash-0731", "deepseek-v4-flash"),
        ("Qwen3-Coder-Next-80B-A3B", "qwen3-next-80b-a3b"),
        ("GLM-4.5-Air", "glm-4.5-air"),
        ("Kimi-K2-Thinking", "kimi-k2"),
        ("Kimi-K2.5", "kimi-k2.5"),
        ("Ornith-1.5-35B-A3B", "qwen3.6-35b-a3b"),
        ("Laguna-118B-A8B", "laguna-s-2.1"),
        ("DeepSeek-V4.1-Flash", "deepseek-v4.1-flash"),
        ("GLM-4.5V", "glm-4.5-air"),
        ("gpt-oss:120b", "gpt-oss-120b"),
        ("Qwen3 30B MoE", "qwen3-30b-a3b"),
        ("Mixtral 8x 7B Instruct", "mixtral-8x7b"),
        ("qwen3moe 30B.A3B", "qwen3-30b-a3b"),
        ("deepseek2 671B", "deepseek-v3"),
    ],
)
def test_people_write_models_otherwise(tmp_path: Path, written: str, name: str) -> None:
    assert name_of(row(tmp_path, model=written)) == name


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"model": "Abacus-7B"}, "unknown model 'Abacus-7B'; `sim model list` lists all"),
        ({"model": "Mixtral"}, "unknown model 'Mixtral'; did you mean 'mixtral-8x7b'? `sim model list` lists all"),
        ({"model": "Qwen3"}, "unknown model 'Qwen3'; "),
        ({"model": ""}, "model '': no mixture of experts is named so"),
        ({"model": "DeepSeek-R1-Distill-Qwen-32B"}, "model 'DeepSeek-R1-Distill-Qwen-32B': no mixture of experts"),
        ({"quant": "best"}, "unknown quantization 'best' of qwen3-30b-a3b, and no size of its file"),
        ({"top_k": "9"}, "top_k 9, but qwen3-30b-a3b:q4_k_m uses 8 experts a token"),
        ({"total_experts": "256"}, "256 experts a layer, but qwen3-30b-a3b:q4_k_m has 128"),
    ],
)
def test_a_model_that_is_not_known(tmp_path: Path, cells: dict[str, str], message: str) -> None:
    with refused(BadInput, begins=f"{tmp_path / 'rows.csv'}: line 2: {message}"):
        model_of(row(tmp_path, **cells))


@pytest.mark.parametrize(
    ("model", "quant", "spec"),
    [
        ("Qwen3-30B-A3B", "Q4_K_M", "qwen3-30b-a3b:q4_k_m"),
        ("Qwen3-30B-A3B", "BF16", "qwen3-30b-a3b:bf16"),
        ("gpt-oss-120b", "F16", "gpt-oss-120b:mxfp4"),
        ("GLM-5.2", "int4 gs64 + int8 MTP", "glm-5.2:int4-g64"),
        ("GLM-5.2", "int4 (colibri)", "glm-5.2:int4"),
        ("DeepSeek-V4-Flash", "fp4/fp8 official", "deepseek-v4-flash:mxfp4"),
        ("DeepSeek-V4-Flash", "q2 (IQ2XXS/Q2K)", "deepseek-v4-flash:ds4-q2"),
        ("DeepSeek-V4-Flash", "UD-Q8_K_XL", "deepseek-v4-flash:mxfp4"),
        ("Qwen3-Next-80B-A3B", "FP8", "qwen3-next-80b-a3b:fp8"),
        ("Qwen3-Coder-Next-80B-A3B", "4bit MLX", "qwen3-next-80b-a3b:mlx-4bit"),
        ("Qwen3-30B-A3B", "Q8", "qwen3-30b-a3b:q8_0"),
        ("Qwen3-30B-A3B", "q4", "qwen3-30b-a3b:q4_k_m"),
        ("DeepSeek-V4-Flash", "q2-imatrix", "deepseek-v4-flash:ds4-q2"),
        ("DeepSeek-V4-Flash", "AProjQ8 (IQ2 experts)", "deepseek-v4-flash:ds4-q2"),
        ("DeepSeek-V4-Flash", "IQ2XXS-w2Q2K-AProjQ8", "deepseek-v4-flash:ds4-q2"),
        ("DeepSeek-V4-Flash", "q2-q4 (imatrix)", "deepseek-v4-flash:ds4-q2"),
        ("DeepSeek-V4-Flash", "q2/q4 mixed", "deepseek-v4-flash:ds4-q2"),
        ("DeepSeek-V4.1-Flash", "Q2", "deepseek-v4.1-flash:ds4-q2"),
        ("DeepSeek-V4.1-Flash", "official", "deepseek-v4.1-flash:mxfp4"),
    ],
)
def test_a_named_quantization(tmp_path: Path, model: str, quant: str, spec: str) -> None:
    assert model_of(row(tmp_path, model=model, quant=quant)) == named_model(spec)


def test_bits_of_names() -> None:
    bits = {"UD-IQ3_XXS": 3.25, "IQ2_XXS imatrix (2.44 BPW)": 2.44, "THIREUS 6.2478 bpw": 6.2478, "tq3 (3-bit)": 3.5}
    bits |= {"IQ2_K_R4": 2.38, "Q4_K_XL": 4.6, "UD-Q2_K_XL": 2.7, "Q3_K_S": 3.64}
    bits |= {
        "UD-Q8": 9.0,
        "W4A16": 4.125,
        "GSQ-RCO Q2_0": 2.25,
        "AWQ": 4.16,
        "GPTQ-Int4": 4.0,
        "W8A8": 8.0,
        "8bit": 8.5,
        "Q40": 4.66,
    }
    bits |= {"AutoRound": 4.16, "EXL3 5.05 bpw": 5.05, "MLX 6-bit": 6.5, "Q4": 4.89, "NVFP4 (ModelOpt)": 4.5}
    assert {name: bits_of(name) for name in bits} == bits
    assert bits_of("best") is None


@pytest.mark.parametrize(
    ("engine", "model", "quant", "name"),
    [
        ("llama.cpp", "Qwen3-30B-A3B", "GGUF Q6", "qwen3-30b-a3b:q6_k"),
        ("llama.cpp", "Qwen3-30B-A3B", "4-bit", "qwen3-30b-a3b:q4_k_m"),
        ("LM Studio (llama.cpp)", "Qwen3-30B-A3B", "4bit", "qwen3-30b-a3b:q4_k_m"),
        ("LM Studio", "Qwen3-30B-A3B", "4bit", "qwen3-30b-a3b:mlx-4bit"),
        ("MLX", "Qwen3-30B-A3B", "4bit", "qwen3-30b-a3b:mlx-4bit"),
        ("LM Studio", "gpt-oss-120b", "8bit MLX", "gpt-oss-120b:mxfp4-q8"),
    ],
)
def test_a_quantization_is_of_the_engine(tmp_path: Path, engine: str, model: str, quant: str, name: str) -> None:
    assert model_of(row(tmp_path, engine=engine, model=model, quant=quant)).name == name


def test_the_size_of_a_file_is_split_as_the_named_model(tmp_path: Path) -> None:
    base, model = named_model("qwen3-30b-a3b:q4_k_m"), model_of(row(tmp_path, model_file_gib="18"))
    assert model.routed_bytes + model.dense_bytes == pytest.approx(18 * GIB, rel=1e-6)
    assert model.dense_bytes / model.routed_bytes == pytest.approx(base.dense_bytes / base.routed_bytes, rel=1e-6)


def test_what_a_file_has_beside_experts_of_a_fixed_size_is_dense(tmp_path: Path) -> None:
    model = model_of(row(tmp_path, model="gpt-oss-120b", quant="F16", model_file_gib="60.5"))
    assert model.layers == named_model("gpt-oss-120b").layers
    assert model.dense_bytes == pytest.approx(60.5 * GIB - model.routed_bytes, abs=1)


def test_a_file_in_the_place_of_a_quantization(tmp_path: Path) -> None:
    assert model_of(row(tmp_path, quant="(11 GB file)")).routed_bytes < 11e9
    assert model_of(row(tmp_path, quant="(11 GB file)")) == model_of(
        row(tmp_path, quant="best", model_file_gib=f"{11e9 / GIB}")
    )


def test_bytes_of_an_expert_as_told(tmp_path: Path) -> None:
    quant = "4-bit affine (3,358,720 B/expert)"
    model = model_of(row(tmp_path, model="Gemma-4-26B-A4B", quant=quant, model_file_gib="13.3"))
    assert model.routed_bytes == pytest.approx(30 * 128 * 3_358_720, rel=1e-6)
    assert model.dense_bytes == pytest.approx(13.3 * GIB - model.routed_bytes, abs=1)


def test_a_table_in_the_file_is_neither_expert_nor_dense(tmp_path: Path) -> None:
    cells = {"model": "Qwen3.8-Flash-Next", "quant": "MLX 4-bit (2,764,800 B/expert)", "model_file_gib": "96.6"}
    model = model_of(row(tmp_path, **cells))
    assert model.routed_bytes == 48 * 512 * 2_764_800
    assert model.dense_bytes == pytest.approx(6.5 * GIB, rel=0.01)


def test_pruned_experts_and_fewer_a_token(tmp_path: Path) -> None:
    model = model_of(row(tmp_path, total_experts="64", top_k="6"))
    assert ({layer.n_experts for layer in model.layers.values()}, model.top_k) == ({64}, 6)


@pytest.mark.parametrize("quant", ["", "(not told)", "(Unsloth GGUF, not told)"])
def test_no_quantization_is_noted(tmp_path: Path, quant: str) -> None:
    model = model_of(row(tmp_path, quant=quant))
    assert model.notes[-1] == "the row names no quantization: q4_k_m is assumed"
