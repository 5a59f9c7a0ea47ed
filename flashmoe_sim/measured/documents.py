"""JSON documents and lines of JSON, as programs print them among other lines, and the fields of one measurement."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flashmoe_sim.io import strict_json
from flashmoe_sim.io.errors import BadInput, Malformed, shown
from flashmoe_sim.io.numbers import decimal

MOST_WHOLE = 10**15
_NO_NUMBER = re.compile(
    r"(?<=[:,\[ ])-?(?:Infinity|NaN)(?=\s*[,\]}])"
)  # as Python writes them, such as a rate without limit


@dataclass(frozen=True)
class NamedValues:
    """Values by name and their place, of any format. A field that is not there reads as empty or None."""

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
            raise Malformed(f"has no {name}", where=self.where, advice="give the whole output of the program")
        return value

    def bad(self, name: str, value: object, expected: str) -> BadInput:
        return Malformed(
            f"{name} is {shown(value)}, expected {expected}", where=self.where, advice="give the output as printed"
        )


def document(text: str, where: str, each: str = "") -> list[NamedValues]:
    """The objects of the JSON value in a text that may begin with lines of a log; see `objects`.

    Raises BadInput for one that is cut off or damaged.
    """
    return objects(_loaded(text[_start(text) :], where), where, each)


def all_objects(text: str, where: str) -> list[NamedValues]:
    """Each JSON object: of lines, or of one document. Lines may begin with `data: `, as of a stream."""
    lines = [line.removeprefix("data: ").strip() for line in text.split("\n")]
    first = next((line for line in lines if line.startswith("{")), "")
    if len(first) > 1 and first.endswith("}"):
        return objects_by_line("\n".join(lines), where)
    found = document(text, where, "entry")
    return found if len(found) > 1 else [NamedValues(found[0].values, where)]


def objects_by_line(text: str, where: str) -> list[NamedValues]:
    """Each line that is a JSON object. Raises BadInput for a line that begins as one and is not."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("{"):
            place = f"{where}: line {number}"
            found.append(objects(_loaded(line, place), place)[0])
    return found


def objects(value: Any, where: str, each: str = "") -> list[NamedValues]:
    """The value as a list of JSON objects, an object as a list of one.

    each: what one of them is called; their places are numbered with it. Raises BadInput for anything else.
    """
    rows = value if isinstance(value, list) else [value]
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise Malformed(
            "is not a list of JSON objects", where=where, advice="give the output of the program as printed"
        )
    return [NamedValues(row, f"{where}: {each} {number}" if each else where) for number, row in enumerate(rows, 1)]


def _start(text: str) -> int:
    """Where the first line that begins with a bracket begins."""
    place = 0
    for line in text.split("\n"):
        if line.lstrip()[:1] in ("[", "{"):
            return place
        place += len(line) + 1
    return 0


def _loaded(text: str, where: str) -> Any:
    try:
        return strict_json.loads(_NO_NUMBER.sub("null", text).encode("utf-8", "replace"))
    except ValueError as error:
        raise Malformed(
            f"is cut off or damaged JSON ({error})", where=where, advice="give the whole output of the program"
        ) from None
