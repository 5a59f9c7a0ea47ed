"""Rows of a figure that is read like a list: a line of text, and below it a bar."""

from __future__ import annotations

from typing import Any

LINE, BAR, ROW = 15, 12, 40  # pixels: a line of text, a bar, and both with the room below


def y(field: str, height: int) -> Any:
    """The channel of a place in pixels from the top of a figure."""
    import altair

    return altair.Y(f"{field}:Q", scale=altair.Scale(domain=(height, 0), nice=False, zero=False), axis=None)


def place(top: float) -> dict[str, float]:
    """Where the parts of a row stand, in pixels: its text, the upper and lower end of its bar, and the middle."""
    upper = top + LINE
    return {"text_y": top, "upper": upper, "middle": upper + BAR / 2, "lower": upper + BAR}
