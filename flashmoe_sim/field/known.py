"""The published rows that the program was set by: their ids, and a digest of what each says."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from flashmoe_sim.field.rows import FieldRow

TABLE = Path(str(resources.files("flashmoe_sim.field").joinpath("known.csv")))
COLUMNS = ("id", "says")
LETTERS = 8  # of a digest: a new row is alike by chance in one case of three million


class Known(NamedTuple):
    """Rows in use. by_saying: their ids, by the digest of what they say."""

    ids: frozenset[str]
    by_saying: Mapping[str, str]

    def like(self, row: FieldRow) -> str:
        """The id of the row that says the same as another one, or has its id; empty if there is none."""
        return row.id if row.id in self.ids else self.by_saying.get(saying(row), "")


def saying(row: FieldRow) -> str:
    """A digest of what two rows have in common that say the same."""
    names = ("source", "engine", "model", "quant", "gpu", "cpu", "strategy", "flags", "context")
    said = (*(getattr(row, name).lower() for name in names), row.decode_tok_s, row.prompt_tok_s)
    return hashlib.sha256(repr(said).encode()).hexdigest()[:LETTERS]


@cache
def known_rows() -> Known:
    """The rows of data/published, as `python -m reports.field` wrote them down."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return Known(frozenset(row["id"] for row in rows), {row["says"]: row["id"] for row in rows})


def write(rows: Iterable[FieldRow]) -> None:
    """Write the table."""
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows((row.id, saying(row)) for row in rows)
