"""Filling the text of a report's page."""

from __future__ import annotations

from textwrap import TextWrapper

WIDTH = 120


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
