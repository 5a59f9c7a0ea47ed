"""Numbers as people write and read them."""

from __future__ import annotations

import re

from flashmoe_sim.io.errors import Malformed, OutOfRange

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


def parse_numbers(text: str, option: str) -> list[int]:
    """Numbers and ranges of numbers: 0-11,20. Raises BadInput, naming the option, for anything else."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(first + last) > 9:
            raise Malformed(f"{option} {text!r}: {part!r} is not a number or a range; expected for example 0-11,20")
        begin, end = int(first), int(last or first)
        if end < begin or end > 32767:
            raise OutOfRange(f"{option} {text!r}: {part!r} must go up, and no further than 32767")
        numbers.extend(range(begin, end + 1))
    return numbers
