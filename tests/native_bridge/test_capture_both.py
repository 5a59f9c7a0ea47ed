"""The same weights as a model of transformers and as GGUF: both engines must see the same experts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from native_bridge.capture.llama_cpp import LlamaCpp
from native_bridge.capture.record import RoutedCall
from native_bridge.capture.transformers import Transformers
from native_bridge.fixture.model import add_tokenizer
from tests.native_bridge.needs import needs
from tests.native_bridge.test_capture_transformers import save_tokenizer

pytestmark = [
    pytest.mark.capture,
    needs("llama_cpp", extra="capture"),
    needs("torch", extra="capture-hf"),
    needs("transformers", extra="capture-hf"),
]

WIDTH, HEADS, HEAD, INNER, EXPERTS, TOP_K, LAYERS, VOCABULARY = 64, 2, 32, 32, 16, 4, 3, 512
NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    **{f"self_attn.{part}_proj": f"attn_{part}" for part in "qkv"},
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate": "ffn_gate_inp",
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "olmoe": ("Olmoe", {"intermediate_size": INNER, "norm_topk_prob": False}),
    "qwen3moe": ("Qwen3Moe", {"moe_intermediate_size": INNER, "norm_topk_prob": True, "head_dim": HEAD}),
}
PROMPT = [17, 300, 5, 41, 41, 260, 99, 3, 500, 8, 77]
GENERATED = [12, 400, 6]


def save(folder: Path, arch: str) -> tuple[Path, Path]:
    """The folder of transformers, and the GGUF file."""
    import torch
    import transformers

    name, more = MODELS[arch]
    config = getattr(transformers, f"{name}Config")(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        num_experts=EXPERTS,
        num_experts_per_tok=TOP_K,
        max_position_embeddings=256,
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
        **more,
    )
    torch.manual_seed(3)
    model = getattr(transformers, f"{name}ForCausalLM")(config)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
    folder.mkdir()
    model.save_pretrained(folder)
    save_tokenizer(folder)
    file = folder / f"{arch}.gguf"
    write_gguf(file, arch, {key: value.float().numpy() for key, value in model.state_dict().items()})
    return folder, file


def write_gguf(path: Path, arch: str, weights: dict[str, np.ndarray[Any, Any]]) -> None:
    import gguf

    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(LAYERS)
    writer.add_context_length(256)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_expert_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(TOP_K)
    add_tokenizer(writer, VOCABULARY)
    for ours, theirs in (("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")):
        writer.add_tensor(f"{ours}.weight", weights[f"{theirs}.weight"])
    for layer in range(LAYERS):
        for theirs, ours in NAMES.items():
            writer.add_tensor(f"blk.{layer}.{ours}.weight", weights[f"model.layers.{layer}.{theirs}.weight"])
        experts = f"model.layers.{layer}.mlp.experts"
        gate_up = weights[f"{experts}.gate_up_proj"]
        writer.add_tensor(f"blk.{layer}.ffn_gate_exps.weight", np.ascontiguousarray(gate_up[:, :INNER]))
        writer.add_tensor(f"blk.{layer}.ffn_up_exps.weight", np.ascontiguousarray(gate_up[:, INNER:]))
        writer.add_tensor(f"blk.{layer}.ffn_down_exps.weight", weights[f"{experts}.down_proj"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def evaluated(engine: Any, ubatch: int) -> list[list[RoutedCall]]:
    with engine:
        engine.begin(64)
        parts = [PROMPT[at : at + ubatch] for at in range(0, len(PROMPT), ubatch)]
        steps = [engine.evaluate(part, output=part is parts[-1]) for part in parts]
        return steps + [engine.evaluate([token], output=True) for token in GENERATED]


@pytest.mark.parametrize("ubatch", [1, 4, 64])
@pytest.mark.parametrize("arch", MODELS)
def test_both_engines_see_the_same(tmp_path: Path, arch: str, ubatch: int) -> None:
    folder, file = save(tmp_path / "model", arch)
    in_torch = evaluated(Transformers(folder, threads=1), ubatch)
    in_llama = evaluated(LlamaCpp(file, ubatch=ubatch, threads=1), ubatch)
    assert len(in_torch) == len(in_llama) == -(-len(PROMPT) // ubatch) + len(GENERATED)
    for number, (theirs, ours) in enumerate(zip(in_torch, in_llama, strict=True)):
        has_output = number >= len(in_torch) - len(GENERATED) - 1
        assert [call.layer for call in theirs] == [0, 1, 2]
        # llama.cpp computes the last layer only for tokens with an output
        assert [call.layer for call in ours] == ([0, 1, 2] if has_output else [0, 1])
        for mine, other in zip(ours, theirs, strict=False):
            rows = 1 if mine.layer == LAYERS - 1 else len(other.experts)
            assert mine.experts.tolist() == other.experts[-rows:].tolist()
            # llama.cpp keeps keys and values in 16 bits
            np.testing.assert_allclose(mine.weights, other.weights[-rows:], atol=1e-3)
            assert (mine.weights.sum(-1) < 0.99).all() == (arch == "olmoe")
