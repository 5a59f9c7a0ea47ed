"""The size of a bank and its units."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, Malformed, OutOfRange, TooLarge
from flashmoe_sim.io.sizes import MOST_DIGITS, exact_size, parse_size

MOST_SIZES = 4096

Scope = Literal["layer", "global"]
Unit = Literal["slots", "bytes", "share"]

MEANING: dict[Unit, str] = {
    "slots": "slots of each layer",
    "bytes": "bytes of all layers",
    "share": "share of each layer's experts",
}
_SHARE = re.compile(r"(\d{1,9})/(\d{1,9})|(\d{1,3}(?:\.\d{1,6})?) ?%", re.ASCII)


@dataclass(frozen=True, order=True)
class Bank:
    """The capacity of a model's banks: slots per layer, bytes in total, or a share of each layer's experts.

    slots: slots per layer; a global bank has this number times the number of layers.
    budget_bytes: bytes of all layers together; a layer's own bank gets an equal share.
    share: of each layer's experts, more than 0 and at most 1: their slots are rounded down, but at least one.
    """

    slots: int | None = None
    budget_bytes: int | None = None
    share: Fraction | None = None

    def __post_init__(self) -> None:
        if (given := self._given()) is None or given <= 0:
            raise OutOfRange(f"bank {given}: expected at least one slot or byte; give --bank 64 or --bank 8GiB")
        if self.share is not None and self.share > 1:
            raise OutOfRange(f"bank {self}: expected at most 100% of a layer's experts")

    @property
    def unit(self) -> Unit:
        return "slots" if self.slots is not None else "bytes" if self.budget_bytes is not None else "share"

    @property
    def in_slots(self) -> bool:
        """Whether each layer has whole slots of its own."""
        return self.budget_bytes is None

    @property
    def size(self) -> int | Fraction:
        """The number in its unit."""
        size = self._given()
        assert size is not None
        return size

    def _given(self) -> int | Fraction | None:
        return next((one for one in (self.slots, self.budget_bytes, self.share) if one is not None), None)

    def slots_of(self, n_experts: int) -> int:
        """The slots of a layer with so many experts, at most one for each; 0 for a bank in bytes."""
        if self.share is not None:
            return max(int(self.share * n_experts), 1)
        return min(self.slots or 0, n_experts)

    def __str__(self) -> str:
        if self.slots is not None:
            return str(self.slots)
        if self.budget_bytes is not None:
            return exact_size(self.budget_bytes)
        assert self.share is not None
        percent = f"{float(100 * self.share):.7g}%"
        return percent if _share(percent) == self.share else str(self.share)


OneBank = str | int | Bank


def parse_bank(text: str) -> Bank:
    """A bank from `64` (slots per layer), `4000MiB` (bytes in total), `12.5%` or `1/8` (of each layer's experts)."""
    if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS:
        return Bank(slots=int(text))
    if (budget := parse_size(text)) is not None:
        return Bank(budget_bytes=budget)
    if (share := _share(text)) is not None:
        return Bank(share=share)
    raise Malformed(f"bank {text!r}: expected slots, bytes or a share of the experts, such as 64, 8GiB or 12.5%")


def _share(text: str) -> Fraction | None:
    """A share from `12.5%` or `1/8`; None for another text."""
    found = _SHARE.fullmatch(text)
    if found is None:
        return None
    if found[3] is not None:
        return Fraction(found[3]) / 100
    return Fraction(int(found[1]), int(found[2])) if int(found[2]) else None


def parse_banks(text: str, *, step: str = "auto") -> list[Bank]:
    """Banks from `16..256`, `16,24,64`, `1/16..1/2` or a mixture, in ascending order without repeats.

    step: `auto` doubles if the ratio of the ends is at least 8, else steps by an eighth of the range; `x2` multiplies;
    `16` (in bytes: `4GiB`) adds. The end of a range is always included.
    """
    banks: dict[Bank, None] = {}
    if step != "auto" and ".." not in text:
        raise Incomplete(f"bank step {step!r}: --bank {text} has no range to step through; give one, such as 16..256")
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        if not dots:
            banks[parse_bank(first)] = None
            continue
        if not first or not last:
            raise Malformed(f"bank range {part!r}: give both its ends, such as 16..256")
        low, high = parse_bank(first), parse_bank(last)
        if low.unit != high.unit:
            raise Malformed(f"bank range {part!r}: both ends must be slots, both bytes or both shares")
        if low.size > high.size:
            raise OutOfRange(f"bank range {part!r} goes down: write the smaller bank first, {last}..{first}")
        banks |= dict.fromkeys(_progression(low, high, step))
    if len({bank.unit for bank in banks}) > 1:
        raise Conflict(f"banks {text!r}: give all in slots, all in bytes or all as shares")
    return sorted(banks, key=lambda bank: bank.size)


def _progression(low: Bank, high: Bank, step: str) -> list[Bank]:
    first, last = Fraction(low.size), Fraction(high.size)
    factor, added = 1, Fraction(0)
    if step == "auto" and last >= 8 * first:
        factor = 2
    elif step == "auto":
        eighth = (last - first) / 8
        added = eighth if low.unit == "share" else Fraction(max(1, int(eighth)))
    elif step.startswith("x") and step[1:].isascii() and step[1:].isdigit() and int(step[1:8]) >= 2:
        factor = int(step[1:8])
    else:
        try:
            by = parse_bank(step)
        except BadInput:
            by = None
        if by is None or by.unit != low.unit:
            example = {"slots": "16", "bytes": "4GiB", "share": "5%"}[low.unit]
            expected = f"auto, a number to add such as {example}, or a factor such as x2"
            raise Malformed(f"bank step {step!r}: expected {expected}")
        added = Fraction(by.size)
    sizes, size = list[Fraction](), first
    while size < last:
        sizes.append(size)
        if len(sizes) == MOST_SIZES:
            raise TooLarge(f"bank range {low}..{high}: more than {MOST_SIZES} sizes; give a larger --bank-step")
        size = size * factor + added
    sizes.append(last)
    if low.unit == "share":
        return [Bank(share=size) for size in sizes]
    return [Bank(slots=int(size)) if low.unit == "slots" else Bank(budget_bytes=int(size)) for size in sizes]
