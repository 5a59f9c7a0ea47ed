"""Rows of a figure that reads like a list: a line of text with a bar below."""

from __future__ import annotations

from typing import Any

LINE, BAR, ROW = 15, 12, 40  # pixels: a line of text, a bar, and both with the room below


def y(field: str, height: int) -> Any:
    """The channel for a place in pixels from the top of a figure."""
    import altair

    return altair.Y(f"{field}:Q", scale=altair.Scale(domain=(height, 0), nice=False, zero=False), axis=None)


def place(top: float) -> dict[str, float]:
    """The places of a row's parts, in pixels: its text, the upper and lower end of its bar, and the middle."""
    upper = top + LINE
    return {"text_y": top, "upper": upper, "middle": upper + BAR / 2, "lower": upper + BAR}
