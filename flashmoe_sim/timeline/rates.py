"""Rows of a published table: how often a bank missed, and how fast it ran."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from flashmoe_sim.io.errors import BadInput, Malformed, OutOfRange
from flashmoe_sim.io.sizes import decimal
from flashmoe_sim.io.tables import share_of
from flashmoe_sim.machines.rows import Row, read_table
from flashmoe_sim.policies.bank import Bank, parse_bank

BANKS, SHARES = ("bank", "slots"), ("hit_pct", "hit_rate")
RATES = ("misses_per_call", *SHARES)
ROUNDED = 0.0051  # the most by which a hit rate in per cent and one from 0 to 1 may differ
SPEEDS = ("tok_s", "decode_tok_s")
SPEED_ENDS = ("tok_s_lo", "tok_s_hi")


@dataclass(frozen=True)
class Rate:
    """How often a bank misses, and what else a row records about its run; None if it does not.

    where: the row, for messages. hit_rate: 0 to 1. misses_per_call: distinct experts of a routed call that miss.
    At least one of the two is given; if both are, misses_per_call is used. in_percent: hit_rate was a number without a
    % sign in a column hit_pct.
    tok_s, tok_s_lo, tok_s_hi: the measured speed, or the ends of its range.
    """

    where: str
    hit_rate: float | None = None
    misses_per_call: float | None = None
    top_k: int | None = None
    bank: Bank | None = None
    tok_s: float | None = None
    tok_s_lo: float | None = None
    tok_s_hi: float | None = None
    in_percent: bool = False

    def misses(self, top_k: int) -> float:
        """Misses of a routed call that requests `top_k` experts.

        Raises BadInput if more would miss than are requested.
        """
        if self.misses_per_call is None:
            assert self.hit_rate is not None
            return (1 - self.hit_rate) * top_k
        if self.misses_per_call > top_k:
            raise OutOfRange(
                f"{self.where}: {self.misses_per_call:g} misses a call, which asks for {top_k} experts; "
                "give their number with a column topk or --topk"
            )
        return self.misses_per_call

    @property
    def measured_tok_s(self) -> float | None:
        """The measured speed, or the middle of its range."""
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
        rate = share_of("hit_rate", number)
        if rate is None:
            raise Malformed(f"hit rate {number!r}: not a number; expected 0 to 1, or per cent, such as 58.8%")
        if not 0 <= rate <= 1:
            meant = f"; did you mean {number}%?" if 1 < rate <= 100 and not number.endswith("%") else ""
            raise OutOfRange(f"hit rate {number}: expected 0 to 1, or per cent with its sign, such as 58.8%{meant}")
        rates.append(Rate(f"hit rate {number}", hit_rate=rate))
    return rates


def read_rates(path: str | Path) -> list[Rate]:
    """The rows of a published table with one of the columns `misses_per_call`, `hit_pct` and `hit_rate`.

    It may also have `topk`, `bank` or `slots` (slots per layer, or bytes such as 8GiB), and the measured `tok_s` or
    `decode_tok_s`, or both `tok_s_lo` and `tok_s_hi`; an empty cell means unknown. Other columns are ignored. Raises
    BadInput, naming the line, if a value cannot be read.
    """
    file = Path(path)
    columns, rows = read_table(file)
    if not any(name in columns for name in RATES):
        raise Malformed(
            f"{file}: no column {', '.join(RATES[:-1])} or {RATES[-1]}; found: {', '.join(columns)[:200]}; "
            "give another table"
        )
    return [_rate(row, f"{file}: line {line}") for line, row in rows]


def _rate(row: Row, where: str) -> Rate:
    misses = _number(row, "misses_per_call", where)
    percent, share = (_hit_rate(row, name, where) for name in SHARES)
    if percent is not None and share is not None and abs(percent - share) > ROUNDED:
        raise Malformed(
            f"{where}: hit_pct {row['hit_pct']} and hit_rate {row['hit_rate']} differ; leave one of them out"
        )
    hit_rate = share if percent is None else percent
    if misses is None and hit_rate is None:
        raise Malformed(f"{where}: no number in the columns {', '.join(n for n in RATES if n in row)}; expected one")
    top_k = _number(row, "topk", where)
    if top_k is not None and (top_k < 1 or top_k != int(top_k)):
        raise OutOfRange(f"{where}: topk {top_k:g}; expected a whole number of experts a token, at least 1")
    bank = next((row[name] for name in BANKS if row.get(name)), None)
    speed = next((number for name in SPEEDS if (number := _number(row, name, where)) is not None), None)
    slow, fast = (_number(row, name, where) for name in SPEED_ENDS)
    if 0 in (speed, slow, fast):
        raise OutOfRange(f"{where}: a speed of 0 tokens a second; expected what was measured, or nothing")
    return Rate(
        where=where,
        hit_rate=hit_rate,
        misses_per_call=misses,
        top_k=None if top_k is None else int(top_k),
        bank=None if bank is None else _bank(bank, where),
        tok_s=speed,
        tok_s_lo=slow,
        tok_s_hi=fast,
        in_percent=percent is not None and not row["hit_pct"].endswith("%"),
    )


def percent_or_share(rates: Iterable[Rate]) -> str:
    """A note if all rates in a column hit_pct are at most 1%, which may be meant as 0 to 1; else nothing."""
    shares = [rate.hit_rate for rate in rates if rate.in_percent and rate.hit_rate]
    if not shares or max(shares) > 0.01:
        return ""
    return f"hit_pct {100 * max(shares):g} is read as {max(shares):.2%}; if it means 0 to 1, name the column hit_rate"


def _number(row: Row, name: str, where: str) -> float | None:
    cell = row.get(name)
    if not cell:
        return None
    number = decimal(cell)
    if number is None or not 0 <= number < math.inf:
        raise Malformed(f"{where}: found {name} {cell!r}; expected a number from 0")
    return number


def _bank(text: str, where: str) -> Bank:
    try:
        return parse_bank(text)
    except BadInput as error:
        raise type(error)(f"{where}: {error}") from None


def _hit_rate(row: Row, name: str, where: str) -> float | None:
    cell = row.get(name)
    if not cell:
        return None
    rate = share_of(name, cell)
    if rate is None or not 0 <= rate <= 1:
        expected = "0 to 100" if name == "hit_pct" else "0 to 1, or per cent with its sign"
        raise Malformed(f"{where}: found {name} {cell!r}; expected {expected}")
    return rate
