"""Numbers and sizes in bytes: parsed from text, and written for people."""

from __future__ import annotations

import re

from flashmoe_sim.io.errors import Malformed, OutOfRange

KIB, MIB, GIB = 2**10, 2**20, 2**30
UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": KIB, "MiB": MIB, "GiB": GIB}
MOST_DIGITS = 15
_SIZE = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(UNITS)})", re.ASCII)


def parse_size(text: str) -> int | None:
    """Bytes from `4000MiB`, or None for anything that is not a size or has more than 15 digits."""
    found = _SIZE.fullmatch(text)
    size = int(float(found[1]) * UNITS[found[2]]) if found and len(found[1]) <= MOST_DIGITS else None
    return None if size is None or size >= 10**MOST_DIGITS else size


def given_size(option: str, given: str | int) -> int:
    """The bytes of an option: a size with its unit, or a number of bytes. Raises BadInput for anything else."""
    if isinstance(given, int) and given >= 0:
        return given
    found = parse_size(given) if isinstance(given, str) else None
    if found is None:
        raise Malformed(f"{option} {given!r}: expected a size with its unit, such as 5GiB")
    return found


def exact_size(size_bytes: int) -> str:
    """The shortest text that `parse_size` reads as this many bytes."""
    texts = [
        f"{size_bytes / unit_bytes:g}{unit}" for unit, unit_bytes in reversed(UNITS.items()) if unit_bytes <= size_bytes
    ]
    exact = [text for text in texts if parse_size(text) == size_bytes]
    return min((*exact, f"{size_bytes}B"), key=len)


def size(size_bytes: float | None) -> str:
    """Bytes for display: three digits and the largest binary unit that leaves at least one."""
    if size_bytes is None:
        return "-"
    for unit, unit_bytes in (("TiB", 2**40), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size_bytes >= unit_bytes:
            scaled = size_bytes / unit_bytes
            return f"{scaled:.{2 if scaled < 10 else 1 if scaled < 100 else 0}f} {unit}"
    return f"{size_bytes:.0f} B"


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
