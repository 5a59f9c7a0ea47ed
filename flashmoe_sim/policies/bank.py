"""The size of a bank and its units."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sizes import MOST_DIGITS, exact_size, parse_size

MOST_SIZES = 4096
MOST_LETTERS = 24  # of a bank's text in a table
_LAYERS = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?:(\d{1,9})", re.ASCII)

Scope = Literal["layer", "global"]


@dataclass(frozen=True, order=True)
class Bank:
    """The capacity of a model's banks: slots per layer, bytes in total, or slots by layer.

    slots: slots per layer; a global bank has this number times the number of layers.
    budget_bytes: bytes of all layers together; a layer's own bank gets an equal share.
    by_layer: number and slots of every layer that a trace routes, in ascending order.
    """

    slots: int | None = None
    budget_bytes: int | None = None
    by_layer: tuple[tuple[int, int], ...] | None = None

    def __post_init__(self) -> None:
        if self.by_layer:
            if self.slots is not None or self.budget_bytes is not None:
                raise BadInput("bank by layer: has slots of each layer or bytes too; give one of them")
            for layer, slots in self.by_layer:
                if slots < 1:
                    raise BadInput(f"bank of layer {layer}: {slots} slots; expected at least one")
            if any(layer >= after for (layer, _), (after, _) in pairwise(self.by_layer)):
                raise BadInput("bank by layer: expected layers in ascending order, each once")
            return
        given = self.slots if self.slots is not None else self.budget_bytes
        if given is None or given < 1:
            raise BadInput(f"bank {given}: expected at least one slot or byte; give --bank 64 or --bank 8GiB")

    @property
    def in_slots(self) -> bool:
        return self.budget_bytes is None

    @property
    def size(self) -> int:
        """The bytes, or the slots per layer; for slots by layer their mean, rounded down."""
        if self.by_layer:
            return sum(slots for _, slots in self.by_layer) // len(self.by_layer)
        return self.slots if self.slots is not None else self.budget_bytes or 0

    def __str__(self) -> str:
        if self.by_layer:
            return "+".join(f"{first}{f'-{last}' * (last > first)}:{slots}" for first, last, slots in self._runs())
        if self.slots is not None:
            return str(self.slots)
        assert self.budget_bytes is not None
        return exact_size(self.budget_bytes)

    def _runs(self) -> list[list[int]]:
        """First layer, last layer and slots of each run of layers with equal slots."""
        runs: list[list[int]] = []
        for layer, slots in self.by_layer or ():
            if runs and runs[-1][1:] == [layer - 1, slots]:
                runs[-1][1] = layer
            else:
                runs.append([layer, layer, slots])
        return runs


OneBank = str | int | Bank


def parse_bank(text: str) -> Bank:
    """A bank from `64` (slots per layer), `4000MiB` (bytes in total) or `0-9:64+10-39:32` (slots by layer)."""
    if ":" in text:
        return _parse_by_layer(text)
    if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS:
        return Bank(slots=int(text))
    if (budget := parse_size(text)) is not None:
        return Bank(budget_bytes=budget)
    raise BadInput(f"bank {text!r}: expected a number of slots or of bytes, such as 64 or 8GiB")


def _parse_by_layer(text: str) -> Bank:
    slots: dict[int, int] = {}
    for part in text.split("+"):
        found = _LAYERS.fullmatch(part.strip())
        if found is None:
            raise BadInput(f"bank {text!r}: {part!r} is not slots by layer; expected for example 0-9:64+10-39:32")
        first = int(found[1])
        last = first if found[2] is None else int(found[2])
        if last < first:
            raise BadInput(f"bank {text!r}: {part!r} goes down; write the lower layer first")
        if twice := slots.keys() & range(first, last + 1):
            raise BadInput(f"bank {text!r}: gives slots to layer {min(twice)} twice; name each layer once")
        slots |= dict.fromkeys(range(first, last + 1), int(found[3]))
    return Bank(by_layer=tuple(sorted(slots.items())))


def brief_bank(text: str) -> str:
    """The text of a bank, with the middle left out if it is too long for a table."""
    if len(text) <= MOST_LETTERS:
        return text
    first, *_, last = text.split("+")
    return f"{first}+...+{last}"


def parse_banks(text: str, *, step: str = "auto") -> list[Bank]:
    """Banks from `16..256`, `16,24,64` or a mixture, in ascending order without repeats; each may be by layer.

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
        if low.by_layer or high.by_layer:
            raise BadInput(f"bank range {part!r}: slots by layer have no range; list them with commas")
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
        if by is None or by.by_layer or by.in_slots != low.in_slots:
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
