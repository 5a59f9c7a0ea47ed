"""Prices of parts: from a table of the user's own, or what they cost when they came out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from flashmoe_sim.io.errors import BadInput, Malformed, shown
from flashmoe_sim.io.sizes import decimal
from flashmoe_sim.machines.parts import Parts
from flashmoe_sim.machines.rows import read_table
from flashmoe_sim.machines.written import parse_parts
from flashmoe_sim.tune.shop import OtherPart

_RAM = re.compile(r"[0-9.]+GiB")
_AT_LAUNCH = Path(__file__).with_name("launch_prices.csv")
OLD = "2022-01"  # four years before the latest of the launch prices
LEAST_USED = 0.4  # of the price at launch: a card is hardly sold for less


@dataclass(frozen=True)
class Prices:
    """What parts cost, and the most to spend. A processor with RAM of another generation costs that RAM too.

    by_name: by a part's name, a size of RAM such as `64GiB`, or a chip with its RAM such as `m4-max + 64GiB`; all in
    one currency. budget: None for no limit. at_launch: in US dollars when the part came out, not today. old: cards so
    old that they are mostly sold used.
    """

    by_name: Mapping[str, float]
    budget: float | None = None
    at_launch: bool = False
    old: frozenset[str] = frozenset()

    def of(self, changes: Iterable[OtherPart], parts: Parts) -> float | None:
        """The price of these changes of parts; None if one of them has none."""
        each = [self._of(change, parts) for change in changes]
        return None if None in each else sum(price for price in each if price is not None)

    def within(self, changes: Iterable[OtherPart], parts: Parts) -> bool:
        """Whether these changes have prices, and cost no more than the budget."""
        price = self.of(changes, parts)
        return price is not None and (self.budget is None or price <= self.budget)

    def perhaps_used(self, change: OtherPart, parts: Parts) -> bool:
        """Whether a change costs more than the budget at launch, but may not if it is bought used."""
        price = self.of([change], parts)
        if price is None or self.budget is None or change.name not in self.old:
            return False
        return self.budget < price <= self.budget / LEAST_USED

    def unused(self, changes: Iterable[OtherPart]) -> list[str]:
        """Names of parts with a price that are none of these changes; of sizes of RAM none."""
        used = {_name(change) for change in changes}
        return [name for name in self.by_name if name not in used and not _RAM.fullmatch(name)]

    def _of(self, change: OtherPart, parts: Parts) -> float | None:
        price = self.by_name.get(_name(change))
        if price is not None and change.new_memory(parts):
            memory = self.by_name.get(f"{parts.ram_gib or 0:g}GiB")
            return None if memory is None else price + memory
        return None if price is None else price * change.added(parts)


def _name(change: OtherPart) -> str:
    ram = "" if change.ram_gib is None else f"{change.ram_gib:g}GiB"
    return " + ".join(filter(None, (change.name, ram)))


def launch_prices(budget: float | None = None) -> Prices:
    """What graphics cards cost when they came out, in US dollars, as `launch_prices.csv` has it with its sources."""
    old = {row["part"] for _, row in read_table(_AT_LAUNCH)[1] if row["launched"] < OLD}
    return replace(read_prices(_AT_LAUNCH, budget), at_launch=True, old=frozenset(old))


def read_prices(file: Path, budget: float | None = None) -> Prices:
    """Prices from a table with the columns `part` and `price`; other columns are not read.

    Raises BadInput for a file that is not such a table, for an unknown part, and for a part with two prices.
    """
    columns, rows = read_table(file)
    for column in ("part", "price"):
        if column not in columns:
            raise Malformed(f"{file}: no column {column}; expected part,price with a part and its price in each row")
    by_name: dict[str, float] = {}
    for number, row in rows:
        where = f"{file}: line {number}"
        try:
            name = " + ".join(parse_parts(row["part"]).names)
        except BadInput as error:
            raise type(error)(f"{where}: {error}") from None
        price = decimal(row["price"])
        if price is None or price < 0:
            raise Malformed(f"{where}: the price of {name} is {shown(row['price'])}; expected a number from 0")
        if name in by_name:
            raise Malformed(f"{where}: {name} has a price already; give one")
        by_name[name] = price
    return Prices(by_name, budget)
