"""Reading a published hit curve: bank sizes and hit rates, from a CSV file or written out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from flashmoe_sim.io.errors import Malformed, OutOfRange, TooLarge, Unusable
from flashmoe_sim.io.files import as_utf8
from flashmoe_sim.io.tables import parse_table, share_of

BANKS, RATES = ("bank", "slots"), ("hit_pct", "hit_rate")
WRITTEN_OUT = re.compile(r"\s*\d+\s*:")
MAX_BYTES, MOST_ROWS = 2**20, 10_000


def read_hit_points(given: str | Path) -> dict[int, float]:
    """The hit rate, 0 to 1, by slots of a bank, in ascending order.

    given: `16:0.588,32:72.8%`, or a table with a column `bank` or `slots`, and one `hit_pct` or `hit_rate`.
    Raises BadInput if it cannot be read, and for a curve that falls, which is impossible under LRU.
    """
    text = str(given)
    points = _written_out(text) if isinstance(given, str) and WRITTEN_OUT.match(text) else _of_file(Path(given))
    return check_hit_points(points, text)


def check_hit_points(points: Iterable[tuple[int, float]], where: str = "curve") -> dict[int, float]:
    """The points as `read_hit_points` returns them; raises BadInput like it."""
    ascending = sorted(points)
    if not ascending:
        raise Malformed(f"{where}: no points in it; expected bank sizes and hit rates")
    before_slots, before = 0, 0.0
    for slots, rate in ascending:
        if slots < 1:
            raise OutOfRange(f"{where}: a bank of {slots} slots; expected at least 1")
        if not 0 <= rate <= 1:
            raise OutOfRange(f"{where}: hit rate {rate:g} at bank {slots}; expected 0 to 1, or per cent, such as 58.8%")
        if slots == before_slots:
            raise Malformed(f"{where}: bank {slots} is there twice; give the rows of one run")
        if rate < before:
            raise Malformed(
                f"{where}: the hit rate falls from {100 * before:.1f}% at bank {before_slots} to {100 * rate:.1f}% "
                f"at {slots}; under LRU a larger bank hits at least as often"
            )
        before_slots, before = slots, rate
    return dict(ascending)


def _written_out(text: str) -> list[tuple[int, float]]:
    points = []
    for part in text.split(","):
        slots, _, rate = part.partition(":")
        point = _point(slots.strip(), "hit_rate", rate.strip())
        if point is None:
            raise Malformed(f"curve {text!r}: {part!r} is not slots:hit rate; expected 16:0.588,32:72.8%")
        points.append(point)
    return points


def _of_file(path: Path) -> list[tuple[int, float]]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise Unusable(f"{path}: {why}; give a CSV file, or points such as 16:0.588,32:0.728") from None
    if len(content) > MAX_BYTES:
        raise TooLarge(f"{path}: more than {MAX_BYTES >> 20} MiB; expected a hit curve")
    try:
        text = as_utf8(content).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Malformed(f"{path}: not a CSV file ({error}); expected columns bank and hit_pct") from None
    names, rows = parse_table(text, where=str(path))
    if len(rows) > MOST_ROWS:
        raise TooLarge(f"{path}: more than {MOST_ROWS:,} rows; expected a hit curve")
    bank, rate = _columns(path, names)
    points = []
    for line, row in rows:
        point = _point(row[bank], rate, row[rate])
        if point is None:
            found = f"{bank} {row[bank]!r} and {rate} {row[rate]!r}"
            raise Malformed(f"{path}:{line}: found {found}; expected a whole number and a number")
        points.append(point)
    return points


def _point(slots: str, column: str, cell: str) -> tuple[int, float] | None:
    rate = share_of(column, cell)
    return (int(slots), rate) if rate is not None and re.fullmatch("[0-9]{1,9}", slots) else None


def _columns(path: Path, header: Iterable[str]) -> tuple[str, str]:
    names = list(header)
    bank = [name for name in BANKS if name in names]
    rate = [name for name in RATES if name in names]
    if len(bank) != 1 or len(rate) != 1:
        raise Malformed(
            f"{path}: begins with the columns {', '.join(names)[:80]!r}; "
            "expected one of bank and slots, and one of hit_pct and hit_rate"
        )
    return bank[0], rate[0]
