"""The presets there are, in the order in which they are shown; each is `presets/NAME.toml`."""

from __future__ import annotations

PRESETS = (
    "m5-pro-48",
    "phone-ufs4",
    "vm-2core",
)
