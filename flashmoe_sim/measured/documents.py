"""JSON documents and lines of JSON, as programs print them among other lines."""

from __future__ import annotations

import re
from typing import Any

from flashmoe_sim.io import strict_json
from flashmoe_sim.io.errors import BadInput

_NO_NUMBER = re.compile(
    r"(?<=[:,\[ ])-?(?:Infinity|NaN)(?=\s*[,\]}])"
)  # as Python writes them, such as a rate without limit


def document(text: str, where: str) -> Any:
    """The JSON value in a text that may begin with lines of a log.

    Raises BadInput for one that is cut off or damaged.
    """
    return _loaded(text[_start(text) :], where)


def all_objects(text: str, where: str) -> list[tuple[str, dict[str, Any]]]:
    """Each JSON object with its place: of lines, or of one document. Lines may begin with `data: `, as of a stream."""
    lines = [line.removeprefix("data: ").strip() for line in text.split("\n")]
    first = next((line for line in lines if line.startswith("{")), "")
    if len(first) > 1 and first.endswith("}"):
        return objects_by_line("\n".join(lines), where)
    rows = objects(document(text, where), where)
    return [(where if len(rows) == 1 else f"{where}: entry {number}", row) for number, row in enumerate(rows, 1)]


def objects_by_line(text: str, where: str) -> list[tuple[str, dict[str, Any]]]:
    """Each line that is a JSON object, with its place. Raises BadInput for a line that begins as one and is not."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("{"):
            place = f"{where}: line {number}"
            found.append((place, objects(_loaded(line, place), place)[0]))
    return found


def objects(value: Any, where: str) -> list[dict[str, Any]]:
    """The value as a list of JSON objects, an object as a list of one. Raises BadInput for anything else."""
    rows = value if isinstance(value, list) else [value]
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise BadInput("is not a list of JSON objects", where=where, advice="give the output of the program as printed")
    return rows


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
        raise BadInput(
            f"is cut off or damaged JSON ({error})", where=where, advice="give the whole output of the program"
        ) from None
