"""What to buy: the fewest changed parts of a machine that reach a target speed, and the gain of each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.io.numbers import plain
from flashmoe_sim.systems.compare import NEAR, Compared
from flashmoe_sim.tune.prices import Prices
from flashmoe_sim.tune.shop import note_on
from flashmoe_sim.tune.speeds import speed
from flashmoe_sim.tune.stock import Bought, Stock

MOST_CHANGES = 3


@dataclass(frozen=True, eq=False)
class Advice:
    """What to buy.

    target_tok_s: the target speed. present: what is recommended on the machine as it is. bought: the machines with the
    fewest changed parts that reach the target, the least changed first; none that is smaller in every respect does.
    fastest: the fastest machine found, if none reaches the target. note: what was not changed, and why, or empty.
    n_machines, evaluations: numbers of machines and settings tried. prices: of parts, if given.
    """

    target_tok_s: float
    present: Compared
    bought: tuple[Bought, ...]
    fastest: Bought | None
    note: str
    n_machines: int
    evaluations: int
    prices: Prices | None = None

    @property
    def enough(self) -> bool:
        """Whether the machine needs no change."""
        return (self.present.tok_s or 0.0) >= self.target_tok_s

    @property
    def sentence(self) -> str:
        wanted, present = f"{plain(self.target_tok_s)} tok/s", self.present
        if self.enough:
            sure = (present.tok_s_lo or 0.0) >= self.target_tok_s
            less = "" if sure else "; it may be less: the lower end of the interval is below it"
            return f"For {wanted} there is nothing to buy: the machine has {speed(present)}{less}."
        now = f"{present.system.spec} has {speed(present)} now" if present.tok_s else "no system runs on it now"
        if self.bought:
            number = len(self.bought[0].kinds)
            one = "another computer" if self.bought[0].kinds == ("chip",) else "one change"
            what = f"{one} is" if number == 1 else f"{number} changes are"
            sure = any((each.found.tok_s_lo or 0.0) >= self.target_tok_s for each in self.bought)
            less = "" if sure else "; for every option the lower end of the interval is still below that"
            return f"For {wanted} {what} enough; {now}{less}."
        priced = "" if self.prices is None else " with a price"
        most = "" if self.prices is None or self.prices.budget is None else f" for at most {plain(self.prices.budget)}"
        if self.fastest is None:
            return f"No change of a named part{priced}{most} makes the machine faster; {now}."
        change = ", ".join(self.fastest.changes)
        return (
            f"Nothing in the catalogue{priced}{most} reaches {wanted}; the fastest is {speed(self.fastest.found)}, "
            f"with {change}."
        )


@dataclass(frozen=True, eq=False)
class NextBetter:
    """The gain of better parts, one at a time.

    present: what is recommended on the machine as it is. rows: by kind of part, desktop cards before others, then by
    speed; one more card like the present one is among them even if it gains nothing. useless: kinds in which no better
    part gains 3%. note: what was not changed, and why, or empty. n_machines, evaluations: numbers of machines and
    settings tried. prices: of parts, if given. used: a machine with a card that is within the budget only if it is
    bought used, and faster than all rows.
    """

    present: Compared
    rows: tuple[Bought, ...]
    useless: tuple[str, ...]
    note: str
    n_machines: int
    evaluations: int
    prices: Prices | None = None
    used: Bought | None = None

    @property
    def if_used(self) -> str:
        """The speed with an older card, bought used; empty if it is no faster."""
        if self.used is None or self.prices is None or self.prices.budget is None:
            return ""
        most, price = plain(self.prices.budget), plain(self.used.price or 0.0)
        return (
            f"Used, if you find it for at most {most}, {self.used.changes[0]} gives more: {speed(self.used.found)}; it "
            f"cost {price} when it came out."
        )

    @property
    def sentence(self) -> str:
        """The most speed that the budget buys; empty without one."""
        if self.prices is None or self.prices.budget is None:
            return ""
        most, now = plain(self.prices.budget), self.present.tok_s or 0.0
        best = max(self.rows, key=lambda row: row.found.tok_s or 0.0, default=None)
        if best is None or (best.found.tok_s or 0.0) <= now:
            return f"For at most {most} no single part with a price makes the machine faster."
        return f"Of the parts with a price, for at most {most}, the fastest is {best.changes[0]}: {speed(best.found)}."


def buy(stock: Stock, target_tok_s: float, *, progress: Callable[[int, int], None] | None = None) -> Advice:
    """The fewest parts to change so that one of the systems decodes at the target.

    Single changes are tried first, then pairs, then triples; among equal numbers, all are found that no smaller change
    with a card of the same maker and generation could replace, as long as no better machine is slower than a worse one.
    """
    if not 0 < target_tok_s < math.inf:
        raise OutOfRange(f"{target_tok_s:g} tok/s; expected a speed above 0, such as 10")
    present, bought, fastest, note = stock.present(), [], None, ""
    if (present.tok_s or 0.0) < target_tok_s:
        note = _note(stock)
        for number in range(1, MOST_CHANGES + 1):
            options = stock.options if number < MOST_CHANGES else stock.next_better()
            if bought := stock.least_reaching(stock.sets(number, options), target_tok_s, progress):
                break
        fastest = None if bought else stock.fastest()
    tried = len(stock.tried), stock.resizer.evaluations
    return Advice(target_tok_s, present, tuple(bought), fastest, note, *tried, stock.prices)


def _note(stock: Stock) -> str:
    """What was not changed, and why; empty if everything was."""
    unpriced = f"{stock.unpriced} other changes have no price in the table" if stock.unpriced else ""
    unused = ", ".join(stock.unused)
    if unused:
        unused += ": not tried, since they do not go with this machine, or a part like them stands for them"
    return "; ".join(filter(None, (note_on(stock.parts), unpriced, unused)))


def next_better(stock: Stock, *, progress: Callable[[int, int], None] | None = None) -> NextBetter:
    """The gain of the next better parts of every kind, one changed at a time.

    Cards have at least the memory of the present one and run the same programs: all of desktop computers, and the
    least of each memory size of others. A part that is less than 3% faster than a lesser one of its kind, and for
    cards of its maker and generation, is left out.
    """
    present, options = stock.present(), stock.next_better()
    rows: list[Bought] = []
    for number, changes in enumerate(options.values()):
        if progress is not None:
            progress(number, len(options))
        most: dict[tuple[str, ...], float] = {}
        kept: list[Bought] = []
        for change in changes:
            speed, line = stock.speed((change,)), stock.line((change,))
            if speed * (1 - NEAR) > most.get(line, present.tok_s or 0.0):
                kept.append(stock.bought((change,)))
                most[line] = speed
            elif stock.prices is None and stock.more_cards(change):
                kept.append(stock.bought((change,)))
        rows += sorted(kept, key=lambda one: (one.order[0], one.found.tok_s or 0.0))
    useless = tuple(kind for kind in options if all(row.kinds != (kind,) for row in rows))
    if stock.prices is not None:
        rows.sort(key=lambda one: one.order)
    used = stock.fastest_used()
    fastest = max(one.tok_s or 0.0 for one in (present, *(row.found for row in rows)))
    if used is not None and (used.found.tok_s or 0.0) * (1 - NEAR) <= fastest:
        used = None
    tried = len(stock.tried), stock.resizer.evaluations
    return NextBetter(present, tuple(rows), useless, _note(stock), *tried, stock.prices, used)
