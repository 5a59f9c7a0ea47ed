"""When requests arrived: a number a line, or the log of a server's answers."""

from __future__ import annotations

import math
from pathlib import Path

import orjson

from flashmoe_sim.io.errors import BadInput, shown
from flashmoe_sim.io.files import regular_file_bytes, unreadable

FIELDS = ("arrival_time", "created")  # in vLLM's request metrics, and in its HTTP responses


def read_arrivals(path: Path) -> list[float]:
    """When each request arrived, in seconds from any moment: one line per request, blank lines are skipped.

    A line is a number, or a JSON object with one in the first of FIELDS that it has.
    Raises BadInput, naming the line, for anything else.
    """
    regular_file_bytes(path, kind="a file with a time in seconds for each request")
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise unreadable(path, error) from None
    return [_seconds(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]


def _seconds(line: bytes, where: str) -> float:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        value = line.decode(errors="replace")
    if isinstance(value, dict):
        value = next((value[field] for field in FIELDS if field in value), None)
        if value is None:
            raise BadInput(f"{where}: none of the keys {', '.join(FIELDS)}; the time of arrival is expected in one")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadInput(f"{where}: {shown(value)} is not a time; expected a number of seconds")
    return float(value)
