"""Foreign texts, such as names and notes in files, made safe for a terminal."""

from __future__ import annotations

import re

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
