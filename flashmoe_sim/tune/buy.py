"""What to buy: the fewest parts of a machine to change for a target speed, and the gain of each better part."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.io.sizes import plain
from flashmoe_sim.machines.arithmetic import LLAMA_CPP, most_gb_s
from flashmoe_sim.machines.compose import compose_parts
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.machines.parts import Parts, catalogue
from flashmoe_sim.systems.compare import NEAR, Compared
from flashmoe_sim.tune.change import WhatIf
from flashmoe_sim.tune.prices import Prices
from flashmoe_sim.tune.shop import OtherPart, changes, machine_of, note_on
from flashmoe_sim.tune.speeds import speed

MOST_CHANGES = 3
# The most next better parts of a kind; for cards and computers, one of each size instead.
OPTIONS = 6
# Two of them are worth distinguishing if one is at least a tenth better.
APART = math.log2(1.1)
SIZES = (
    "gpu.memory_gib",
    "gpu.weights_gb_s",
    "memory.ram_gib",
    "memory.bandwidth_gb_s",
    "storage.read_gb_s",
    "link.pinned_gb_s",
)
# Quantities that do not affect decode speed, or are counted with RAM.
LEFT_OUT = ("gpu.knee_tokens", "cpu.knee_tokens", "memory.reserve_gib")


@dataclass(frozen=True, eq=False)
class Bought:
    """A machine with some parts changed, and the fastest system on it with its interval.

    changes: each in words. doublings: the number of doublings of all sizes and rates together, which ranks options.
    price: of all changes; None without prices.
    """

    changes: tuple[str, ...]
    kinds: tuple[str, ...]
    parts: Parts
    found: Compared
    doublings: float
    price: float | None = None

    @property
    def order(self) -> tuple[bool, float]:
        """By price; without prices, desktop computers' parts first, then by the size of the change."""
        if self.price is not None:
            return False, self.price
        by_kind = self.parts.by_kind
        return any(by_kind[kind].form for kind in self.kinds if kind in by_kind), self.doublings

    def as_row(self) -> dict[str, Any]:
        return {
            "changes": list(self.changes),
            "kinds": list(self.kinds),
            "machine": " + ".join(self.parts.names),
            "price": self.price,
            "setting": self.found.system.spec,
            "tok_s": self.found.tok_s,
            "tok_s_lo": self.found.tok_s_lo,
            "tok_s_hi": self.found.tok_s_hi,
            "why_not": self.found.why_not or None,
        }


@dataclass(frozen=True, eq=False)
class Advice:
    """What to buy: the fewest changed parts that reach a target or, without one, the gain of better parts one by one.

    target_tok_s: the target speed; None without one. present: what is recommended on the machine as it is.
    rows: the machines with the fewest changed parts that reach the target, the least changed first; none that is
        smaller in every respect does. Without a target, by kind of part, desktop cards before others, then by speed;
        one more card like the present one is among them even if it gains nothing.
    fastest: the fastest machine found, if none reaches the target. useless: kinds in which no better part gains 3%.
    used: a machine with a card that is within the budget only if it is bought used, and faster than all rows.
    note: what was not changed, and why, or empty. n_machines, evaluations: numbers of machines and settings tried.
    prices: of parts, if given.
    """

    target_tok_s: float | None
    present: Compared
    rows: tuple[Bought, ...]
    n_machines: int
    evaluations: int
    note: str = ""
    prices: Prices | None = None
    fastest: Bought | None = None
    useless: tuple[str, ...] = ()
    used: Bought | None = None

    @property
    def enough(self) -> bool:
        """Whether the machine reaches the target without a change."""
        return self.target_tok_s is not None and (self.present.tok_s or 0.0) >= self.target_tok_s

    @property
    def sentence(self) -> str:
        """What reaches the target; without one, the most speed that the budget buys; empty without both."""
        if self.target_tok_s is not None:
            return self._of_target(self.target_tok_s)
        if self.prices is None or self.prices.budget is None:
            return ""
        most, now = plain(self.prices.budget), self.present.tok_s or 0.0
        best = max(self.rows, key=lambda row: row.found.tok_s or 0.0, default=None)
        if best is None or (best.found.tok_s or 0.0) <= now:
            return f"For at most {most} no single part with a price makes the machine faster."
        return f"Of the parts with a price, for at most {most}, the fastest is {best.changes[0]}: {speed(best.found)}."

    def _of_target(self, target_tok_s: float) -> str:
        wanted, present = f"{plain(target_tok_s)} tok/s", self.present
        if self.enough:
            sure = (present.tok_s_lo or 0.0) >= target_tok_s
            less = "" if sure else "; it may be less: the lower end of the interval is below it"
            return f"For {wanted} there is nothing to buy: the machine has {speed(present)}{less}."
        now = f"{present.system.spec} has {speed(present)} now" if present.tok_s else "no system runs on it now"
        if self.rows:
            number = len(self.rows[0].kinds)
            one = "another computer" if self.rows[0].kinds == ("chip",) else "one change"
            what = f"{one} is" if number == 1 else f"{number} changes are"
            sure = any((each.found.tok_s_lo or 0.0) >= target_tok_s for each in self.rows)
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


class Stock:
    """The machines that result from changing one machine's parts; each is timed once.

    prices: of parts, which leave out what has none or costs more than the budget; None for all parts.
    now: the machine as it is. options: possible changes, by kind. tried: the fastest system for each set of changes.
    unpriced: how many changes have no price. unused: parts with a price that are no change of this machine. used: cards
    that are within the budget only if they are bought used.
    """

    def __init__(self, what_if: WhatIf, parts: Parts, prices: Prices | None = None) -> None:
        self.what_if, self.parts, self.prices, self.now = what_if, parts, prices, compose_parts(parts)
        self.options, self.unpriced, self.unused, self.used = changes(parts), 0, list[str](), list[OtherPart]()
        if prices is not None:
            each = [one for kept in self.options.values() for one in kept]
            self.unpriced = sum(prices.of([one], parts) is None for one in each)
            self.unused = [] if prices.at_launch else prices.unused(each)
            self.used = [one for one in each if prices.perhaps_used(one, parts)]
            for kind, kept in self.options.items():
                self.options[kind] = [one for one in kept if prices.within([one], parts)]
        self.machines: dict[tuple[OtherPart, ...], Machine] = {}
        self.tried: dict[tuple[OtherPart, ...], Compared] = {}

    def sets(self, number: int, options: dict[str, list[OtherPart]]) -> list[tuple[OtherPart, ...]]:
        """Sets of `number` compatible changes that make the machine better in some respect."""
        found = [one for kinds in combinations(options, number) for one in product(*map(options.__getitem__, kinds))]
        if self.prices is not None:
            found = [one for one in found if self.prices.within(one, self.parts)]
        made = {one: machine for one in found if (machine := machine_of(self.parts_with(one), self.parts)) is not None}
        no_better = at_least([self.now, *made.values()])[0]
        better = {one: machine for (one, machine), no in zip(made.items(), no_better[1:], strict=True) if not no}
        self.machines |= better
        return list(better)

    def next_better(self) -> dict[str, list[OtherPart]]:
        """The next options of each kind, the smallest changes first.

        For cards with at least the present memory that run the same programs, all of desktop computers and the least
        of each size of others; for other computers with at least as much RAM, the least with each chip; for other
        parts, those a tenth apart.
        """
        changed = sorted((one for (one,) in self.sets(1, self.options)), key=self._doublings_of)
        found: dict[str, list[OtherPart]] = {kind: [] for kind in self.options}
        seen: set[object] = set()
        for one in changed:
            kept = found[one.kind]
            if one.kind in ("gpu", "chip"):
                size = self._size(one)
                if size is None or size in seen:
                    continue
                seen.add(size)
            elif len(kept) == OPTIONS or self._doublings_of(one) < APART + max(
                map(self._doublings_of, kept), default=0
            ):
                continue
            kept.append(one)
        return {kind: kept for kind, kept in found.items() if kept}

    def _size(self, one: OtherPart) -> object:
        """A card's memory, or another computer's chip; None if it is less than the present one.

        A desktop computer's card is a size of its own.
        """
        if one.kind == "chip":
            own = self.parts.by_kind["chip"].name == one.name
            return None if (one.ram_gib or 0) < (self.parts.ram_gib or 0) else (one.name, own and one.ram_gib)
        machine, before = self.machines[one,], self.now.gpu
        assert machine.gpu is not None
        assert machine.gpu.memory_gib is not None
        size = machine.gpu.memory_gib.value
        less = before is not None and before.memory_gib is not None and size < before.memory_gib.value
        if less or machine.api != (self.now.api or "cuda"):
            return None
        return size if catalogue()[one.name].form else (one.name, one.n_gpus, one.beside)

    def least_reaching(
        self, sets: Sequence[tuple[OtherPart, ...]], target_tok_s: float, progress: Callable[[int, int], None] | None
    ) -> list[Bought]:
        """The smallest sets of changes that reach the target for each line of cards, desktop cards and small changes
        first.

        No set tried before may reach it.
        """
        before = len(self.tried)
        better = at_least([self.machines[one] for one in (*self.tried, *sets)])
        kept = np.flatnonzero(~np.any(better[:before, before:], axis=0))
        left = [sets[place] for place in kept.tolist()]
        better = better[np.ix_(kept + before, kept + before)]

        def enough(item: int) -> bool:
            return self.speed(left[item]) >= target_tok_s

        if not any(enough(best) for best in _best(better)):
            return []
        lines = [self.line(one) for one in left]
        line = np.array([lines.index(one) for one in lines], np.int64)
        found = least(better & (line[:, None] == line[None, :]), enough, progress=progress)
        return sorted((self.bought(left[item]) for item in found), key=lambda one: one.order)

    def fastest(self) -> Bought | None:
        """The fastest of all sets tried."""
        most = max(self.tried, key=self.speed, default=())
        return self.bought(most) if most and self.speed(most) else None

    def fastest_used(self) -> Bought | None:
        """The fastest with one card that is within the budget only if it is bought used."""
        found = []
        for one in self.used:
            if (machine := machine_of(self.parts_with([one]), self.parts)) is not None:
                self.machines[one,] = machine
                found += [] if self._size(one) is None else [(one,)]
        most = max(found, key=self.speed, default=())
        return self.bought(most) if most and self.speed(most) else None

    def bought(self, one: tuple[OtherPart, ...]) -> Bought:
        """The machine with these changes, with the interval of its speed."""
        machine = self.machines[one]
        return Bought(
            tuple(change.in_words(self.parts) for change in one),
            tuple(change.kind for change in one),
            self.parts_with(one),
            self.what_if.sure(self._fastest(one), machine),
            self._doublings(machine),
            None if self.prices is None else self.prices.of(one, self.parts),
        )

    def speed(self, one: tuple[OtherPart, ...]) -> float:
        """Tokens a second; 0 if nothing runs."""
        return self._fastest(one).tok_s or 0.0

    def _fastest(self, one: tuple[OtherPart, ...]) -> Compared:
        if one not in self.tried:
            self.tried[one] = self.what_if.fastest(self.machines[one])
        return self.tried[one]

    def parts_with(self, one: Sequence[OtherPart]) -> Parts:
        """The parts after these changes."""
        parts = self.parts
        for change in one:
            parts = change.made(parts)
        return parts

    def line(self, one: Sequence[OtherPart]) -> tuple[str, ...]:
        """The maker, form and generation of the card after these changes; lines are sold side by side."""
        gpu = self.parts_with(one).by_kind.get("gpu")
        return () if gpu is None else (gpu.maker, gpu.form, gpu.compute)

    def more_cards(self, one: OtherPart) -> bool:
        """Whether a change adds a card like the present one."""
        return one.kind == "gpu" and one.n_gpus > self.parts.n_gpus

    def _doublings_of(self, one: OtherPart) -> float:
        return self._doublings(self.machines[one,])

    def _doublings(self, machine: Machine) -> float:
        """For a first card, they are counted from the smallest card in the catalogue."""
        cards = [part for part in catalogue().values() if part.kind == "gpu"]
        old = {
            "gpu.memory_gib": min(card.numbers["memory_gib"].value for card in cards),
            "gpu.weights_gb_s": min(card.numbers["bandwidth_gb_s"].value for card in cards),
        } | {path: quantity.value for path, quantity in self.now.quantities()}
        new = dict(machine.quantities())
        return sum(max(math.log2(new[path].value / old[path]), 0.0) for path in SIZES if path in new and path in old)

    @property
    def note(self) -> str:
        """What was not changed, and why; empty if everything was."""
        unpriced = f"{self.unpriced} other changes have no price in the table" if self.unpriced else ""
        unused = ", ".join(self.unused)
        if unused:
            unused += ": not tried, since they do not go with this machine, or a part like them stands for them"
        return "; ".join(filter(None, (note_on(self.parts), unpriced, unused)))

    def advice(self, target_tok_s: float | None, rows: Sequence[Bought], **more: Any) -> Advice:
        """These rows as advice, with what was tried."""
        tried = len(self.tried), self.what_if.evaluations
        return Advice(target_tok_s, self.what_if.now, tuple(rows), *tried, prices=self.prices, **more)


def buy(
    stock: Stock, target_tok_s: float | None = None, *, progress: Callable[[int, int], None] | None = None
) -> Advice:
    """The fewest parts to change so that one of the systems decodes at the target; without one, see `next_better`.

    Single changes are tried first, then pairs, then triples; among equal numbers, all are found that no smaller change
    with a card of the same maker and generation could replace, as long as no better machine is slower than a worse one.
    """
    if target_tok_s is None:
        return next_better(stock, progress=progress)
    if not 0 < target_tok_s < math.inf:
        raise OutOfRange(f"{target_tok_s:g} tok/s; expected a speed above 0, such as 10")
    if (stock.what_if.now.tok_s or 0.0) >= target_tok_s:
        return stock.advice(target_tok_s, [])
    for number in range(1, MOST_CHANGES + 1):
        options = stock.options if number < MOST_CHANGES else stock.next_better()
        if bought := stock.least_reaching(stock.sets(number, options), target_tok_s, progress):
            return stock.advice(target_tok_s, bought, note=stock.note)
    return stock.advice(target_tok_s, [], note=stock.note, fastest=stock.fastest())


def next_better(stock: Stock, *, progress: Callable[[int, int], None] | None = None) -> Advice:
    """The gain of the next better parts of every kind, one changed at a time.

    Cards have at least the memory of the present one and run the same programs: all of desktop computers, and the
    least of each memory size of others. A part that is less than 3% faster than a lesser one of its kind, and for
    cards of its maker and generation, is left out.
    """
    present, options = stock.what_if.now, stock.next_better()
    rows: list[Bought] = []
    for number, parts in enumerate(options.values()):
        if progress is not None:
            progress(number, len(options))
        most: dict[tuple[str, ...], float] = {}
        kept: list[Bought] = []
        for change in parts:
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
    return stock.advice(None, rows, note=stock.note, useless=useless, used=used)


def at_least(machines: Sequence[Machine]) -> NDArray[np.bool_]:
    """[i, j]: whether machine i has no worse quantity than machine j, and the same kinds of parts."""
    values = [_quantities(machine) for machine in machines]
    kinds = [(machine.unified, machine.api, tuple(found)) for machine, found in zip(machines, values, strict=True)]
    kind = np.array([kinds.index(one) for one in kinds])
    result: NDArray[np.bool_] = kind[:, None] == kind[None, :]
    for path in dict.fromkeys(path for found in values for path in found):
        one = np.array([found.get(path, 0.0) for found in values])
        result &= one[:, None] >= one[None, :]
    return result


def _quantities(machine: Machine) -> dict[str, float]:
    """Quantities by path, such that larger is better."""
    found = {
        path: -quantity.value if path.endswith("_us") else quantity.value
        for path, quantity in machine.quantities()
        if path not in LEFT_OUT
    }
    if machine.memory is not None:
        found["memory.ram_gib"] -= machine.memory.reserve_gib.value
    return {**found, "cores": most_gb_s(machine, "iq2_xxs", LLAMA_CPP)}


def least(
    better: NDArray[np.bool_],
    enough: Callable[[int], bool],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[int]:
    """The least items that are enough, in their order: none that they are at least as good as is enough. Tests few
    items.

    better: as from `at_least`. Exact if everything at least as good as an item that is enough is also enough.
    """
    left, found = np.ones(len(better), np.bool_), []

    def ask(item: int) -> None:
        if progress is not None:
            progress(int((~left).sum()), len(left))
        if enough(item):
            found.append(item)
            left[better[:, item]] = False
        else:
            left[better[item]] = False

    for best in _best(better):
        ask(best)
    while left.any():
        open_ = better & left[:, None] & left[None, :]
        ask(int(np.argmax(np.minimum(open_.sum(axis=0), open_.sum(axis=1)))))
    return [item for item in sorted(found) if not any(better[item, other] and other != item for other in found)]


def _best(better: NDArray[np.bool_]) -> Iterator[int]:
    """The items that no other is better than, one of those that are alike."""
    left: NDArray[np.bool_] = ~np.any(better & ~better.T, axis=0)
    for item in np.flatnonzero(left):
        if left[item]:
            left[better[item]] = False
            yield int(item)
