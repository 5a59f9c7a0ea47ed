"""The presets, in the order in which they are shown; each is `presets/NAME.toml`."""

from __future__ import annotations

PRESETS = (
    "m1-8",
    "m1-pro-32",
    "m1-ultra-128",
    "m2-16",
    "m3-16",
    "m3-pro-36",
    "m3-max-48",
    "m4-32",
    "m4-pro-48",
    "m4-max-128",
    "m5-32",
    "m5-pro-48",
    "m5-max-128",
    "strix-halo-128",
    "gb10-128",
    "rtx-3060",
    "rtx-3090",
    "rtx-4090",
    "rtx-5090",
    "laptop-ddr4",
    "phone-ufs4",
    "vm-2core",
)
