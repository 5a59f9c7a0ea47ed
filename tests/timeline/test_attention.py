"""What attention to earlier tokens costs, by hand; and its laws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.model import Attention, LayerCache
from flashmoe_sim.io.errors import Incomplete
from flashmoe_sim.machines.attention_rates import CPU, bare, with_attention, without_estimates
from flashmoe_sim.machines.compose import compose
from flashmoe_sim.machines.estimates import estimate, estimates
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Compute, Quantity
from flashmoe_sim.timeline.assemble import Conditions, price, weigh
from flashmoe_sim.timeline.attention_cost import attention_cost

GROUPED = LayerCache(keys=1024, values=1024, heads=64, kv_heads=8)  # heads of 128, eight for each key
WINDOWED = replace(GROUPED, window=128)
MLA = LayerCache(keys=576, heads=128, kv_heads=1)
COMPRESSED_4 = LayerCache(keys=512, window=128, state=9, heads=64, kv_heads=1, ratio=4, indexer=128)
CHOOSING = replace(GROUPED, chooses=2048)
WIDE = LayerCache(keys=1024, values=1024, heads=16, kv_heads=2)  # heads of 512


def quantity(value: float) -> Quantity:
    return Quantity(value, value, value, "test", "test")


UNIT = Compute(weights_gb_s=quantity(100), attention_gb_s=quantity(100), layer_us=quantity(0), knee_tokens=quantity(28))


def read_ms(*layers: LayerCache, depth: int = 100_000, api: str = "cuda", kv_type: str = "f16") -> float:
    return 1e3 * attention_cost(Attention(layers), depth, UNIT, api=api, kv_type=kv_type).read_s


def latent(api: str) -> float:
    return estimate("attention.latent", api).value


def test_bytes_by_kind_of_layer() -> None:
    """4,096 bytes a token and layer at 100 GB/s: 100,000 tokens take 4.096 ms."""
    assert read_ms(GROUPED) == pytest.approx(4.096)
    assert read_ms(GROUPED, GROUPED) == pytest.approx(8.192)
    assert read_ms(WINDOWED) == pytest.approx(4.096 * 128 / 100_000)
    assert read_ms(WINDOWED, depth=64) == pytest.approx(4.096 * 64 / 100_000)
    assert read_ms(LayerCache(state=1000), LayerCache()) == 0
    for api in ("cuda", "metal", CPU):
        assert read_ms(MLA, api=api) == pytest.approx(1.152 / latent(api))
        share = estimate("attention.compressed", api).value
        assert read_ms(COMPRESSED_4, api=api) == pytest.approx(1280 * (128 + 25_000) / 1e8 / share)


def test_metal_reads_the_tokens_that_a_layer_chooses() -> None:
    indexed, share = replace(MLA, indexer=32), estimate("attention.chosen_latent.metal").value
    assert read_ms(indexed, api="metal") * share == pytest.approx(read_ms(indexed) * latent("cuda"))


def test_a_quantized_cache_by_backend() -> None:
    """16 bits take 4.096 ms. Of 32 numbers q8_0 has 34 bytes and q4_0 has 18."""
    for api, times in estimates("attention.quantized_times").items():
        assert read_ms(GROUPED, api=api, kv_type="q8_0") == pytest.approx(4.096 * times.value)
        assert read_ms(GROUPED, api=api, kv_type="q4_0") == pytest.approx(4.096 * times.value)
    assert read_ms(GROUPED, api="sycl", kv_type="q4_0") == pytest.approx(4.096 * (9 / 32 + 2))
    for api in ("cuda", "rocm"):  # wide heads and latents are first converted to 16 bits
        assert read_ms(WIDE, api=api, kv_type="q8_0") == pytest.approx(4.096 * (17 / 32 + 2))
        assert read_ms(MLA, api=api, kv_type="q8_0") == pytest.approx(1.152 / latent(api) * (17 / 32 + 2))


def test_cuda_and_rocm_unpack_for_every_query_head() -> None:
    """2,048 numbers of 100,000 tokens for each of 8 query heads; UNIT does 1e13 operations a second."""
    numbers = 100_000 * 2048 * 8
    cuda, rocm = (estimates(f"attention.unpacked.{api}") for api in ("cuda", "rocm"))
    assert read_ms(GROUPED, kv_type="q8_0") == pytest.approx(1e3 * numbers / (cuda["eight_bits"].value * 1e13))
    assert read_ms(GROUPED, kv_type="q4_0") == pytest.approx(1e3 * numbers / (cuda["fewer_bits"].value * 1e13))
    for kv_type, bits in (("q8_0", "eight_bits"), ("q4_0", "fewer_bits")):  # at the root of 100 GB/s
        assert read_ms(GROUPED, api="rocm", kv_type=kv_type) == pytest.approx(1e3 * numbers / (rocm[bits].value * 10))
    large = replace(UNIT, weights_gb_s=quantity(100_000), attention_gb_s=quantity(1000))
    cost = attention_cost(Attention((GROUPED,)), 100_000, large, api="cuda", kv_type="q4_0")
    assert cost.read_s == pytest.approx(numbers / cuda["most"].value)
    alone = replace(GROUPED, heads=8)  # one query head: as many bytes as it keeps take longer
    cost = attention_cost(Attention((alone,)), 100_000, large, api="cuda", kv_type="q8_0")
    assert 1e3 * cost.read_s == pytest.approx(0.4096 * 17 / 32)


@pytest.mark.parametrize(("kv_type", "us"), [("q8_0", 65), ("q4_0", 88)])
def test_an_rtx_4070_at_depth(kv_type: str, us: float) -> None:
    """Microseconds per 1,000 tokens of depth, measured with Qwen3.6-35B-A3B at 32,000 to 238,000 tokens."""
    on, model = with_attention(compose("rtx-4070 + ryzen-5600x + 64GiB")), load_model("qwen3.6-35b-a3b")
    weights = weigh(model, tuple(model.layers.values()), Conditions())
    costs = price(weights, on, Conditions(depth=100_000, kv_type=kv_type), io_split=4)
    assert len(model.layers) * costs.attention_s / 100 == pytest.approx(us * 1e-6, rel=0.2)


def test_tokens_that_a_layer_does_not_choose_are_masked_and_read() -> None:
    """97,952 of 100,000 tokens; 8 query heads for each key."""
    masked = estimates("attention.masked")
    assert read_ms(CHOOSING, depth=2048) == read_ms(GROUPED, depth=2048)
    assert read_ms(CHOOSING) == pytest.approx(4.096e-5 * (2048 + 97_952 * 8 * masked["cuda_share"].value))
    assert read_ms(CHOOSING, api="vulkan") == pytest.approx(4.096e-5 * (2048 + 97_952 * masked["times"].value))
    assert read_ms(CHOOSING, kv_type="q8_0") == pytest.approx(
        read_ms(GROUPED, kv_type="q8_0") * (0.02048 + 0.97952 * masked["cuda_quantized_times"].value)
    )
    assert read_ms(CHOOSING, api=CPU) == read_ms(GROUPED, api=CPU)


def test_arithmetic_of_a_prompt() -> None:
    """28 tokens x 2 operations of weights of 0.56 bytes at 100 GB/s are 10 TFLOPS; a head does 2 x 256 a token."""
    cost = attention_cost(Attention((GROUPED,)), 1000, UNIT, api="cuda", kv_type="f16")
    assert cost.token_s == pytest.approx(1000 * 64 * 512 / 1e13)
    cost = attention_cost(Attention((MLA,)), 1000, UNIT, api="cuda", kv_type="f16")
    assert cost.token_s == pytest.approx(1000 * 128 * 2 * 1088 / 1e13)
    cost = attention_cost(Attention((COMPRESSED_4,)), 1000, UNIT, api="cuda", kv_type="f16")
    assert cost.token_s == pytest.approx(
        (128 + 250) * 64 * 2 * 1088 * estimate("attention.compressed_operations").value / 1e13
    )


def test_deeper_never_takes_less() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        layers = tuple(rng.choice([GROUPED, WINDOWED, MLA, WIDE, CHOOSING, COMPRESSED_4, LayerCache(state=9)], 5))  # type: ignore[arg-type]
        shallow, deep = sorted(rng.integers(0, 200_000, 2).tolist())
        api, kv_type = (
            str(rng.choice(["cuda", "rocm", "vulkan", "metal", "sycl", CPU, ""])),
            str(rng.choice(["f16", "q8_0", "q4_0"])),
        )
        less, more = (attention_cost(Attention(layers), at, UNIT, api=api, kv_type=kv_type) for at in (shallow, deep))
        assert less.read_s <= more.read_s
        assert less.token_s <= more.token_s


def test_seconds_of_gpt_oss_at_depth() -> None:
    """18 of 36 layers read 2 x 8 x 64 numbers of every token, 18 of the last 128."""
    on, model = load_machine("rtx-3090"), load_model("gpt-oss-120b")
    on = on.varied("gpu.attention_gb_s", 500)
    weights = weigh(model, tuple(model.layers.values()), Conditions())
    costs = price(weights, on, Conditions(depth=65_536), io_split=4)
    assert 36 * costs.attention_s == pytest.approx(18 * 2048 * (65_536 + 128) / 500e9)
    assert price(weights, on, Conditions(), io_split=4).attention_s == 0


@pytest.mark.parametrize(
    ("machine", "us"), [("strix-halo-128", 400), ("m3-ultra + 512GiB", 99)], ids=["rocm, vulkan", "ds4 on a Mac"]
)
def test_slopes_of_deepseek_v4_flash(machine: str, us: float) -> None:
    """Published microseconds per 1,000 tokens of depth, one token at a time."""
    on, model = load_machine(machine), load_model("deepseek-v4-flash:ds4-q2")
    weights = weigh(model, tuple(model.layers.values()), Conditions())
    costs = price(weights, on, Conditions(depth=65_536), io_split=4)
    assert 43 * costs.attention_s / 65.536 == pytest.approx(us * 1e-6, rel=0.15)


@pytest.mark.parametrize(
    ("machine", "us"),
    [("strix-halo-128", 420), ("rtx-3090", 277), ("rtx-pro-6000 + ryzen-9950x + 96GiB", 152)],
)
def test_slopes_of_flash_next(machine: str, us: float) -> None:
    """As published of llama.cpp, from 8,192 tokens on."""
    on = with_attention(compose(machine)) if "+" in machine else load_machine(machine)
    model = load_model("qwen3.8-flash-next")
    weights = weigh(model, tuple(model.layers.values()), Conditions())
    shallow, deep = (
        len(model.layers) * price(weights, on, Conditions(depth=depth), io_split=4).attention_s
        for depth in (8192, 131_072)
    )
    assert (deep - shallow) / 122.88 == pytest.approx(us * 1e-6, rel=0.15)


def test_a_rate_is_estimated_where_a_file_has_none() -> None:
    on = load_machine("rtx-3090")
    assert on.gpu.attention_gb_s.value == pytest.approx(on.gpu.weights_gb_s.value)
    assert on.gpu.attention_gb_s.estimated
    assert without_estimates(on) == bare(on)
    own = on.varied("gpu.attention_gb_s", 123)
    assert with_attention(own) == own
    assert without_estimates(own).gpu == own.gpu


def test_what_is_not_known_is_said() -> None:
    on, model = load_machine("rtx-3090"), load_model("gpt-oss-120b")
    weights = weigh(model, tuple(model.layers.values()), Conditions())
    with pytest.raises(Incomplete, match=r"--depth 9: machine rtx-3090 has no gpu\.attention_gb_s"):
        price(weights, bare(on), Conditions(depth=9), io_split=4)
    with pytest.raises(Incomplete, match=r"--depth 9: what attention of .* reads is not known"):
        price(replace(weights, attention=None), on, Conditions(depth=9), io_split=4)
