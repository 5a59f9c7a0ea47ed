"""A `config.json` of transformers stands for the known model with its dimensions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.io.errors import BadInput
from tests.support import refused

QWEN3 = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "vocab_size": 151936,
}
DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "vocab_size": 129280,
}
GPT_OSS = {
    "architectures": ["GptOssForCausalLM"],
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_local_experts": 32,
    "experts_per_token": 4,
    "num_hidden_layers": 24,
}
LLAMA = {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32}


def written(folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (QWEN3, "qwen3-30b-a3b:q4_k_m"),
        (GPT_OSS, "gpt-oss-20b:mxfp4"),
        ({"architectures": ["A"], "model_type": "wrapper", "text_config": QWEN3}, "qwen3-30b-a3b:q4_k_m"),
    ],
)
@pytest.mark.parametrize("folder", [False, True])
def test_the_model_with_its_dimensions(tmp_path: Path, config: dict[str, Any], name: str, *, folder: bool) -> None:
    path = written(tmp_path / "snapshot", config)
    found = load_model(str(path if folder else path / "config.json"))
    assert found.name == name
    assert found.notes[-1].endswith(f"taken as {name}; give --model NAME:QUANT for another quantization")


def test_a_folder_tells_models_of_the_same_dimensions_apart(tmp_path: Path) -> None:
    assert load_model(written(tmp_path / "DeepSeek-V3.2", DEEPSEEK)).name.startswith("deepseek-v3.2:")
    with refused(BadInput, "config.json of transformers ('DeepseekV3ForCausalLM')", "give one of these names"):
        load_model(written(tmp_path / "e815299b0bcbac849fa540c768ef21845365c9eb", DEEPSEEK))


@pytest.mark.parametrize(
    ("config", "line"),
    [
        (LLAMA, "says of no routed experts: not a mixture-of-experts model; give a GGUF file, or a name"),
        (QWEN3 | {"num_hidden_layers": 47}, "no model with a name has its 47 layers, 128 experts, 8 a token; give a"),
    ],
)
def test_what_is_no_known_model(tmp_path: Path, config: dict[str, Any], line: str) -> None:
    with refused(BadInput, "a config.json of transformers", line, "qwen3-30b-a3b"):
        load_model(written(tmp_path, config))
