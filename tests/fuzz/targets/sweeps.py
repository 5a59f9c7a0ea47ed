"""What sweeps keep: the ledger."""

from __future__ import annotations

import io
import json
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from flashmoe_sim.schema import RESULT_COLUMNS, frame
from flashmoe_sim.sweep.ledger import COLUMNS, FILE, HEADER, Ledger
from tests.fuzz.target import Document, Target

Found = tuple[list[dict[str, Any]], list[str]]
SIGN = b"!"  # at the beginning of a line: the rest is a row, which gets its checksum
TOP = b"#"  # a line that stands for the header
VALUES: dict[str, Any] = {"str": "a", "int": 7, "float": 0.5}
PLAIN = [VALUES[column.dtype] for column in RESULT_COLUMNS]


def signed(data: bytes) -> bytes:
    """The file that an input means."""
    lines = data.split(b"\n")
    for number, line in enumerate(lines):
        if line.startswith(SIGN) or line == TOP:
            row = HEAD if line == TOP else line[1:]
            lines[number] = b'{"crc":"%08x","row":%s}' % (zlib.crc32(row), row)
    return b"\n".join(lines)


def of_ledger(data: bytes, folder: Path) -> Found:
    (folder / FILE).write_bytes(signed(data))
    with Ledger(folder) as ledger:
        return ledger.rows(), ledger.notes


def kept(data: bytes, found: Found, folder: Path) -> None:
    """Every row stands in the file so, can be written as a table, and comes back; what was repaired is said."""
    rows, notes = found
    written = set()
    for line in signed(data).split(b"\n"):
        with suppress(ValueError):
            written.add(repr(json.loads(line)["row"]))
    assert {repr([row[name] for name in COLUMNS]) for row in rows} <= written, "a row that is not in the file"
    assert not any(row[name] is None for row in rows for name in ("trace", "policy", "hits")), "a row without a count"
    numbers = [value for row in rows for value in row.values() if isinstance(value, int | float)]
    assert all(value >= 0 for value in numbers), "a row with a number that no row has"
    table = frame(rows)
    table.write_csv(io.BytesIO())
    table.write_parquet(io.BytesIO())
    assert all(FILE in note and "\n" not in note for note in notes), notes
    with Ledger(folder) as ledger:
        assert repr(ledger.rows()) == repr(rows), "read again, other rows"
        assert not any("torn" in note for note in ledger.notes), "torn again"


@st.composite
def ledgers(draw: st.DrawFn) -> Document:
    number = {"int": st.integers(0, 2**63 - 1), "float": st.floats(min_value=0), "str": st.text(max_size=4)}
    rows = []
    for one in range(draw(st.integers(0, 3))):
        row = dict(zip(COLUMNS, PLAIN, strict=True)) | {"id": str(one)}
        for column in draw(st.lists(st.sampled_from(RESULT_COLUMNS[1:]), max_size=4)):
            row[column.name] = draw(number[column.dtype])
        rows.append(row)
    return b"\n".join([TOP, *(SIGN + json.dumps([*row.values()]).encode() for row in rows), b""]), rows


def same_rows(found: Found, expected: list[dict[str, Any]]) -> bool:
    rows, notes = found
    return not notes and sorted(map(repr, rows)) == sorted(map(repr, expected))


HEAD = json.dumps(HEADER, separators=(",", ":")).encode()
ROWS = [SIGN + json.dumps([str(number), *PLAIN[1:]]).encode() for number in range(2)]
WORDS = (
    b"99999999999999999999",
    b"-9223372036854775809",
    b"1e999",
    b"NaN",
    b"null",
    b"true",
    b"[1]",
    b'"\\ud800"',
    b'"\\u001b[2J"',
    b'],"row":[',
    b'"row":',
    b'"ledger":1,"ledger":2,',
    SIGN,
    b"\n",
    b"\n" + SIGN,
)
TARGETS = (
    Target(
        "ledger",
        of_ledger,
        lambda: [b"\n".join([TOP, *ROWS, b""]), b"\n".join([TOP, *ROWS, ROWS[0][:99]]), SIGN + HEAD + b"\n"],
        WORDS,
        FILE,
        kept,
        ledgers,
        same_rows,
    ),
)
