"""Foreign texts made safe for a terminal, and home folders kept out of pages that are shared."""

from __future__ import annotations

import os
import re
from pathlib import Path

# Control characters, which move a terminal's cursor, set its title or worse; characters that change the direction of
# writing; unusual line ends; and bytes of a file name that are not UTF-8.
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text with escapes, as `\\x1b`, for what must not reach a terminal."""
    return UNPRINTABLE.sub(_escape, text)


def one_line(text: str) -> str:
    """The same, with spaces for line ends and tabs."""
    return printable(re.sub(r"\s*[\n\t]\s*", " ", text))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


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
