"""Which model a name or a description means."""

from __future__ import annotations

import pytest

from flashmoe_sim.geometry.named import named_model, named_models
from flashmoe_sim.io.errors import Conflict, UnknownName
from flashmoe_sim.measured import Measured
from flashmoe_sim.measured.which import known_model, model_that_ran
from tests.support import refused


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("deepseek-r1:671b", "deepseek-v3"),
        ("DeepSeek-R1-0528-UD-Q3_K_XL-00001-of-00007.gguf", "deepseek-v3"),
        *((f"deepseek-r1:{size}", "") for size in ("1.5b", "7b", "8b", "14b", "32b", "70b")),
        ("DeepSeek-R1-0528-Qwen3-8B-Q4_K_M.gguf", ""),
        ("DeepSeek-R1-Distill-Llama-70B.gguf", ""),
        ("deepseek-v2:16b", ""),
        ("qwen3:8b", ""),
        ("qwen3:30b", "qwen3-30b-a3b"),
        ("qwen3.5:9b", ""),
        ("gemma-4-31B-it-Q4_0.gguf", ""),
        ("gemma-4", ""),
        ("glm-4-9b-chat-Q4_K_M.gguf", ""),
        ("granite-4.0-h-1b", ""),
        ("nemotron-3-nano:4b", ""),
        ("GLM-4.5-Air-REAP-82B-A12B", ""),
        ("gpt-oss-20b-pruned", ""),
        ("Qwen3-30B-A3B-Instruct-2507-REAM-Q4_K_M.gguf", ""),
        ("kimi-k2:1t", "kimi-k2"),
        ("ggml-org_gpt-oss-20b-GGUF_gpt-oss-20b-mxfp4.gguf", "gpt-oss-20b"),
        ("Qwen_Qwen3.5-35B-A3B-Q4_K_M.gguf", "qwen3.5-35b-a3b"),
        ("NVIDIA-Nemotron-3-Nano-30B-A3B-Q4_K_M.gguf", "nemotron-3-nano-30b-a3b"),
        ("F:\\llm\\gpt-oss-20b-mxfp4.gguf", "gpt-oss-20b"),
        ("Gpt Oss 20B", "gpt-oss-20b"),
    ],
)
def test_names(name: str, model: str) -> None:
    assert known_model(name) == model


@pytest.mark.parametrize(
    ("tag", "model"), [("deepseek-r1", ""), ("deepseek-r1:latest", ""), ("gpt-oss:latest", "gpt-oss-20b")]
)
def test_what_ollama_runs_by_a_name_without_a_size(tag: str, model: str) -> None:
    assert known_model(tag, "ollama") == model


def measured(model: str, gib: float | None = None, weights_b: float | None = None, quant: str = "") -> Measured:
    sizes = {"model_bytes": round(gib * 2**30) if gib else None, "model_weights": round(1e9 * (weights_b or 0)) or None}
    return Measured(where="a.md: line 1", tok_s=10.0, model=model, quant=quant, **sizes)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", named_models())
def test_the_description_of_each_known_model_is_of_it(name: str) -> None:
    """As llama-bench prints it: the architecture, the size in words, the quantization."""
    model, known = named_model(name), named_models()[name]
    gib, weights_b = (
        (model.routed_bytes + (model.dense_bytes or 0)) / 2**30,
        known.routed_params_b + known.dense_params_b,
    )
    one = measured(f"{model.arch} ?B {model.quant}", gib, weights_b, model.quant)
    assert model_that_ran(one, model).name == model.name


@pytest.mark.parametrize(
    ("described", "gib", "weights_b", "quant", "model"),
    [
        ("qwen3moe 30B.A3B Q4_K - Medium", 17.28, 30.53, "Q4_K_M", "qwen3-30b-a3b:q4_k_m"),
        ("qwen3moe 30B.A3B Q8_0", 30.25, 30.53, "Q8_0", "qwen3-30b-a3b:q8_0"),
        ("glm4moe 355B.A32B Q4_K - Medium", 189.7, 356.8, "Q4_K_M", "glm-4.6:q4_k_m"),
        ("deepseek2 671B Q8_0", 664.3, 671.0, "Q8_0", "deepseek-v3:q8_0"),
        ("deepseek2 30B.A3B BF16", 55.8, 29.9, "BF16", "glm-4.7-flash:bf16"),
        ("gemma4 26B.A4B Q4_K - Medium", 15.9, 25.2, "Q4_K_M", "gemma-4-26b-a4b:q4_k_m"),
        ("nemotron_h_moe 120B.A12B Q4_K - Medium", 78.0, 120.7, "Q4_K_M", "nemotron-3-super-120b-a12b:q4_k_m"),
        ("qwen3moe ?B Q2_K - Medium", 81.96, 235.09, "Q2_K", "qwen3-235b-a22b:q2_k"),
    ],
)
def test_descriptions_of_published_rows(described: str, gib: float, weights_b: float, quant: str, model: str) -> None:
    one = measured(described, gib, weights_b, quant)
    assert model_that_ran(one, named_model("gpt-oss-20b")).name == model


@pytest.mark.parametrize(
    ("described", "gib", "weights_b", "quant"),
    [
        ("llama 8B Q4_K - Medium", 4.58, 8.03, "Q4_K_M"),
        ("qwen3 32B Q8_0", 32.42, 32.76, "Q8_0"),
        ("gemma4 31B Q4_K - Medium", 17.5, 30.7, "Q4_K_M"),
        ("deepseek2 671B Q8_0", 307.2, 672.0, "Q8_0"),
    ],
)
def test_descriptions_of_other_models(described: str, gib: float, weights_b: float, quant: str) -> None:
    with refused(UnknownName, "unknown model"):
        model_that_ran(measured(described, gib, weights_b, quant), named_model("qwen3-30b-a3b"))


@pytest.mark.parametrize(
    ("quant", "model"),
    [("Q4_0", "qwen3-30b-a3b:q4_k_m"), ("Q6_K_L", "qwen3-30b-a3b:q6_k"), ("", "qwen3-30b-a3b:q4_k_m")],
)
def test_another_quantization_is_priced_as_what_it_is(quant: str, model: str) -> None:
    one = measured("Qwen3-30B-A3B", quant=quant)
    assert model_that_ran(one, named_model("qwen3-30b-a3b")).name == model


def test_a_quantization_of_unknown_size_is_refused() -> None:
    with refused(Conflict, "IQ1_S of qwen3-30b-a3b, whose size is not known; give that file as --model"):
        model_that_ran(measured("Qwen3-30B-A3B-IQ1_S.gguf", quant="IQ1_S"), named_model("qwen3-30b-a3b"))


def test_a_model_with_one_quantization_is_it_in_any_words() -> None:
    assert model_that_ran(measured("gpt-oss-20b-F16.gguf", quant="F16"), None).name == "gpt-oss-20b:mxfp4"
