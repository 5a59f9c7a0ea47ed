"""The models and computers that the site has answers for."""

from __future__ import annotations

from collections.abc import Iterator

MODELS = (
    "gpt-oss-120b",
    "gpt-oss-20b",
    "qwen3.6-35b-a3b",
    "qwen3-30b-a3b",
    "qwen3-next-80b-a3b",
    "qwen3.5-122b-a10b",
    "glm-4.7-flash",
    "gemma-4-26b-a4b",
    "glm-4.5-air",
    "qwen3.5-35b-a3b",
    "minimax-m2.1",
    "qwen3-235b-a22b",
    "deepseek-v3",
    "nemotron-3-nano-30b-a3b",
    "mixtral-8x7b",
    "llama-4-scout",
    "ernie-4.5-21b-a3b",
    "granite-4.0-h-small",
    "lfm2-24b-a2b",
    "deepseek-v2-lite",
    "lfm2-8b-a1b",
    "granite-4.0-h-tiny",
    "phi-3.5-moe",
    "trinity-mini",
    "olmoe-1b-7b",
    "nemotron-3-super-120b-a12b",
    "step-3.5-flash",
    "glm-4.6",
    "kimi-k2",
    "qwen3.5-397b-a17b",
)
CARDS = (
    "gtx-1080-ti",
    "rtx-2060",
    "rtx-2080-ti",
    "rtx-3060",
    "rtx-3070",
    "rtx-3080",
    "rtx-3090",
    "rtx-4060",
    "rtx-4060-laptop",
    "rtx-4060-ti-16gb",
    "rtx-4070",
    "rtx-4070-ti-super",
    "rtx-4080",
    "rtx-4090",
    "rtx-5060",
    "rtx-5060-ti-16gb",
    "rtx-5070",
    "rtx-5070-ti",
    "rtx-5080",
    "rtx-5090",
    "rx-6800-xt",
    "rx-7800-xt",
    "rx-7900-xtx",
    "rx-9070-xt",
    "arc-b580",
    "p40",
)
RAM_GIB = (16, 32, 64, 128)
RAM = {"ddr4-3200x2": "ryzen-5600", "ddr5-5600x2": "ryzen-7600"}  # and the CPU where there is no card
DRIVE = "nvme-gen4"
MACS = (
    *("m1-8", "m1-16", "m1-pro-16", "m1-pro-32", "m1-max-32", "m1-max-64", "m1-ultra-64", "m1-ultra-128"),
    *("m2-8", "m2-16", "m2-24", "m2-pro-32", "m2-max-64", "m2-max-96", "m2-ultra-128", "m2-ultra-192"),
    *("m3-16", "m3-24", "m3-pro-36", "m3-max-48", "m3-max-64", "m3-max-128", "m3-ultra-96", "m3-ultra-256"),
    *("m3-ultra-512", "m4-16", "m4-32", "m4-pro-24", "m4-pro-48", "m4-pro-64", "m4-max-64", "m4-max-128"),
    *("m5-16", "m5-32", "m5-pro-48", "m5-max-64", "m5-max-128"),
)
UNIFIED = (
    *("strix-halo-64", "strix-halo-96", "strix-halo-128", "gb10-128", "780m + ddr5-5600x2 + 32GiB"),
    *("780m + ddr5-5600x2 + 64GiB", "890m + 32GiB", "890m + 64GiB", "lunar-lake + 32GiB", "arc-140t + 64GiB"),
)


def groups() -> Iterator[tuple[str, ...]]:
    """All computers, as `--machine` takes them; those with one card are a group."""
    for card in (*CARDS, ""):
        yield tuple(f"{card or cpu} + {ram} + {gib}GiB + {DRIVE}" for ram, cpu in RAM.items() for gib in RAM_GIB)
    yield from ((name,) for name in (*MACS, *UNIFIED))


def computers() -> list[str]:
    """All computers, in the order of the site's data."""
    return [computer for group in groups() for computer in group]
