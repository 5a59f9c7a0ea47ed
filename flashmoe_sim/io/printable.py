"""Foreign texts, such as names and notes in files, made safe for a terminal."""

from __future__ import annotations

import codecs
import io
import re
from typing import Any

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


_PLAIN = {"─": "-", "…": "...", "±": "+-"}


def let_print(stream: Any) -> None:
    """Let a stream print what its encoding lacks, as code pages of Windows do, in plainer characters or as `?`."""
    codecs.register_error("plain", _plainer)
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="plain")


def _plainer(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(one, "?") for one in error.object[error.start : error.end]), error.end
