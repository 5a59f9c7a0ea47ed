"""Numbers as people write and read them."""

from __future__ import annotations

import re

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def decimal(text: str) -> float | None:
    """A number in plain digits, such as 58.8 or 1e3; None for anything else, such as `nan`, `1_6` or other scripts."""
    return float(text) if _DECIMAL.fullmatch(text) else None


def plain(number: float) -> str:
    """At most four digits, and no exponent from 0.0001 up."""
    text = f"{number:.4g}"
    return f"{float(text):,.0f}" if "e+" in text else text


def three(number: float) -> str:
    """Three digits, including trailing zeros, and no exponent."""
    return f"{number:#.3g}".removesuffix(".") if number < 999.5 else f"{float(f'{number:.3g}'):,.0f}"
