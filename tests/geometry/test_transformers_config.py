"""A `config.json` of transformers: all its dimensions are read, or named as not known."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from flashmoe_sim.geometry.config_shape import ConfigShape, shape_of
from flashmoe_sim.geometry.load import is_model_file, load_model
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.named import file_bytes, model_names, named_model, named_models
from flashmoe_sim.io.errors import BadInput, Malformed, Unsupported
from tests.support import refused

# Numbers of published configs, each with its source: `model` is the known model with these dimensions, if there is one,
# else `total_b` and `active_b` billions of weights.
ROWS = [json.loads(line) for line in (Path(__file__).parent / "configs.jsonl").read_text("utf-8").splitlines()]
KNOWN = [row for row in ROWS if row["model"]]
NAMES = [row["model"] for row in KNOWN]
CONFIGS = {row["model"]: row["config"] for row in KNOWN}
QWEN3 = CONFIGS["qwen3-30b-a3b"]
ULTRA = next(row["config"] for row in ROWS if "Ultra" in row["source"])
V4_PRO = next(row["config"] for row in ROWS if "V4-Pro" in row["source"])
JAMBA = {
    "architectures": ["JambaForCausalLM"],
    "model_type": "jamba",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "num_attention_heads": 32,
    "mamba_d_state": 16,
}
LLAMA = {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32}
# What the table has from a published total or without a part, so that the count differs by more than a hundredth: the
# indexer of DeepSeek-V3.2 is left out; those of DeepSeek-V4-Flash and Laguna-XS.2 are totals of three digits less the
# experts; Kimi-K3's total has what sees in it.
ROUGH = {"deepseek-v3.2": 0.05, "deepseek-v4-flash": 0.05, "laguna-xs-2.1": 0.03, "kimi-k3": 0.1}


def shape(config: dict[str, Any]) -> ConfigShape:
    return shape_of(config, config.get("text_config", config), "config.json")


def written(folder: Path, config: dict[str, Any], **beside: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for name, content in beside.items():
        (folder / f"{name.replace('_', '.')}.json").write_text(json.dumps(content))
    return folder


def loaded(folder: Path, config: dict[str, Any], more: str = "") -> ModelGeometry:
    return load_model(f"{written(folder, config)}{more}")


@pytest.mark.parametrize("row", KNOWN, ids=NAMES)
def test_the_table_of_known_models_is_what_configs_say(row: dict[str, Any]) -> None:
    """Layers, experts, widths, vocabulary, the weights outside the experts, and what the context takes."""
    found, known = shape(row["config"]), named_models()[model_names()[row["model"]]]
    for what in ("arch", "blocks", "experts", "top_k", "hidden", "width", "tied", "gated", "fused"):
        assert getattr(found, what) == getattr(known, what), what
    assert found.moe_layers == known.layer_numbers
    assert known.vocab in (0, found.vocab)
    assert found.dense_b == pytest.approx(known.dense_params_b, rel=ROUGH.get(row["model"], 0.01))
    assert found.drafting in (0, known.drafting) or row["model"] in ("minimax-m3", "nemotron-3-super-120b-a12b")


@pytest.mark.parametrize("row", KNOWN, ids=NAMES)
def test_the_known_model_is_taken_with_its_context(row: dict[str, Any], tmp_path: Path) -> None:
    name, folder = model_names()[row["model"]], tmp_path / row["model"]
    config = {key: value for key, value in row["config"].items() if key != "quantization_config"}
    if "text_config" in config:
        config["text_config"] = {**config["text_config"], "quantization_config": None}
    found = loaded(folder, config)
    assert found.base_name == name
    assert found.attention == named_model(name).attention
    assert found.layers == named_model(found.name).layers


@pytest.mark.parametrize("row", KNOWN, ids=NAMES)
def test_a_shape_of_its_own_keeps_as_much_of_the_context(row: dict[str, Any], tmp_path: Path) -> None:
    """With one expert less than the known model, so that all is from the file."""
    known, config = named_model(model_names()[row["model"]]), json.loads(json.dumps(row["config"]))
    text = config.get("text_config", config)
    experts = next(
        name for name in ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts") if name in text
    )
    text[experts] -= 1
    text.pop("quantization_config", None)
    config.pop("quantization_config", None)
    found = loaded(tmp_path / "own", config)
    assert found.name == "own/config.json:q4_k_m"
    assert {layer.n_experts for layer in found.layers.values()} == {text[experts]}
    if known.attention is None:
        return
    assert found.attention is not None
    if row["model"] != "laguna-xs-2.1":  # of which the table does not say the heads of each layer
        assert found.attention == known.attention
    for tokens in (4096, 131072):
        assert found.attention.context_bytes(tokens) == known.attention.context_bytes(tokens)


def test_a_model_that_is_not_known_is_counted_from_its_fields(tmp_path: Path) -> None:
    """NVIDIA-Nemotron-3-Ultra-550B-A55B and DeepSeek-V4-Pro (1.6 trillion), as published."""
    for config, total_b, active_b in ((ULTRA, 550, 55), (V4_PRO, 1573, 49)):
        found = shape(config)
        matrices = 3 if found.gated else 2
        routed = len(found.moe_layers) * found.experts * matrices * found.hidden * found.width / 1e9
        assert found.dense_b + routed == pytest.approx(total_b, rel=0.02)
        assert found.dense_b + routed * found.top_k / found.experts == pytest.approx(active_b, rel=0.05)
    model = loaded(tmp_path / "Nemotron-3-Ultra", ULTRA)
    assert model.name == "Nemotron-3-Ultra/config.json:q4_k_m"
    assert model.arch == "nemotron_h_moe"
    assert any("is of no known model: 108 layers, 512 experts, 22 a token" in note for note in model.notes)


@pytest.mark.parametrize("row", [row for row in ROWS if "total_b" in row], ids=lambda row: row["config"]["model_type"])
def test_fields_of_other_families(row: dict[str, Any], tmp_path: Path) -> None:
    model = loaded(tmp_path / "own", row["config"], ":bf16")
    routed_b, outside_b = model.routed_bytes / 2e9, model.dense_weights / 1e9
    experts = model.layers[max(model.layers)].n_experts
    assert routed_b + outside_b == pytest.approx(row["total_b"], rel=0.01)
    assert routed_b * model.top_k / experts + outside_b == pytest.approx(row["active_b"], rel=0.03)


@pytest.mark.parametrize(
    ("quantization", "name"),
    [
        ({"quantization": {"group_size": 64, "bits": 4}}, "mlx-4bit"),
        ({"quantization": {"group_size": 64, "bits": 8, "mode": "affine"}}, "mlx-8bit"),
        ({"quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4"}}, "mlx-mxfp4"),
        ({"quantization": {"group_size": 32, "bits": 4}}, "mlx-4bit-g32"),
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, "fp8"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "nvfp4"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "mxfp4"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}, "gptq-int4"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}}, "gptq-int4-g32"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 64}}, "awq-4bit-g64"),
        (
            {"quantization_config": {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}}},
            "mxfp4",
        ),
        (
            {
                "quantization_config": {
                    "quant_method": "quark",
                    "global_quant_config": {"weight": [{"dtype": "fp8_e4m3"}]},
                }
            },
            "fp8",
        ),
        (
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "format": "pack-quantized",
                    "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}},
                }
            },
            "int4",
        ),
    ],
)
def test_its_own_quantization(quantization: dict[str, Any], name: str, tmp_path: Path) -> None:
    found = loaded(tmp_path / "snapshot", QWEN3 | quantization)
    assert found.name == f"qwen3-30b-a3b:{name}"
    assert any(f"says that its weights are in {name}" in note for note in found.notes)


PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
FOUR = {"group_size": 64, "bits": 4}


def modules(bits: Any, names: Sequence[str], *, layers: Iterable[int] = range(48), group: int = 64) -> dict[str, Any]:
    """MLX's bits of modules in these layers."""
    return {f"model.layers.{layer}.{name}": {"bits": bits, "group_size": group} for layer in layers for name in names}


SWITCH = [f"mlp.switch_mlp.{name}" for name in PROJECTIONS]
ATTENTION = [f"self_attn.{name}_proj" for name in "qkvo"]


@pytest.mark.parametrize(
    ("own", "expert_bits", "outside_bits"),
    [
        (modules(8, SWITCH), 8.5, 4.6),
        (modules(8, SWITCH[2:]), (4.5 + 4.5 + 8.5) / 3, 4.6),
        (modules(8, SWITCH, layers=range(0, 48, 2)), 6.5, 4.6),
        (modules(3, SWITCH, group=32), 4.0, 4.6),
        (modules(8, ATTENTION), 4.5, 6.95),
        (modules(8, SWITCH) | {"lm_head": False, "model.embed_tokens": {"bits": 6}}, 8.5, 7.32),
        (modules(8, [f"mlp.experts.{name}" for name in PROJECTIONS]), 8.5, 4.6),
    ],
)
def test_bits_by_module(own: dict[str, Any], expert_bits: float, outside_bits: float, tmp_path: Path) -> None:
    found = loaded(tmp_path / "OptiQ", QWEN3 | {"quantization": FOUR | own})
    entry = named_models()["qwen3-30b-a3b"]
    assert (found.name, found.format) == ("qwen3-30b-a3b:mlx-mixed", "mlx")
    assert 8e-9 * found.routed_bytes / entry.routed_params_b == pytest.approx(expert_bits, rel=1e-6)
    assert 8e-9 * (found.dense_bytes or 0) / entry.dense_params_b == pytest.approx(outside_bits, rel=0.02)
    assert any(f"says the bits of each module: {expert_bits:.3g} for a weight" in note for note in found.notes)


def test_bits_by_module_that_a_name_says(tmp_path: Path) -> None:
    """Routers have eight bits in most files; attention and embeddings in those that end with Q8."""
    routers = modules(8, ["mlp.gate"])
    assert loaded(tmp_path / "a", QWEN3 | {"quantization": FOUR | routers}).name == "qwen3-30b-a3b:mlx-4bit"
    eight = {name: {"bits": 8, "group_size": 64} for name in ("model.embed_tokens", "lm_head")}
    own = (
        {"bits": 4, "group_size": 32, "mode": "mxfp4"}
        | eight
        | modules(8, [*ATTENTION, "mlp.router"], layers=range(36))
    )
    config = CONFIGS["gpt-oss-120b"] | {"quantization_config": None, "quantization": own}
    assert loaded(tmp_path / "b", config).name == "gpt-oss-120b:mxfp4-q8"


def test_bits_of_experts_with_other_names(tmp_path: Path) -> None:
    """Two matrices an expert, in layers of a backbone; gate and up in one tensor; an attention that is not known."""
    plain = modules(8, ["mixer.switch_mlp.fc1", "mixer.switch_mlp.fc2"], layers=range(52))
    two = {path.replace("model.", "backbone."): one for path, one in plain.items()}
    names = ["experts.switch_glu.gate_proj", "experts.switch_glu.up_proj", "experts.switch_glu.down_proj"]
    fused = {f"language_{path}": one for path, one in modules(8, names, layers=range(30)).items()}
    for model, own in (("nemotron-3-nano-30b-a3b", two), ("gemma-4-26b-a4b", fused)):
        found = loaded(tmp_path / model, CONFIGS[model] | {"quantization_config": None, "quantization": FOUR | own})
        assert 8e-9 * found.routed_bytes / named_models()[model].routed_params_b == pytest.approx(8.5, rel=1e-3)
    latent = CONFIGS["deepseek-v4-flash"] | {"quantization_config": None}
    with refused(Unsupported, "('model.layers.0.attn.wq_a' among them)"):
        loaded(tmp_path / "v4", latent | {"quantization": FOUR | modules(8, ["attn.wq_a"], layers=range(3))})


def test_bits_by_module_at_the_size_of_the_index(tmp_path: Path) -> None:
    folder = written(tmp_path / "mlx", QWEN3 | {"quantization": FOUR | modules(8, SWITCH)})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 31 * 10**9}}))
    found = load_model(folder)
    assert file_bytes(found) == 31 * 10**9
    assert found.routed_bytes == pytest.approx(30.1 * 10**9, rel=0.01)


@pytest.mark.parametrize(
    "own",
    [
        {"quantization": FOUR | {"model.layers.3.foo.bar": {"bits": 8}}},
        {"quantization": modules(8, SWITCH)},
        {"quantization": FOUR | modules(8, ["mlp.experts.0.up_proj"]) | modules(3, ["mlp.experts.1.up_proj"])},
        {
            "quantization_config": {
                "quant_method": "auto-round",
                "bits": 4,
                "extra_config": {"model.layers.0.mlp.experts": {"bits": 8}},
            }
        },
        {"quantization_config": {"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*down.*": {"bits": 8}}}},
        {
            "quantization_config": {
                "quant_method": "compressed-tensors",
                "config_groups": {name: {"weights": {"num_bits": bits}} for name, bits in (("a", 4), ("b", 8))},
            }
        },
    ],
)
def test_mixed_bits_that_are_not_known_ask_for_the_size(own: dict[str, Any], tmp_path: Path) -> None:
    with refused(
        Unsupported, "its weights have mixed bits, not all of which are known here", "; give their size, ", "@17GB"
    ):
        loaded(tmp_path / "mixed", QWEN3 | own)
    assert file_bytes(loaded(tmp_path / "mixed", QWEN3 | own, "@20GB")) == 20 * 10**9


STRANGE: tuple[Any, ...] = (0, -1, True, "4", "x", 2.5, 7, 10**80, [4], {"a": 1})


@pytest.mark.parametrize("value", STRANGE, ids=[str(value)[:8] for value in STRANGE])
def test_a_quantization_of_impossible_values(value: Any, tmp_path: Path) -> None:
    for own in (
        {"quantization": {"group_size": 64, "bits": value}},
        {"quantization": {"group_size": value, "bits": 4}},
        {"quantization": FOUR | modules(value, SWITCH[:1])},
        {"quantization_config": {"quant_method": "gptq", "bits": value if value not in (True, 7) else 17}},
        {"quantization_config": {"config_groups": {"a": {"weights": {"num_bits": 4, "group_size": value or 0.5}}}}},
        {"quantization": value or "no object"} if not isinstance(value, dict) else {"quantization_config": value},
    ):
        if value in (7, -1) and "config_groups" in str(own):
            continue
        with refused(Malformed, "config.json", "expected", "give the config.json as it was published"):
            loaded(tmp_path / "strange", QWEN3 | own)
    assert file_bytes(loaded(tmp_path / "strange", QWEN3 | {"quantization": {"bits": value}}, "@20GB")) == 20 * 10**9


def test_the_four_bits_of_kimi(tmp_path: Path) -> None:
    """4 bits and a scale of 16 bits for 32 weights, as its config says."""
    found = loaded(tmp_path / "Kimi-K2.5", CONFIGS["kimi-k2.5"])
    assert 8e-9 * found.routed_bytes / named_models()["kimi-k2.5"].routed_params_b == pytest.approx(4.5, abs=0.01)


@pytest.mark.parametrize(("group", "bits"), [(128, 4.16), (64, 4.31), (32, 4.63), (-1, 4.16)])
def test_the_bits_of_a_group_of_weights(group: int, bits: float, tmp_path: Path) -> None:
    own = {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": group}}
    found = loaded(tmp_path / "gptq", QWEN3 | own)
    assert 8e-9 * found.routed_bytes / named_models()["qwen3-30b-a3b"].routed_params_b == pytest.approx(bits, abs=0.01)


def test_a_quantization_beside_it(tmp_path: Path) -> None:
    folder = written(tmp_path / "snapshot", QWEN3)
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "NVFP4"}}))
    assert load_model(folder).name == "qwen3-30b-a3b:nvfp4"


def test_a_folder_of_mlx_says_its_size(tmp_path: Path) -> None:
    folder = written(tmp_path / "mlx", QWEN3 | {"quantization": {"group_size": 64, "bits": 4}})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 17 * 10**9}}))
    found = load_model(folder)
    assert (file_bytes(found), found.format, found.quant) == (17 * 10**9, "mlx", "mlx-4bit")


def test_another_quantization_or_size_of_it(tmp_path: Path) -> None:
    assert loaded(tmp_path / "a", QWEN3, ":Q8_0").name == "qwen3-30b-a3b:q8_0"
    assert loaded(tmp_path / "a", QWEN3, "/config.json:q6_k").name == "qwen3-30b-a3b:q6_k"
    assert file_bytes(loaded(tmp_path / "a", QWEN3, "@20GB")) == 20 * 10**9
    with refused(Malformed, "expected a size with its unit"):
        loaded(tmp_path / "a", QWEN3, "@20")


def test_a_quantization_of_unknown_bytes_asks_for_the_size(tmp_path: Path) -> None:
    config = QWEN3 | {"quantization_config": {"quant_method": "quip", "bits": 2}}
    with refused(Unsupported, "its weights are in quip, whose bytes are not known here; give their size, ", "@17GB"):
        loaded(tmp_path / "snapshot", config)


def test_the_folder_or_the_cache_tells_models_of_the_same_dimensions_apart(tmp_path: Path) -> None:
    config = CONFIGS["qwen3.6-35b-a3b"] | {"quantization_config": None}
    hashed = tmp_path / "models--Qwen--Qwen3.6-35B-A3B" / "snapshots" / "e815299b0bcbac849fa540c768ef21845365c9eb"
    for folder, name in ((tmp_path / "Qwen3.6-35B-A3B", "qwen3.6"), (hashed, "qwen3.6"), (tmp_path / "x", "qwen3.5")):
        found = loaded(folder, config)
        assert found.base_name == f"{name}-35b-a3b"
        assert any("has the dimensions of qwen3.5-35b-a3b and qwen3.6-35b-a3b" in note for note in found.notes)


def test_a_pruned_model_is_not_the_known_one(tmp_path: Path) -> None:
    """Qwen3-Coder-REAP-25B-A3B has 103 of 128 experts a layer."""
    found = loaded(tmp_path / "Qwen3-Coder-REAP-25B-A3B", QWEN3 | {"num_experts": 103})
    assert found.name == "Qwen3-Coder-REAP-25B-A3B/config.json:q4_k_m"
    assert found.routed_bytes == pytest.approx(named_model("qwen3-30b-a3b").routed_bytes * 103 / 128, rel=1e-9)


def test_a_model_type_that_is_not_known_is_told(tmp_path: Path) -> None:
    config = QWEN3 | {"architectures": ["FooForCausalLM"], "model_type": "foo", "foo_gates": 3}
    found = loaded(tmp_path / "foo", config)
    assert found.attention is None
    assert any("the model type 'foo' is not known" in note for note in found.notes)
    assert any("not known, and not counted: foo_gates" in note for note in found.notes)
    states = loaded(tmp_path / "bar", config | {"mamba_width": 4096})
    assert states.dense_bytes is None
    assert any("the weights outside not known" in note for note in states.notes)


@pytest.mark.parametrize(
    ("config", "line", "kind"),
    [
        (LLAMA, "says of no routed experts: not a mixture-of-experts model; give a GGUF file, or a name", Unsupported),
        (QWEN3 | {"num_experts": 0}, "says of no routed experts", Unsupported),
        (QWEN3 | {"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000; expected 1 to 32767", Malformed),
        (QWEN3 | {"num_hidden_layers": "many"}, "num_hidden_layers is 'many'; expected a whole number", Malformed),
        (QWEN3 | {"hidden_size": -1}, "hidden_size is -1; expected a whole number from 0", Malformed),
        (QWEN3 | {"num_experts_per_tok": 129}, "129 of 128 experts a token", Malformed),
        (QWEN3 | {"moe_intermediate_size": None}, "moe_intermediate_size is nothing; expected the width of", Malformed),
        ({"model_type": "x", "num_primary_experts": 32}, "experts are in fields that are not known (num_", Unsupported),
        (QWEN3 | {"layer_types": ["full_attention"]}, "layer_types is ['full_attention']; expected a word ", Malformed),
        # layers with experts that are none or not known
        (QWEN3 | {"mlp_only_layers": [*range(48)]}, "no layer has routed experts (mlp_only_layers [0, 1,", Unsupported),
        (QWEN3 | {"moe_layer_freq": [0] * 48}, "a dense model; give a mixture of experts", Unsupported),
        (QWEN3 | {"first_k_dense_replace": 48}, "no layer has routed experts (first_k_dense_replace 48)", Unsupported),
        (QWEN3 | {"decoder_sparse_step": 0}, "no layer has routed experts (decoder_sparse_step 0)", Unsupported),
        (QWEN3 | {"enable_moe_block": False}, "no layer has routed experts (enable_moe_block False)", Unsupported),
        (QWEN3 | {"expert_layer_period": 0}, "expert_layer_period is 0; expected 1 or more", Malformed),
        (QWEN3 | {"mlp_only_layers": "0-47"}, "mlp_only_layers is '0-47'; expected a list of layers", Malformed),
        (QWEN3 | {"moe_layers": [1, 48]}, "moe_layers is [1, 48]; expected numbers of layers below 48", Malformed),
        (QWEN3 | {"mlp_layer_types": ["moe", "mamba"] * 24}, "expected dense or sparse for each layer", Malformed),
        (QWEN3 | {"num_experts": [64] * 4 + [128] * 44}, "num_experts is another number for some layers", Unsupported),
        (QWEN3 | {"num_experts_per_tok": [4, 8] * 24}, "num_experts_per_tok is another number for some l", Unsupported),
        (QWEN3 | {"moe_every_n_layers": 2}, "moe_every_n_layers is not known, and may say which layers h", Unsupported),
        (QWEN3 | {"dense_layer_ids": [0, 1]}, "dense_layer_ids is not known, and may say which layers", Unsupported),
        (QWEN3 | {"block_configs": [{}, {"ffn": 1}]}, "block_configs is not known, and may say which lay", Unsupported),
    ],
)
def test_what_is_no_model(tmp_path: Path, config: dict[str, Any], line: str, kind: type[BadInput]) -> None:
    with refused(kind, "config.json", line):
        loaded(tmp_path / "snapshot", config)


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        (QWEN3 | {"mlp_only_layers": [0, 1, 47]}, range(2, 47)),
        (QWEN3 | {"decoder_sparse_step": 2}, range(1, 48, 2)),
        (QWEN3 | {"num_experts": [1] * 4 + [128] * 44}, range(4, 48)),
        (QWEN3 | {"moe_layers": "3,5"}, (3, 5)),
        (QWEN3 | {"moe_layer_layout": [0, 1] * 24}, range(1, 48, 2)),
        (QWEN3 | {"mlp_layer_types": ["dense", "sparse", "sparse"] * 16}, [one for one in range(48) if one % 3]),
        (JAMBA | {"expert_layer_period": 2, "expert_layer_offset": 1}, range(1, 32, 2)),
        (JAMBA | {"expert_layer_period": 4, "expert_layer_offset": 0}, range(0, 32, 4)),
        (JAMBA, range(1, 32, 2)),
        (CONFIGS["deepseek-v3"] | {"moe_layer_freq": 2}, range(4, 61, 2)),
        (CONFIGS["ernie-4.5-21b-a3b"] | {"moe_layer_interval": 2, "moe_layer_end_index": -1}, range(1, 28, 2)),
    ],
)
def test_the_layers_with_experts(config: dict[str, Any], layers: Any) -> None:
    assert shape(config).moe_layers == tuple(layers)


def test_weights_outside_the_experts_tell_models_apart(tmp_path: Path) -> None:
    """A shared expert that Qwen3-30B-A3B has not."""
    found = loaded(tmp_path / "own", QWEN3 | {"shared_expert_intermediate_size": 768})
    assert found.name == "own/config.json:q4_k_m"
    assert any("is of no known model" in note for note in found.notes)


def test_unknown_fields_of_a_known_model_are_named(tmp_path: Path) -> None:
    more = {"num_zero_experts": 64, "moe_new_router": True, "latent_moe_dim": 512, "router_aux_loss_coef": 0.1}
    found = loaded(tmp_path / "snapshot", QWEN3 | more)
    assert found.base_name == "qwen3-30b-a3b"
    assert "not known, and not counted: latent_moe_dim, moe_new_router, num_zero_experts" in found.notes
    for row in KNOWN:
        assert not any("not counted:" in note for note in loaded(tmp_path / "known", row["config"]).notes)


def test_a_config_that_is_cut_off(tmp_path: Path) -> None:
    folder = written(tmp_path / "snapshot", QWEN3)
    (folder / "config.json").write_text(json.dumps(QWEN3)[:200])
    with refused(Malformed, "not JSON", "give the config.json as it was published"):
        load_model(folder / "config.json")


def test_infinity_is_no_damage(tmp_path: Path) -> None:
    folder = written(tmp_path / "snapshot", QWEN3 | {"time_step_limit": [0.0, float("inf")]})
    assert load_model(folder).base_name == "qwen3-30b-a3b"


def test_a_config_in_the_place_of_a_trace_is_a_model(tmp_path: Path) -> None:
    folder = written(tmp_path / "snapshot", QWEN3)
    assert is_model_file(str(folder))
    assert is_model_file(str(folder / "config.json"))
    assert not is_model_file(str(tmp_path))


ODD: tuple[Any, ...] = (None, 0, 1, -1, 2**31, 2**70, 1.5, "x", "", [], [1], [None], {}, {"a": 1}, True)


@pytest.mark.parametrize("seed", range(4))
def test_any_damage_is_a_model_or_one_line(seed: int, tmp_path: Path) -> None:
    """Fields left out or replaced by values of another kind."""
    chance, taken, lines = Random(seed), 0, list[str]()
    for _ in range(150):
        config = json.loads(json.dumps(chance.choice(ROWS)["config"]))
        text = config.get("text_config", config)
        for name in chance.sample(sorted(text), 2):
            text[name] = chance.choice(ODD)
        try:
            model = loaded(tmp_path / "damaged", config)
        except BadInput as error:
            lines.append(str(error))
        else:
            taken += model.routed_bytes > 0
    assert taken + len(lines) == 150
    assert min(taken, len(lines)) > 20
    assert not any("\n" in line for line in lines)
