"""Reading a hit curve as it is published: bank sizes and hit rates, in a CSV file or written out."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable
from pathlib import Path

from flashmoe_sim.errors import BadInput

BANKS, RATES = ("bank", "slots"), ("hit_pct", "hit_rate")
WRITTEN_OUT = re.compile(r"\s*\d+\s*:")
MOST_ROWS = 10_000


def read_hit_points(given: str | Path) -> dict[int, float]:
    """Slots of a bank to the hit rate in it, 0 to 1, ascending by slots.

    given: `16:0.588,32:72.8%`, or a CSV file with a column `bank` or `slots`, and one `hit_pct` or `hit_rate` (0 to 1).
    Raises BadInput for what cannot be read, and for a curve that LRU cannot have: one that falls.
    """
    text = str(given)
    points = _written_out(text) if isinstance(given, str) and WRITTEN_OUT.match(text) else _of_file(Path(given))
    return check_hit_points(points, text)


def check_hit_points(points: Iterable[tuple[int, float]], where: str = "curve") -> dict[int, float]:
    """The points as `read_hit_points` returns them; raises BadInput like it."""
    ascending = sorted(points)
    if not ascending:
        raise BadInput(f"{where}: no points in it; expected bank sizes and hit rates")
    before_slots, before = 0, 0.0
    for slots, rate in ascending:
        if slots < 1:
            raise BadInput(f"{where}: a bank of {slots} slots; at least 1 expected")
        if not 0 <= rate <= 1:
            raise BadInput(f"{where}: hit rate {rate:g} at bank {slots}; expected 0 to 1, or per cent, such as 58.8%")
        if slots == before_slots:
            raise BadInput(f"{where}: bank {slots} is there twice; give the rows of one run")
        if rate < before:
            raise BadInput(
                f"{where}: the hit rate falls from {100 * before:.1f} % at bank {before_slots} to {100 * rate:.1f} % "
                f"at {slots}; under LRU a larger bank hits at least as often"
            )
        before_slots, before = slots, rate
    return dict(ascending)


def _written_out(text: str) -> list[tuple[int, float]]:
    points = []
    for part in text.split(","):
        slots, _, rate = part.partition(":")
        per_cent = rate.strip().endswith("%")
        try:
            points.append((int(slots), float(rate.strip().removesuffix("%")) / (100 if per_cent else 1)))
        except ValueError:
            raise BadInput(f"curve {text!r}: {part!r} is not slots:hit rate; expected 16:0.588,32:72.8%") from None
    return points


def _of_file(path: Path) -> list[tuple[int, float]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            bank, rate = _columns(path, rows.fieldnames or ())
            scale = 100 if rate == "hit_pct" else 1
            points = []
            for row in rows:
                try:
                    points.append((int(row[bank]), float(row[rate]) / scale))
                    if not math.isfinite(points[-1][1]):
                        raise ValueError
                except (TypeError, ValueError):
                    raise BadInput(
                        f"{path}:{rows.line_num}: found {bank} {row[bank]!r} and {rate} {row[rate]!r}; expected a "
                        "whole number and a number"
                    ) from None
                if len(points) > MOST_ROWS:
                    raise BadInput(f"{path}: more than {MOST_ROWS:,} rows; expected a hit curve")
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; give a CSV file, or points such as 16:0.588,32:0.728") from None
    except (ValueError, csv.Error) as error:
        raise BadInput(f"{path}: not a CSV file ({error}); expected columns bank and hit_pct") from None
    return points


def _columns(path: Path, header: Iterable[str]) -> tuple[str, str]:
    names = list(header)
    bank = [name for name in BANKS if name in names]
    rate = [name for name in RATES if name in names]
    if len(bank) != 1 or len(rate) != 1:
        raise BadInput(
            f"{path}: begins with the columns {', '.join(names)[:80]!r}; "
            "expected one of bank and slots, and one of hit_pct and hit_rate"
        )
    return bank[0], rate[0]
