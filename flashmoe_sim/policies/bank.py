"""The size of a bank and its units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sizes import MOST_DIGITS, exact_size, parse_size

MOST_SIZES = 4096

Scope = Literal["layer", "global"]


@dataclass(frozen=True, order=True)
class Bank:
    """The capacity of a model's banks: slots per layer, or bytes in total.

    slots: slots per layer; a global bank has this number times the number of layers.
    budget_bytes: bytes of all layers together; a layer's own bank gets an equal share.
    """

    slots: int | None = None
    budget_bytes: int | None = None

    def __post_init__(self) -> None:
        given = self.slots if self.slots is not None else self.budget_bytes
        if given is None or given < 1:
            raise BadInput(f"bank {given}: expected at least one slot or byte; give --bank 64 or --bank 8GiB")

    @property
    def in_slots(self) -> bool:
        return self.budget_bytes is None

    @property
    def size(self) -> int:
        """The bytes, or the slots per layer."""
        return self.slots if self.slots is not None else self.budget_bytes or 0

    def __str__(self) -> str:
        if self.slots is not None:
            return str(self.slots)
        assert self.budget_bytes is not None
        return exact_size(self.budget_bytes)


OneBank = str | int | Bank


def parse_bank(text: str) -> Bank:
    """A bank from `64` (slots per layer) or `4000MiB` (bytes in total)."""
    if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS:
        return Bank(slots=int(text))
    if (budget := parse_size(text)) is not None:
        return Bank(budget_bytes=budget)
    raise BadInput(f"bank {text!r}: expected a number of slots or of bytes, such as 64 or 8GiB")


def parse_banks(text: str, *, step: str = "auto") -> list[Bank]:
    """Banks from `16..256`, `16,24,64` or a mixture, in ascending order without repeats.

    step: `auto` doubles if the ratio of the ends is at least 8, else steps by an eighth of the range; `x2` multiplies;
    `16` (in bytes: `4GiB`) adds. The end of a range is always included.
    """
    banks: dict[Bank, None] = {}
    if step != "auto" and ".." not in text:
        raise BadInput(f"bank step {step!r}: --bank {text} has no range to step through; give one, such as 16..256")
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        if not dots:
            banks[parse_bank(first)] = None
            continue
        if not first or not last:
            raise BadInput(f"bank range {part!r}: give both its ends, such as 16..256")
        low, high = parse_bank(first), parse_bank(last)
        if low.in_slots != high.in_slots:
            raise BadInput(f"bank range {part!r}: both ends must be slots or both bytes")
        if low.size > high.size:
            raise BadInput(f"bank range {part!r} goes down: write the smaller bank first, {last}..{first}")
        make = partial(Bank, None) if not low.in_slots else Bank
        banks |= dict.fromkeys(make(size) for size in _progression(low, high, step))
    if len({bank.in_slots for bank in banks}) > 1:
        raise BadInput(f"banks {text!r}: give all in slots or all in bytes")
    return sorted(banks, key=lambda bank: bank.size)


def _progression(low: Bank, high: Bank, step: str) -> list[int]:
    first, last = low.size, high.size
    factor, added = 1, 0
    if step == "auto":
        factor, added = (2, 0) if last >= 8 * first else (1, max(1, (last - first) // 8))
    elif step.startswith("x") and step[1:].isascii() and step[1:].isdigit() and int(step[1:8]) >= 2:
        factor = int(step[1:8])
    else:
        try:
            by = parse_bank(step)
        except BadInput:
            by = None
        if by is None or by.in_slots != low.in_slots:
            example = "16" if low.in_slots else "4GiB"
            expected = f"auto, a number to add such as {example}, or a factor such as x2"
            raise BadInput(f"bank step {step!r}: expected {expected}")
        added = by.size
    sizes = []
    size = first
    while size < last:
        sizes.append(size)
        if len(sizes) == MOST_SIZES:
            raise BadInput(f"bank range {low}..{high}: more than {MOST_SIZES} sizes; give a larger --bank-step")
        size = size * factor + added
    return [*sizes, last]
