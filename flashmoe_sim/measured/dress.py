"""What stands around a program's output: prefixes of lines, HTML, and how countries write numbers."""

from __future__ import annotations

import html
import re

# Spaces that group digits or fill a line; between digits they stay one mark, which is no ordinary space.
_SPACES = "\u00a0\u2007\u2009\u202f"
GROUPING = "\u202f"
_BETWEEN_DIGITS = re.compile(rf"(?<=\d)[{_SPACES}](?=\d)")
_ELSEWHERE = re.compile(rf"(?<!\d)[{_SPACES}]|[{_SPACES}](?!\d)")
_TAG = re.compile(
    r"</?(?:!doctype|html|head|meta|title|body|pre|code|p|div|span|b|i|strong|em|tt)\b[^<>\n]*>", re.IGNORECASE
)
_BREAK = re.compile(r"<br\s*/?>(?!\s*\n)", re.IGNORECASE)
_HTML = re.compile(r"<(?:html|body|pre|code|p|div|span|br)\b[^<>\n]*>|&(?:quot|#34|#39|nbsp);", re.IGNORECASE)
_BARS = str.maketrans(
    {
        **dict.fromkeys("│┃║┆┊╎┇┋\uff5c", "|"),
        **dict.fromkeys("─━═┄┈╌╴╶", "-"),
        **dict.fromkeys("├┤┼┬┴┌┐└┘╞╡╪╔╗╚╝╠╣╦╩╬╭╮╰╯", "+"),
    }
)
_DAY = r"\d{4}-\d\d-\d\d[T ]"
_TIME = r"\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[ ]?[+-]\d\d:?\d\d)?"
_PREFIX = re.compile(
    rf"""^(?:
    (?:>[ ]?)+                                                                      # a quotation
    | (?:[^\t|]{{1,80}}\t){{0,2}}\[?{_DAY}{_TIME}\]?[ ](?:\d\d[OE][ ]|std(?:out|err)[ ][FP][ ])?  # CI, containers
    | \[?{_TIME}\]?[ ]
    | [A-Z][a-z]{{2}}[ ][ \d]\d[ ]{_TIME}[ ]\S+[ ][^\s:]+:[ ]                       # journald
    | [\w.-]+[ ]+\|[ ](?=\s*[\[\]{{}}"]|build_commit,|INSERT[ ]|\s*$)  # Docker Compose
    )""",
    re.VERBOSE | re.MULTILINE,
)
_MARKS = f"'\u2019{GROUPING}"  # that only group digits
# A number with whatever groups its digits; `figure` and `whole` say which one it is.
NUMBER = (
    rf"(?<![\w.,{_MARKS}])(\d[\d.,{_MARKS}]{{0,24}}(?<=\d)(?![\d{GROUPING}])"
    r"(?:[ ]\d{3}(?![\d\w]))*(?:[.,]\d+)?)"
)


def plain_text(text: str) -> str:
    """A text without HTML, with ordinary spaces and bars; its lines keep their numbers, unless HTML breaks them."""
    if _HTML.search(text):
        text = html.unescape(_TAG.sub("", _BREAK.sub("\n", text)))
    text = _BETWEEN_DIGITS.sub(GROUPING, _ELSEWHERE.sub(" ", text))
    return text.translate(_BARS)


def undressed(text: str) -> str:
    """A text without what a quotation, a service's log or a container puts before each line."""
    return _PREFIX.sub("", text)


def figure(text: str) -> float | None:
    """The number that a program printed, with a point or a comma; None if it may be one of two, such as 1,234."""
    parts = re.split(f"[{_MARKS}]", text)
    if " " in text or not _grouped([re.split("[.,]", part)[0] for part in parts]):
        return None
    joined = "".join(parts)
    marks = re.findall("[.,]", joined)
    if not marks:
        return float(joined)
    whole, _, decimals = joined.rpartition(marks[-1])
    if len(marks) == 1:
        if marks[0] == "," and len(parts) == 1 and len(decimals) == 3 and whole.lstrip("0"):
            return None
        return float(f"{whole}.{decimals}")
    grouped = re.split("[.,]", joined if len(set(marks)) == 1 else whole)
    if len(set(marks[:-1])) > 1 or not _grouped(grouped):
        return None
    return float("".join(grouped)) if len(set(marks)) == 1 else float(f"{''.join(grouped)}.{decimals}")


def whole(text: str) -> int | None:
    """The whole number that a program printed, with or without marks between groups of three digits."""
    parts = re.split(f"[., {_MARKS}]", text)
    return int("".join(parts)) if _grouped(parts) else None


def two_meanings(text: str) -> str:
    """That a number is not known, for a line on what is left out."""
    return f"the number {text.replace(GROUPING, ' ')!r} may be one of two; write it without marks between its digits"


def _grouped(parts: list[str]) -> bool:
    return len(parts) == 1 or (0 < len(parts[0]) <= 3 and all(len(part) == 3 for part in parts[1:]))
