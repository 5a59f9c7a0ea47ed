"""What commands print: every line fits 80 columns, nothing is cut off or unknown, and these words are there."""

from __future__ import annotations

import re
import shlex

import pytest

from flashmoe_sim.geometry import named_models
from tests.support import printed_by
from tests.support.cases import rows

# Arguments of `sim`, and what is among the words that it prints.
TABLE = """
ceilings python-256 --bank 64 --machine vm-2core --dense 10MiB --policy static
ceilings python-256 --bank 1 --contract atomic --machine rtx-5090 --dense 1MiB
ceilings python-256 --bank 1 --contract sequential --machine vm-2core --dense 3GiB --lookahead 2147483647
ceilings qwen3-30b-mlx --bank 32 --machine rtx-5090 --dense 1GiB --contract atomic --policy hot-window
ceilings deepseek-v2-lite --bank 1GiB --machine m5-max-128 --dense 30GiB --contract atomic --scope global
ceilings gpt-oss-120b --bank 16 --machine m2-16 --dense 2GiB --prefetch next-layer --execution overlap-prefetch
curve python-256 --policy min
curve deepseek-v2-lite --policy min
curve qwen3-30b-phone --policy min
diagnose python-256 --bank 8
diagnose python-256 --bank 256
diagnose python-256 --bank 128 --policy static
diagnose python-256 --bank 7 --scope global --contract atomic
diagnose python-256 --bank 1 --contract sequential --policy random
diagnose deepseek-v2-lite --bank 4GiB --scope global --contract atomic --policy static:global
diagnose gpt-oss-120b --bank 1 --policy min --contract atomic --scope global
diagnose qwen3-30b-mlx --bank 5GiB --contract atomic
diagnose gemma-4-26b-phone --bank 30 --scope global
replay python-256 --bank 3MiB | bank 3MiB (bytes, shared equally by the layers)
replay python-256 --bank 3MiB --scope global --all-layers | bank 3MiB (bytes of one bank for all layers)
replay python-256 --bank 16 --scope global | bank 16 (slots of each layer, in one bank)
replay python-256 --bank 16 --policy hot-window --contract atomic --all-layers | python-256: hot-window,
replay gpt-oss-120b --bank 16 --policy static:global --all-layers | gpt-oss-120b: static:global, bank 16
replay deepseek-v2-lite --bank 16 --prefetch temporal --policy random:seed=7 | random:seed=7
sweep gpt-oss-120b --bank 32,64 --policy static:global,min,random:seed=77777 | 64 static:global | 64 random:seed=77777
sweep deepseek-v2-lite --bank 16 --policy random:seed=1234567,min:forced | 16 random:seed=1234567 | 16 min:forced
sweep python-256 prose-256 --bank 16,32 --prefetch predict-prev
sweep --bank 16..256 --policy static:global,lru,min --contract protected --prefetch all | 256 static:global | 256 lru
sweep gpt-oss-120b --bank 64 --prefetch none,synthetic:recall=0.3:extra=2 | synthetic:recall=0.3:extra=2
trace catalog | python-256 1,026 6 256 8
model show qwen3-30b-a3b | MoE layers 48 | experts a layer 128 | expert, mean 2,856,960 | routed experts 16.35 GiB
model show qwen3-30b-a3b | ffn_down_exps 884,736 to 1,290,240 | dense weights 0.93 GiB | of one token 1,046.2 MiB
model show qwen3-30b-a3b | bytes a token of context 98,304 | context of 4,096 tokens 384 MiB | 131,072 tokens 12.0 GiB
model show qwen3-30b-a3b | reads an install (split 4) 9 to 12 | 24 128 3,059,712 9 | 64 8.17 50.0%
model show qwen3-30b-a3b | format GGUF activation silu biases in experts no gate and up in one tensor no expert groups
model show gpt-oss-20b | activation swiglu-oai biases in experts yes
model show deepseek-v3 | expert groups 8
model show gemma-4-26b-a4b | activation gelu biases in experts no gate and up in one tensor yes
model show gemma-4-26b-a4b | expert groups none a scale per expert yes
model show nemotron-3-nano-30b-a3b | activation relu-sqr, no gate
model show deepseek-v4-flash | activation silu, clamped
model show llama-4-scout | routing weights before experts yes
model show glm-5.3-flash | format safetensors activation not known biases in experts not known
model show qwen3.5-397b-a17b:mlx-2bit | format MLX
model show kimi-k3:vq3r | format warp
model show deepseek-v2-lite:q8_0 | dense weights ~1.33 GiB
model show kimi-k2.5:ud-tq1_0 | dense weights ~7.00 GiB
machine parts 4090 | rtx-4090 gpu NVIDIA GeForce RTX 4090 24 1008 | rtx-4090d gpu NVIDIA GeForce RTX 4090 D 24 1008
machine parts 'Ryzen 5 5600G' | ryzen-5600g cpu AMD Ryzen 5 5600G - 51.2
machine parts 990-pro | 990-pro storage Samsung 990 PRO - 7.45
machine parts arc-pro-b70 | arc-pro-b70 gpu Intel Arc Pro B70 32 ~608
"""
CASES = [*rows(TABLE), *([f"model show {name}", "source: "] for name in named_models())]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_it_fits_and_says(capsys: pytest.CaptureFixture[str], case: list[str]) -> None:
    arguments, *fragments = case
    out = printed_by(capsys, *shlex.split(arguments), quiet=False)
    assert max(map(len, out.splitlines())) <= 80
    assert re.search(r"…|\b(None|nan|inf)\b|\de\+", out) is None
    words = " ".join(out.split())
    assert [fragment for fragment in fragments if fragment not in words] == []
