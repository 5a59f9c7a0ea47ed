"""The text of a report's page, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import TextWrapper

WIDTH = 120


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, left: Sequence[int] | None = (0,)) -> str:
    """A table without a bar in its cells. left: the columns that are aligned to the left; None: all are."""
    rule = "|".join("---" if left is None or column in left else "---:" for column in range(len(head)))
    first, *rest = (f"| {' | '.join(map(str, line))} |" for line in (head, *rows))
    return "\n".join((first, f"|{rule}|", *rest))


def joined(*parts: str) -> str:
    """Parts of a page with an empty line between them; those without text are left out."""
    return "\n\n".join(part.strip() for part in parts if part)


def wrapped(text: str) -> str:
    """The text with its paragraphs and points filled to the width; tables, headings and pictures as they are."""
    blocks = []
    for block in text.strip().split("\n\n"):
        if block.startswith(("|", "#", "!")):
            blocks.append(block)
            continue
        lead = "- " if block.startswith("- ") else ""
        wrap = TextWrapper(WIDTH, subsequent_indent=" " * len(lead), break_on_hyphens=False, break_long_words=False)
        points = block.removeprefix(lead).split("\n- ")
        blocks.append("\n".join(wrap.fill(lead + point) for point in points))
    return "\n\n".join(blocks) + "\n"
