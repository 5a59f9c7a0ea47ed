"""The lines of a ledger: each a JSON object with the checksum of its row."""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

from flashmoe_sim.schema import COUNTS, IDENTITY, RESULT_COLUMNS

COLUMNS = [column.name for column in RESULT_COLUMNS]
UNKNOWN = {"model", "bank_slots", "bank_bytes"}  # without a model, or of the other kinds of banks
ALWAYS = {column.name for column in IDENTITY if column.name not in UNKNOWN} | {
    column.name for column in COUNTS if column.dtype == "int" and column.unit not in {"bytes", "reads"}
}
INT64 = 1 << 63
HALF_CHARACTER = re.compile("[\ud800-\udfff]")
TYPES: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (float, int)}
LEAD = len('{"crc":"01234567","row":')


def is_row(found: Any) -> bool:
    """Whether a line has valid values for every column, and lacks nothing that every row has."""
    return (
        isinstance(found, list)
        and len(found) == len(COLUMNS)
        and all(
            column.name not in ALWAYS if value is None else _is_value(value, column.dtype)
            for value, column in zip(found, RESULT_COLUMNS, strict=True)
        )
    )


def _is_value(value: Any, dtype: str) -> bool:
    """Whether a value is one of its column: a text, or a number that is not negative."""
    if type(value) not in TYPES[dtype]:
        return False
    if isinstance(value, str):
        return not HALF_CHARACTER.search(value)
    return value >= 0 and (isinstance(value, float) or value < INT64)  # false for NaN


def line_of(value: Any) -> bytes:
    """A line with a value and its checksum."""
    text = json.dumps(value, separators=(",", ":")).encode()  # floats are restored bit for bit, infinite ones too
    return b'{"crc":"%08x","row":%s}\n' % (zlib.crc32(text), text)


def checked(line: bytes) -> Any:
    """The content of a line, or None if it is not what was written."""
    text = line[LEAD:-2]
    if line != b'{"crc":"%08x","row":%s}\n' % (zlib.crc32(text), text):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
