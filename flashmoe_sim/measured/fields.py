"""The fields of one measurement as texts, whatever format they came in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flashmoe_sim.io.errors import BadInput, shown
from flashmoe_sim.io.numbers import decimal

MOST_WHOLE = 10**15


@dataclass(frozen=True)
class Fields:
    """Values by name, and the place they came from. A field that is not there reads as empty or None."""

    values: Mapping[str, Any]
    where: str

    def text(self, name: str) -> str:
        """A value as text: 1 and 0 for true and false."""
        value = self.values.get(name, "")
        if isinstance(value, bool):
            return "1" if value else "0"
        if value is None or isinstance(value, dict | list):
            return ""
        return str(value).strip()

    def number(self, name: str) -> float | None:
        """A finite number. Raises BadInput for anything else that is there."""
        text = self.text(name)
        if not text:
            return None
        value = decimal(text)
        if value is None or abs(value) == float("inf"):
            raise self.bad(name, text, "a number")
        return value

    def whole(self, name: str) -> int | None:
        """A whole number. Raises BadInput for anything else that is there."""
        value = self.number(name)
        if value is None:
            return None
        if value != int(value) or abs(value) > MOST_WHOLE:
            raise self.bad(name, self.text(name), "a whole number")
        return int(value)

    def count(self, name: str) -> int | None:
        """A whole number from 0. Raises BadInput for anything else that is there."""
        value = self.whole(name)
        if value is not None and value < 0:
            raise self.bad(name, self.text(name), "0 or more")
        return value

    def needed(self, name: str) -> float:
        """A number that must be there. Raises BadInput if it is not."""
        value = self.number(name)
        if value is None:
            raise BadInput(f"has no {name}", where=self.where, advice="give the whole output of the program")
        return value

    def bad(self, name: str, value: object, expected: str) -> BadInput:
        return BadInput(
            f"{name} is {shown(value)}, expected {expected}", where=self.where, advice="give the output as printed"
        )
