"""Pages that are shared do not say where a person keeps files."""

from __future__ import annotations

import os
from pathlib import Path


def without_home(text: str) -> str:
    """The text with `~` for the user's home folder, where a path begins with it; in command lines, too.

    A shell reads `~/'a b'` as it reads `'/home/me/a b'`, but does not replace a `~` in quotes.
    """
    homes = {os.environ.get("HOME", ""), _resolved()}
    for home in sorted(homes - {"", "/"}, key=len, reverse=True):
        for quote in ("'", "&#39;"):  # of a shell, and the same in HTML
            text = text.replace(f"{quote}{home}/", f"~/{quote}")
        text = text.replace(f"{home}/", "~/")
    return text


def _resolved() -> str:
    try:
        return str(Path.home().resolve())
    except (OSError, RuntimeError):  # there is none
        return ""
