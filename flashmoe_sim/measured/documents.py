"""JSON as programs print it among other lines, and the fields of one measurement."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flashmoe_sim.io import strict_json
from flashmoe_sim.io.errors import BadInput, Malformed, shown
from flashmoe_sim.io.sizes import decimal
from flashmoe_sim.measured.dress import undressed

MOST_WHOLE = 10**15
MOST_IN_VAIN = 100  # times that a text is read for brackets that nothing closes
_START = re.compile(r"[\[{]")
_BEGINS = re.compile(r"(?:data: )?[ \t]*(?=\{\s*\"|\[\s*(?:\{|\Z))")


@dataclass(frozen=True)
class NamedValues:
    """Values by name and their place, of any format. A field that is not there reads as empty or None.

    around: the texts of the objects that hold this one, by name.
    """

    values: Mapping[str, Any]
    where: str
    around: Mapping[str, str] = field(default_factory=dict)

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
        value = None if isinstance(self.values[name], bool) else decimal(text)
        if value is None or abs(value) == float("inf"):
            raise self.bad(name, self.values[name], "a number")
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
            raise Malformed(f"has no {name}", where=self.where, advice="give the whole output of the program")
        return value

    def bad(self, name: str, value: object, expected: str) -> BadInput:
        return Malformed(
            f"{name} is {shown(value)}, expected {expected}", where=self.where, advice="give the output as printed"
        )


class RowsOfJson(NamedTuple):
    """The objects of one kind in a text. torn: a line on what is cut off or damaged, or empty."""

    found: list[NamedValues]
    torn: str


def rows_in(text: str, where: str, has: Callable[[Mapping[str, Any]], bool], each: str = "entry") -> RowsOfJson:
    """The JSON objects in a text that `has` accepts, in order, however deep; nothing is sought within them.

    Around JSON values, and before each of their lines, there may be anything. each: what one of them is called; places
    in lists are numbered with it. Raises BadInput if none is there and JSON is cut off or damaged.
    """
    found: list[NamedValues] = []
    try:
        values, torn = _values(undressed(text))
        for line, value in values:
            for row, around in _within(value, has, {}):
                place = f"line {line}" if row is value else f"{each} {len(found) + 1}"
                found.append(NamedValues(row, f"{where}: {place}", around))
    except RecursionError:
        raise Malformed(
            "has too many brackets within brackets", where=where, advice="give the output as printed"
        ) from None
    if not torn:
        return RowsOfJson(found, "")
    also = f", and so are {len(torn) - 1} more" if len(torn) > 1 else ""
    damaged = f"{where}: line {torn[0]}: is cut off or damaged JSON{also}"
    if not found:
        raise Malformed(damaged, advice="give the whole output of the program")
    return RowsOfJson(found, f"{damaged}; {len(found)} whole in it are read")


def _values(text: str) -> tuple[list[tuple[int, Any]], list[int]]:
    """The objects and lists in a text, each with its line; and the lines where one begins and does not end."""
    decoder = json.JSONDecoder(object_pairs_hook=_once, parse_constant=lambda _: None)
    found, torn = list[tuple[int, Any]](), list[int]()
    line, counted, at, in_vain = 1, 0, 0, 0
    while match := _START.search(text, at):
        line, counted = line + text.count("\n", counted, match.start()), match.start()
        try:
            value, at = decoder.raw_decode(text, match.start())
        except ValueError as error:
            at = match.end()
            in_vain += getattr(error, "pos", at) - match.start()
            if in_vain > MOST_IN_VAIN * len(text):
                raise RecursionError from None
            begins = _BEGINS.match(text, text.rfind("\n", 0, match.start()) + 1)
            if begins and begins.end() == match.start():
                torn.append(line)
        else:
            if value and isinstance(value, dict | list):
                found.append((line, value))
    return found, torn


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, which has no key twice: what the key means then is not known."""
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _within(
    value: Any, has: Callable[[Mapping[str, Any]], bool], around: Mapping[str, str]
) -> Iterator[tuple[dict[str, Any], Mapping[str, str]]]:
    if isinstance(value, list):
        for one in value:
            yield from _within(one, has, around)
    elif isinstance(value, dict):
        if has(value):
            yield value, around
            return
        here = {**around, **{name: text for name, text in value.items() if isinstance(text, str)}}
        for one in value.values():
            yield from _within(one, has, here)


def document(text: str, where: str) -> NamedValues:
    """The JSON object that a text is. Raises BadInput for anything else."""
    try:
        value = strict_json.loads(text.encode("utf-8", "replace"))
    except ValueError as error:
        raise Malformed(
            f"is cut off or damaged JSON ({error})", where=where, advice="give the whole output of the program"
        ) from None
    if not isinstance(value, dict):
        raise Malformed("is not a JSON object", where=where, advice="give the output of the program as printed")
    return NamedValues(value, where)
