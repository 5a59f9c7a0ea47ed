"""The folder for what can be made again."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_root() -> Path:
    """The folder of compiled kernels and temporary files: `FLASHMOE_CACHE`, else the user's cache folder."""
    if given := os.environ.get("FLASHMOE_CACHE"):
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "flashmoe-sim"
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "flashmoe-sim" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flashmoe-sim"
