"""Pages that are shared do not say where a person keeps files."""

from __future__ import annotations

import os
import re
from pathlib import Path


def without_home(text: str) -> str:
    """The text with `~` for the user's home folder, if a path begins with it; in command lines, too.

    A shell reads `~/'a b'` as it reads `'/home/me/a b'`, but does not replace a `~` in quotes.
    """
    homes = {os.environ.get("HOME", ""), _resolved()}
    for home in sorted(homes - {"", "/"}, key=len, reverse=True):
        # a quote of a shell, or the same in HTML, goes behind the `~`; /mnt/home/me is another folder than /home/me
        text = re.sub(rf"('|&#39;)?(?<![\w.~-]){re.escape(home)}/", lambda found: f"~/{found[1] or ''}", text)
    return text


def _resolved() -> str:
    try:
        return str(Path.home().resolve())
    except (OSError, RuntimeError):  # there is none
        return ""
