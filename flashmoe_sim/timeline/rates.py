"""Rows of a published table: how often a bank missed, and how fast it ran."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flashmoe_sim.errors import BadInput
from flashmoe_sim.policies.bank import Bank, parse_bank

RATES = ("misses_per_call", "hit_pct", "hit_rate")
SPEEDS = ("tok_s", "decode_tok_s")
SPEED_ENDS = ("tok_s_lo", "tok_s_hi")
MOST_ROWS = 10_000


@dataclass(frozen=True)
class Rate:
    """How often a bank misses, and what else a row tells of its run; None where it does not.

    where: the row, for messages. hit_rate: 0 to 1. misses_per_call: distinct experts of a routed call that miss.
    At least one of the two is there; where both are, misses_per_call is used.
    tok_s, tok_s_lo, tok_s_hi: the measured speed, or the two ends of it.
    """

    where: str
    hit_rate: float | None = None
    misses_per_call: float | None = None
    top_k: int | None = None
    bank: Bank | None = None
    tok_s: float | None = None
    tok_s_lo: float | None = None
    tok_s_hi: float | None = None

    def misses(self, top_k: int) -> float:
        """Misses of a routed call that asks for `top_k` experts.

        Raises BadInput where more would miss than are asked for.
        """
        if self.misses_per_call is None:
            assert self.hit_rate is not None
            return (1 - self.hit_rate) * top_k
        if self.misses_per_call > top_k:
            raise BadInput(
                f"{self.where}: {self.misses_per_call:g} misses a call, which asks for {top_k} experts; "
                "give their number with a column topk or --topk"
            )
        return self.misses_per_call

    @property
    def measured_tok_s(self) -> float | None:
        """The measured speed, or the middle of its ends."""
        if self.tok_s is None and self.tok_s_lo is not None and self.tok_s_hi is not None:
            return (self.tok_s_lo + self.tok_s_hi) / 2
        return self.tok_s


def parse_hit_rates(text: str) -> list[Rate]:
    """Rates from `0.588,72.8%`.

    Raises BadInput for anything else, and for a rate outside 0 to 1.
    """
    rates = []
    for part in text.split(","):
        number = part.strip()
        try:
            rate = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
        except ValueError:
            raise BadInput(f"hit rate {number!r}: not a number; expected 0 to 1, or per cent, such as 58.8%") from None
        rates.append(Rate(f"hit rate {number}", hit_rate=_share(rate, f"hit rate {number}")))
    return rates


def read_rates(path: Path) -> list[Rate]:
    """The rows of a CSV file with one of the columns `misses_per_call`, `hit_pct` and `hit_rate`.

    It may also have `topk`, `bank` (slots of each layer, or bytes such as 8GiB), and the measured `tok_s` or
    `decode_tok_s`, or both `tok_s_lo` and `tok_s_hi`; an empty cell of these is not known. Other columns are not read.
    Raises BadInput, naming the line, for what cannot be read.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            names = tuple(rows.fieldnames or ())
            if not any(name in names for name in RATES):
                raise BadInput(
                    f"{path}: begins with the columns {', '.join(names)[:80]!r}; "
                    f"expected one of {', '.join(RATES)} among them"
                )
            rates = []
            for row in rows:
                rates.append(_rate(row, f"{path}:{rows.line_num}"))
                if len(rates) > MOST_ROWS:
                    raise BadInput(f"{path}: more than {MOST_ROWS:,} rows; expected a published table")
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; give a CSV file") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path}: not a CSV file ({error}); expected one of the columns {', '.join(RATES)}") from None
    if not rates:
        raise BadInput(f"{path}: no rows in it; expected a header and a row for each run")
    return rates


def _rate(row: Mapping[str, str | None], where: str) -> Rate:
    if None in row:
        raise BadInput(f"{where}: more cells than the header has columns; quote texts that have commas in them")
    misses, percent, share = (_number(row, name, where) for name in RATES)
    hit_rate = share if percent is None else percent / 100
    if misses is None and hit_rate is None:
        raise BadInput(f"{where}: no number in the columns {', '.join(n for n in RATES if n in row)}; expected one")
    top_k = _number(row, "topk", where)
    if top_k is not None and (top_k < 1 or top_k != int(top_k)):
        raise BadInput(f"{where}: topk {top_k:g}; expected a whole number of experts a token, at least 1")
    bank = (row.get("bank") or "").strip()
    speed = next((number for name in SPEEDS if (number := _number(row, name, where)) is not None), None)
    ends = [_number(row, name, where) for name in SPEED_ENDS]
    for number in (speed, *ends):
        if number == 0:
            raise BadInput(f"{where}: a speed of 0 tokens a second; expected what was measured, or nothing")
    return Rate(
        where=where,
        hit_rate=None if hit_rate is None else _share(hit_rate, where),
        misses_per_call=misses,
        top_k=None if top_k is None else int(top_k),
        bank=_bank(bank, where) if bank else None,
        tok_s=speed,
        tok_s_lo=ends[0],
        tok_s_hi=ends[1],
    )


def _number(row: Mapping[str, str | None], name: str, where: str) -> float | None:
    cell = (row.get(name) or "").strip()
    if not cell:
        return None
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise BadInput(f"{where}: found {name} {cell!r}; expected a number from 0")
    return number


def _bank(text: str, where: str) -> Bank:
    try:
        return parse_bank(text)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None


def _share(rate: float, where: str) -> float:
    if not 0 <= rate <= 1:
        raise BadInput(f"{where}: a hit rate of {rate:g}; expected 0 to 1, or per cent where the table says hit_pct")
    return rate
