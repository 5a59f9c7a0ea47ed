"""What a context takes: each rule by hand, and the sizes that llama.cpp printed."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.geometry import named_model, read_gguf
from flashmoe_sim.geometry.attention_keys import attention_of
from flashmoe_sim.geometry.model import Attention, LayerCache
from flashmoe_sim.io.errors import Malformed, Unsupported
from flashmoe_sim.io.sizes import MIB
from native_bridge.fixture import bundled_model
from tests.geometry.conftest import gguf, key, text
from tests.support import refused

HEADS = {"block_count": 4, "embedding_length": 64, "attention.head_count": 4, "attention.head_count_kv": 2}
STATES = {"ssm.conv_kernel": 4, "ssm.inner_size": 32, "ssm.state_size": 8, "ssm.group_count": 2}
STATE = 3 * (32 + 2 * 2 * 8) + 8 * 32  # three columns of the convolution, and the matrix
U32, BOOL, STRING, ARRAY = 4, 7, 8, 9


def of(arch: str, **keys: Any) -> tuple[LayerCache, ...]:
    found = attention_of(arch, HEADS | {name.replace("__", "."): value for name, value in keys.items()})
    return found.layers


def kept(keys: int, values: int, window: int = 0, *, kv_heads: int = 2) -> LayerCache:
    """A layer of the header's four heads."""
    return LayerCache(keys, values, window, heads=4, kv_heads=kv_heads)


def test_grouped_heads() -> None:
    """Heads are 64 / 4 = 16 wide, and two of the four have keys and values."""
    assert of("qwen3moe") == (kept(32, 32),) * 4
    assert of("qwen3moe", attention__key_length=24) == (kept(48, 32),) * 4
    without = {name: value for name, value in HEADS.items() if name != "attention.head_count_kv"}
    assert attention_of("qwen3moe", without) == Attention((kept(64, 64, kv_heads=4),) * 4)


def test_bytes_of_grouped_heads() -> None:
    """A token takes 4 layers x (32 + 32) x 2 bytes; 300 tokens are 512 cells."""
    attention = Attention(of("qwen3moe"))
    assert attention.token_bytes() == 512
    assert attention.context_bytes(256) == 256 * 512
    assert attention.context_bytes(257) == attention.context_bytes(512) == 512 * 512
    assert attention.context_bytes(0) == 0


@pytest.mark.parametrize(
    ("kv_type", "bytes_of_32"),
    [("f32", 128), ("f16", 64), ("bf16", 64), ("q8_0", 34), ("q5_1", 24), ("q5_0", 22), ("q4_1", 20), ("q4_0", 18)],
)
def test_types_of_the_cache(kv_type: str, bytes_of_32: int) -> None:
    attention = Attention((LayerCache(32, 32),))
    assert attention.token_bytes(kv_type=kv_type) == 2 * bytes_of_32
    assert attention.context_bytes(256, kv_type=kv_type) == 256 * 2 * bytes_of_32


def test_a_type_whose_blocks_do_not_fit() -> None:
    with pytest.raises(Unsupported, match="--kv-type q8_0: has blocks of 32, and a layer keeps 24 numbers of a token"):
        Attention((LayerCache(24, 24),)).token_bytes(kv_type="q8_0")


def test_windows() -> None:
    """Every second layer of gpt-oss has one, of every four of llama4 all but the last; smallthinker begins without."""
    window = {"attention__sliding_window": 128}
    assert [layer.window for layer in of("gpt-oss", **window)] == [128, 0, 128, 0]
    assert [layer.window for layer in of("llama4")] == [8192, 8192, 8192, 0]
    assert [layer.window for layer in of("llama4", attention__sliding_window=0)] == [0, 0, 0, 0]
    assert [layer.window for layer in of("smallthinker", **window)] == [0, 4096, 4096, 4096]
    assert [layer.window for layer in of("afmoe", **window, attention__sliding_window_pattern=3)] == [128, 128, 0, 128]
    assert [layer.window for layer in of("qwen3moe", **window)] == [0, 0, 0, 0]  # not used


def test_a_pattern_of_the_header() -> None:
    keys = {"attention__sliding_window": 100, "attention__sliding_window_pattern": [True, False, False, True]}
    keys |= {"attention__key_length_swa": 8, "attention__value_length_swa": 4}
    assert of("gemma4", **keys) == (
        kept(16, 8, 100),
        kept(32, 32),
        kept(32, 32),
        kept(16, 8, 100),
    )
    assert of("gemma4", **keys, attention__shared_kv_layers=3) == (kept(16, 8, 100),)


def test_bytes_of_a_window() -> None:
    """A window of 100 keeps 100 + 512 tokens in 768 cells, and no more than the context."""
    layer = Attention((LayerCache(32, 32, 100),))
    assert layer.context_bytes(512) == 512 * 128
    assert layer.context_bytes(700) == layer.context_bytes(100_000) == 768 * 128
    assert layer.context_bytes(100_000, sequences=4) == 1024 * 128  # 4 x 100 + 512
    assert layer.token_bytes() == 0


def test_a_latent_has_no_values() -> None:
    """512 + 64 numbers of a token, whatever the heads; without key_length_mla, a file keeps what each head has."""
    keys = {"attention__head_count_kv": 1, "attention__key_length": 576, "attention__value_length": 512}
    assert of("deepseek2", **keys, attention__key_length_mla=192) == (kept(576, 0, kv_heads=1),) * 4
    assert of("deepseek2", **keys) == (kept(576, 512, kv_heads=1),) * 4


def test_layers_with_a_state() -> None:
    """Every fourth layer has keys and values; the others a state of 32-bit numbers, for each sequence."""
    layers = of("qwen35moe", **STATES)
    assert layers == (*(LayerCache(state=STATE),) * 3, kept(32, 32))
    assert [bool(layer.state) for layer in of("qwen3next", **STATES, full_attention_interval=2)] == [1, 0, 1, 0]
    assert Attention(layers).context_bytes(256) == 256 * 128 + 3 * STATE * 4
    assert Attention(layers).context_bytes(256, sequences=4) == 256 * 128 + 4 * 3 * STATE * 4
    assert Attention(layers).token_bytes(kv_type="q8_0") == 68


def test_layers_without_heads() -> None:
    """Of nemotron_h_moe, a layer of experts keeps nothing; of others, each layer without KV heads has a state."""
    heads = {"attention__head_count_kv": [0, 2, 0, 0]}
    nemotron = of("nemotron_h_moe", **STATES, **heads, feed_forward_length=[0, 0, 9, 0])
    assert nemotron == (LayerCache(state=STATE), kept(32, 32), LayerCache(), LayerCache(state=STATE))
    assert of("granitehybrid", **STATES, **heads)[2] == LayerCache(state=STATE)
    assert of("lfm2moe", **heads, shortconv__l_cache=3)[0] == LayerCache(state=64 * 2)
    assert of("kimi-linear", **heads, ssm__conv_kernel=4, kda__head_dim=8)[0] == LayerCache(
        state=3 * 3 * 4 * 8 + 8 * 8 * 4
    )
    assert of("qwen3moe", **heads) == (LayerCache(), kept(32, 32), LayerCache(), LayerCache())


def test_layers_with_compressed_positions() -> None:
    """A window of 3, and one position of every 4 tokens with an indexer, or of 128 without; two layers have neither."""
    keys: dict[str, Any] = {"attention__key_length": 32, "attention__sliding_window": 300}
    keys |= {"attention__compress_ratios": [0, 4, 128, 0, 9], "attention__indexer__key_length": 64}
    layers = of("deepseek4", **keys)
    plain = LayerCache(32, 0, 300, heads=4, kv_heads=1)
    overlapping = 8 * (2 * 32 + 2 * 64) * 2
    chosen = replace(plain, state=overlapping, ratio=4, indexer=64)
    assert layers == (plain, chosen, replace(plain, state=128 * 32 * 2, ratio=128), plain)
    assert chosen.attended(1000) == 300 + 250
    assert chosen.attended(100) == 100 + 25
    # 1024 cells: a window of 300 + 512 tokens in 1024 cells; a position of 4 tokens in 256, of 128 in 256
    assert chosen.context_bytes(1024, kv_type="f16", sequences=1) == (1024 + 256) * 2 * (32 + 64)
    assert layers[2].context_bytes(1024, kv_type="f16", sequences=1) == (1024 + 256) * 2 * 32
    assert Attention(layers).token_bytes() == 2 * (32 + 64) // 4 + 2 * 32 // 128


def test_layers_that_draft_have_none() -> None:
    assert len(of("glm4moe", nextn_predict_layers=1)) == 3
    assert len(of("qwen3moe", nextn_predict_layers=1)) == 4


def test_what_is_not_known() -> None:
    assert attention_of("deepseek4", HEADS) is None
    assert attention_of("qwen3moe", {"block_count": 4}) is None
    assert attention_of("qwen3moe", {"attention.head_count": 4}) is None


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"attention__head_count_kv": [2, 2]},
            "attention.head_count_kv has 2 numbers; expected one for each of 4 layers",
        ),
        ({"attention__head_count": "x"}, "attention.head_count is 'x'; expected a whole number from 0"),
        ({"attention__head_count": -4}, "attention.head_count is -4; expected a whole number from 0"),
        ({"attention__key_length": 0.5}, "attention.key_length is 0.5; expected a whole number from 0"),
        ({"full_attention_interval": 0}, "full_attention_interval is 0; expected 1 or more"),
    ],
)
def test_keys_that_cannot_be(keys: dict[str, Any], message: str) -> None:
    with refused(Malformed, message):
        of("qwen35moe", **keys)


def a_file(tmp_path: Path, heads_kv: bytes, tensors: list[bytes]) -> Path:
    """A model of gemma4 with a pattern and KV heads of each of its two layers."""

    def number(name: str, value: int) -> bytes:
        return key(f"gemma4.{name}", U32, struct.pack("<I", value))

    keys = [key("general.architecture", STRING, text("gemma4")), number("expert_used_count", 2)]
    keys += [number("block_count", 2), number("embedding_length", 8), number("attention.head_count", 2)]
    keys += [number("attention.sliding_window", 128), key("gemma4.attention.head_count_kv", ARRAY, heads_kv)]
    pattern = struct.pack("<IQ2?", BOOL, 2, True, False)
    keys.append(key("gemma4.attention.sliding_window_pattern", ARRAY, pattern))
    path = tmp_path / "small.gguf"
    path.write_bytes(gguf(keys, tensors, data_bytes=800))
    return path


def test_from_a_file(tmp_path: Path, moe_tensors: list[bytes]) -> None:
    model = read_gguf(a_file(tmp_path, struct.pack("<IQ2I", U32, 2, 2, 1), moe_tensors))
    assert model.attention == Attention(
        (LayerCache(8, 8, 128, heads=2, kv_heads=2), LayerCache(4, 4, heads=2, kv_heads=1))
    )


def test_a_file_with_too_few_heads(tmp_path: Path, moe_tensors: list[bytes]) -> None:
    model = read_gguf(a_file(tmp_path, struct.pack("<IQI", U32, 1, 2), moe_tensors))
    assert model.attention is None
    assert model.notes[-1].startswith(
        "what the context takes is not known: gemma4.attention.head_count_kv has 1 number"
    )


def attention(name: str) -> Attention:
    found = named_model(name).attention
    assert found is not None
    return found


def test_the_bundled_model_as_the_runtime_prints_it() -> None:
    """4.00 MiB of keys and values with -c 4000, 1.62 with q8_0 keys and q4_0 values, and 0.07 MiB of states."""
    found = read_gguf(bundled_model()).attention
    states = sum(layer.state for layer in found.layers) * 4
    assert round(states / MIB, 2) == 0.07
    assert found.context_bytes(4000) == 4 * MIB + states
    mixed = sum(found.context_bytes(4000, kv_type=kind) - states for kind in ("q8_0", "q4_0")) / 2
    assert round(mixed / MIB, 3) == 1.625


def test_gpt_oss_20b_as_llama_cpp_prints_it() -> None:
    """b8164 with -c 131072: 3072 MiB in 12 layers, and 18 MiB in 12 with 768 cells."""
    assert attention("gpt-oss-20b").context_bytes(131072) == (3072 + 18) * MIB
    assert attention("gpt-oss-20b").token_bytes() == 12 * 2 * 8 * 64 * 2
    # ggml-org/llama.cpp docs/backend/hexagon/developer.md: 102.00 MiB of q8_0 in the layers without a window
    assert attention("gpt-oss-20b").token_bytes(kv_type="q8_0") * 8192 == 102 * MIB


def test_qwen3_5_as_llama_cpp_prints_it() -> None:
    """States of 4 sequences: 11.25 MiB of convolutions and 240 MiB of matrices in 30 layers."""
    found = attention("qwen3.5-35b-a3b")
    assert sum(layer.state for layer in found.layers) * 4 * 4 == 251.25 * MIB
    assert found.context_bytes(4096) == 80 * MIB + 251.25 * MIB / 4


def test_deepseek_v4_flash_as_llama_cpp_prints_it() -> None:
    """ggml-org/llama.cpp issue 27872: states of 10.00 MiB in 20 layers, and 0.33 MiB of the indexers of 21 others."""
    layers = attention("deepseek-v4-flash").layers
    assert sum(layer.state for layer in layers if layer.ratio == 128) * 4 == 10 * MIB
    of_indexers = sum(16 * 2 * layer.indexer for layer in layers) * 4
    assert round(of_indexers / MIB, 2) == 0.33
    of_positions = sum(16 * 2 * layer.keys for layer in layers if layer.ratio == 4) * 4
    assert sum(layer.state for layer in layers) * 4 == 10 * MIB + of_indexers + of_positions
    assert attention("deepseek-v4-flash").token_bytes() == 2 * (21 * (512 + 128) // 4 + 20 * 512 // 128)


def test_latents_beside_states() -> None:
    """GLM-5.3-Flash keeps latents in 11 of 45 layers, Kimi-K3 in 24 of 93, whose states are 6 MiB and a convolution."""
    glm, kimi = attention("glm-5.3-flash"), attention("kimi-k3")
    assert [sum(bool(layer.keys) for layer in found.layers) for found in (glm, kimi)] == [11, 24]
    assert glm.token_bytes() == 11 * 2 * (512 + 128 // 4)
    assert {layer.state for layer in kimi.layers} == {0, 6 * MIB // 4 + 3 * 3 * 96 * 128}


def test_bytes_of_a_token_as_published() -> None:
    """13.1 kB of q8_0 in 12 of 48 layers with 2 heads of 256; 70,272 of 16 bits in 61 layers of 576 numbers."""
    assert attention("qwen3.8-flash-next").token_bytes(kv_type="q8_0") == 12 * 2 * 512 * 34 / 32
    assert attention("deepseek-v3").token_bytes() == attention("kimi-k2").token_bytes() == 61 * 576 * 2 == 70_272


def test_a_dense_model_of_the_same_kind() -> None:
    """ggml-org/llama.cpp pull request 23792, Qwen3.8-27B, 3 sequences: R 16.88 MiB, S 432.00 MiB in 48 layers."""
    keys = HEADS | STATES | {"ssm.inner_size": 6144, "ssm.state_size": 128, "ssm.group_count": 16, "block_count": 64}
    found = attention_of("qwen35moe", keys)
    assert round(sum(layer.state for layer in found.layers) * 4 * 3 / MIB, 2) == round(16.875 + 432, 2)


def test_gemma_4_as_published() -> None:
    """ollama/ollama pull request 16958, in GB: 0.40, 0.48, 0.99 and 3.00."""
    sizes = [attention("gemma-4-26b-a4b").context_bytes(tokens) / 1e9 for tokens in (4096, 8192, 32768, 131072)]
    assert [round(size, 2) for size in sizes] == [0.40, 0.48, 0.99, 3.00]
