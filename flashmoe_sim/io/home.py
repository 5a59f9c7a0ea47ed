"""Keeps home folders out of pages that are shared."""

from __future__ import annotations

import os
import re
from pathlib import Path


def without_home(text: str) -> str:
    """The text with `~` for the user's home folder at the beginning of a path, also in command lines.

    A shell reads `~/'a b'` like `'/home/me/a b'`, but does not expand a `~` in quotes.
    """
    homes = {os.environ.get("HOME", ""), _resolved()}
    homes |= {home.replace("\\", "\\\\") for home in homes}  # of Windows, in JSON
    for home in sorted(homes - {"", "/"}, key=len, reverse=True):
        # a quote, of a shell or in HTML, goes after the `~`; /mnt/home/me is not /home/me
        text = re.sub(
            rf"('|&#39;)?(?<![\w.~-]){re.escape(home)}([/\\])", lambda found: f"~{found[2]}{found[1] or ''}", text
        )
    return text


def _resolved() -> str:
    try:
        return str(Path.home().resolve())
    except (OSError, RuntimeError):  # there is none
        return ""
