"""The command line, the environment and the models of the Flash-MoE fork.

Separate from `slot_bank.py`, because a program that starts the fork reads its flags before it imports a system.
"""

from __future__ import annotations

COMMIT = "64e25509b"
MODES = ("slot-bank", "resident-slot-bank", "resident-bank", "resident")
MODES_WITH_SLOTS = ("slot-bank", "resident-slot-bank")
IO_SPLIT = "--moe-cache-io-split"
PREFETCH = {
    "temporal": "--moe-prefetch-temporal",
    "predict-prev": "--moe-predict-prev-token",
    "predict-top1": "--moe-predict-top1-prev",
}
VARIABLES = "LLAMA_FLASH_MOE_"
NO_GPU_BANK = f"{VARIABLES}DISABLE_GPU_BANK"
_SWITCH = f"{VARIABLES}EXPERIMENTAL_"
_PARALLEL = {f"{_SWITCH}PARALLEL_SLOT_READS": "1"}
INSTALLS: dict[str, dict[str, str]] = {
    "default": {},
    "async": {f"{_SWITCH}ASYNC_SLOT_UPLOAD": "1"},
    "batched": _PARALLEL | {f"{_SWITCH}BATCHED_INSTALL_READS": "1"},
    "futures": _PARALLEL,
}
STREAMED = ("deepseek2", "gemma4", "glm-dsa", "mistral4", "qwen35moe", "qwen3next")  # it refuses to stream others
# Of a branch, by the commit that was read.
STREAMED_BY_BRANCHES = dict.fromkeys(("deepseek4", "minimax-m2"), "DeepSeek-V4-SSD-CUDA (bd11bd13a)")
ON_GPU = ("gemma4",)  # models whose bank is allocated like any other weights, and so on the GPU


def not_streamed(arch: str) -> str:
    """Which architectures it streams, and which branch of it streams this one; empty if it does itself."""
    if not arch or arch in STREAMED:
        return ""
    branch = STREAMED_BY_BRANCHES.get(arch)
    other = f"; its branch {branch} does" if branch else ""
    return f"streams {', '.join(STREAMED)}, not {arch}{other}"


def bank_flags(mode: str, *, sidecar: str, slots: int, top_k: int) -> list[str]:
    """The flags of a mode. sidecar: empty for none. slots: per layer, 0 for none. top_k: 0 for the model's own."""
    words = ["--moe-mode", mode]
    words += ["--moe-sidecar", sidecar] if sidecar else []
    words += ["--moe-slot-bank", str(slots)] if slots else []
    return words + (["--moe-topk", str(top_k)] if top_k else [])
