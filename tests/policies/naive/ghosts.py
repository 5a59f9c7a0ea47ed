"""Twins of the policies that remember what they evicted, and of the policies that learn from it."""

from __future__ import annotations

import math
from fractions import Fraction

from tests.policies.naive import Expert, Next, Twin


class Arc(Twin):
    """Megiddo and Modha's lists T1, T2, B1 and B2, each in the order in which its experts came to it."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.p = 0.0
        self.name: dict[Expert, str] = {}
        self.since: dict[Expert, int] = {}
        self.moves = 0
        self.last_miss = ""

    def move(self, expert: Expert, name: str) -> None:
        self.moves += 1
        self.name[expert], self.since[expert] = name, self.moves

    def list(self, *names: str) -> list[Expert]:
        return sorted((one for one, name in self.name.items() if name in names), key=lambda one: self.since[one])

    def drop_ghosts(self) -> None:
        while self.list("B1") and len(self.list("T1", "B1")) > self.capacity:
            del self.name[self.list("B1")[0]]
        while self.list("B2") and len(self.name) > 2 * self.capacity:
            del self.name[self.list("B2")[0]]

    def missed(self, expert: Expert, now: int) -> None:
        b1, b2 = len(self.list("B1")), len(self.list("B2"))
        self.last_miss = self.name.get(expert, "")
        if self.last_miss == "B1":
            self.p = min(float(self.capacity), self.p + max(1.0, b2 / b1))
        if self.last_miss == "B2":
            self.p = max(0.0, self.p - max(1.0, b1 / b2))

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.move(expert, "T2")

    def installed(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.move(expert, "T2" if expert in self.name else "T1")
        self.drop_ghosts()

    def evicted(self, slot: int, expert: Expert) -> None:
        self.move(expert, "B1" if self.name[expert] == "T1" else "B2")
        self.drop_ghosts()

    def victim(self, held: list[tuple[int, Expert]]) -> int:
        slot_of = {expert: slot for slot, expert in held}
        t1 = [one for one in self.list("T1") if one in slot_of]
        t2 = [one for one in self.list("T2") if one in slot_of]
        from_t1 = len(t1) > self.p or (len(t1) == self.p and self.last_miss == "B2")
        first, second = (t1, t2) if from_t1 else (t2, t1)
        return slot_of[(first + second)[0]]


def region(share: float, capacity: int) -> int:
    """Slots of a share of the bank: at least one, and if there are two, not all."""
    whole = int(share * capacity)
    return 1 if whole == 0 or capacity == 1 else min(whole, capacity - 1)


class Lirs(Twin):
    """Stack S, bottom first, queue Q of resident HIR, front first, and the non-resident HIR in the order they left."""

    def __init__(self, capacity: int, *, hir: float = 0.01, stack: int = 3) -> None:
        super().__init__(capacity)
        self.most_lir = capacity - region(hir, capacity)
        self.most_stack = stack * capacity
        self.s: list[Expert] = []
        self.q: list[Expert] = []
        self.left: list[Expert] = []
        self.lir: set[Expert] = set()

    def tidy(self) -> None:
        if len(self.lir) > self.most_lir:
            bottom = next(one for one in self.s if one in self.lir)
            self.s.remove(bottom)
            self.lir.remove(bottom)
            self.q.append(bottom)
        while self.s and self.s[0] not in self.lir:
            self.s.pop(0)
        self.left = [one for one in self.left if one in self.s]
        while len(self.s) > self.most_stack and self.left:
            self.s.remove(self.left.pop(0))

    def to_top(self, expert: Expert) -> None:
        self.s = [one for one in self.s if one != expert] + [expert]

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        if expert in self.q:
            self.q.remove(expert)
            if expert in self.s or len(self.lir) < self.most_lir:
                self.lir.add(expert)
            else:
                self.q.append(expert)
        self.to_top(expert)
        self.tidy()

    def installed(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        if expert in self.left or len(self.lir) + len(self.q) < self.most_lir:
            self.left = [one for one in self.left if one != expert]
            self.lir.add(expert)
        else:
            self.q.append(expert)
        self.to_top(expert)
        self.tidy()

    def victim(self, held: list[tuple[int, Expert]]) -> int:
        slot_of = {expert: slot for slot, expert in held}
        in_order = self.q + [one for one in self.s if one in self.lir]
        return slot_of[next(one for one in in_order if one in slot_of)]

    def evicted(self, slot: int, expert: Expert) -> None:
        if expert in self.lir:
            self.lir.remove(expert)
            self.s.remove(expert)
        else:
            self.q.remove(expert)
            self.left.append(expert)
        self.tidy()


class LruK(Twin):
    """Every use of every expert as (first, last) of the correlated uses it stands for."""

    def __init__(self, capacity: int, *, k: int = 2, correlated: int = 0, history: str = "keep") -> None:
        super().__init__(capacity)
        self.k, self.correlated, self.history = k, correlated, history
        self.uses: dict[Expert, list[tuple[int, int]]] = {}
        self.now = 0

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.now = now
        first, last = self.uses[expert][-1]
        if now - last <= self.correlated:
            self.uses[expert][-1] = (first, now)
        else:
            # What the correlated uses took is no time: all before them moves up.
            spent = last - first
            self.uses[expert] = [(a + spent, b + spent) for a, b in self.uses[expert]] + [(now, now)]

    def missed(self, expert: Expert, now: int) -> None:
        self.now = now

    def installed(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        if self.history == "restart":
            self.uses.pop(expert, None)
        self.uses.setdefault(expert, []).append((now, now))

    def victim(self, held: list[tuple[int, Expert]]) -> int:
        def rank(pair: tuple[int, Expert]) -> tuple[bool, int, int]:
            uses = self.uses[pair[1]]
            recent = self.correlated > 0 and self.now - uses[-1][1] <= self.correlated
            return recent, uses[-self.k][0] if len(uses) >= self.k else 0, uses[-1][1]

        return min(held, key=rank)[0]


class WTinyLfu(Twin):
    """The window, probation and protected as lists, oldest first, and counts in a dict."""

    def __init__(self, capacity: int, *, window: float = 0.01, sample: int = 10) -> None:
        super().__init__(capacity)
        self.most_window = region(window, capacity)
        self.most_main = capacity - self.most_window
        self.most_protected = region(0.8, self.most_main) if self.most_main >= 2 else 0
        self.sample = sample * capacity
        self.window: list[Expert] = []
        self.probation: list[Expert] = []
        self.protected: list[Expert] = []
        self.count: dict[Expert, int] = {}
        self.uses = 0

    def counted(self, expert: Expert) -> None:
        self.count[expert] = self.count.get(expert, 0) + 1
        self.uses += 1
        if self.uses == self.sample:
            self.uses = self.uses // 2
            self.count = {one: times // 2 for one, times in self.count.items()}

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.counted(expert)
        to = self.window if expert in self.window else self.protected
        for part in (self.window, self.probation, self.protected):
            if expert in part:
                part.remove(expert)
        to.append(expert)
        if len(self.protected) > self.most_protected:
            self.probation.append(self.protected.pop(0))

    def missed(self, expert: Expert, now: int) -> None:
        self.counted(expert)

    def fill_main(self) -> None:
        while len(self.window) > self.most_window and len(self.probation + self.protected) < self.most_main:
            self.probation.append(self.window.pop(0))

    def installed(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.window.append(expert)
        self.fill_main()

    def evicted(self, slot: int, expert: Expert) -> None:
        for part in (self.window, self.probation, self.protected):
            if expert in part:
                part.remove(expert)
        self.fill_main()

    def victim(self, held: list[tuple[int, Expert]]) -> int:
        slot_of = {expert: slot for slot, expert in held}
        candidates = [one for one in self.window if one in slot_of][:1]
        victims = [one for one in self.probation + self.protected if one in slot_of][:1]
        if candidates and victims:
            full = len(self.window) >= self.most_window
            stays = not full or self.count[candidates[0]] > self.count[victims[0]]
            candidates = [] if stays else candidates
        return slot_of[(candidates + victims)[0]]


class Generator:
    """Marsaglia's xorshift of 32 bits (13, 17, 5), as a fraction."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def fraction(self) -> float:
        self.state ^= self.state << 13 & 0xFFFFFFFF
        self.state ^= self.state >> 17
        self.state ^= self.state << 5 & 0xFFFFFFFF
        return self.state / 2**32


class Experts(Twin):
    """What LeCaR and Cacheus share: two rules, what each evicted last, oldest first, and a drawn choice."""

    def __init__(self, capacity: int, remember: int, seed: int) -> None:
        super().__init__(capacity)
        self.remember = remember
        self.generator = Generator(seed)
        self.weight = 0.5
        self.history: tuple[list[Expert], list[Expert]] = ([], [])
        self.chose: int | None = None
        self.count: dict[Expert, int] = {}
        self.last: dict[Expert, int] = {}
        self.now = 0

    def touched(self, expert: Expert, now: int) -> None:
        self.now = self.last[expert] = now
        self.count[expert] = self.count.get(expert, 0) + 1

    def reweighted(self, first: float, second: float) -> None:
        self.weight = min(max(first / (first + second), 0.01), 1.0 - 0.01)

    def choose(self, first: Expert, second: Expert) -> Expert:
        self.chose = None
        if first != second:
            self.chose = 0 if self.generator.fraction() < self.weight else 1
        return second if self.chose == 1 else first

    def remembered(self, expert: Expert) -> None:
        """Of an expert that has just been evicted."""
        if self.chose is None:
            del self.count[expert]
            return
        history = self.history[self.chose]
        if len(history) == self.remember:
            del self.count[history.pop(0)]
        history.append(expert)


class LeCaR(Experts):
    """The smallest last use against the smallest (count, last use)."""

    def __init__(self, capacity: int, *, rate: float = 0.45, discount: float = 0.005, seed: int = 1) -> None:
        super().__init__(capacity, capacity, seed)
        self.rate = rate
        self.discount = discount ** (1 / capacity)
        self.left: dict[Expert, int] = {}

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.touched(expert, now)

    installed = used

    def missed(self, expert: Expert, now: int) -> None:
        self.now = now
        for number, history in enumerate(self.history):
            if expert in history:
                history.remove(expert)
                gain = math.exp(self.rate * self.discount ** (now - self.left[expert]))
                lru, lfu = self.weight, 1.0 - self.weight
                self.reweighted(lru * gain if number == 1 else lru, lfu * gain if number == 0 else lfu)

    def victim(self, held: list[tuple[int, Expert]]) -> int:
        slot_of = {expert: slot for slot, expert in held}
        lru = min(slot_of, key=lambda one: self.last[one])
        lfu = min(slot_of, key=lambda one: (self.count[one], self.last[one]))
        return slot_of[self.choose(lru, lfu)]

    def evicted(self, slot: int, expert: Expert) -> None:
        self.left[expert] = self.now
        self.remembered(expert)


class Cacheus(Experts):
    """SR-LRU's two lists, oldest first, against the smallest count with the largest last use."""

    def __init__(self, capacity: int, *, seed: int = 1) -> None:
        super().__init__(capacity, max(capacity // 2, 1), seed)
        self.most_reused = max(capacity - region(0.01, capacity), 1)
        self.scan: list[Expert] = []
        self.reused: list[Expert] = []
        self.demoted: set[Expert] = set()
        self.new: set[Expert] = set()
        self.rate = min(max(math.sqrt(2 * math.log(2) / capacity), 0.001), 1.0)
        self.last_rate = self.last_hit_rate = 0.0
        self.period: list[bool] = []
        self.idle = 0

    def new_remembered(self) -> int:
        return sum(one in self.new for one in self.history[0])

    def step(self, over: int, under: int) -> int:
        return max(1, math.floor(Fraction(over, under) + Fraction(1, 2)))

    def to_reused(self, expert: Expert) -> None:
        self.reused.append(expert)
        while len(self.reused) > self.most_reused:
            self.demoted.add(self.reused[0])
            self.scan.append(self.reused.pop(0))

    def learn(self, *, hit: bool) -> None:
        self.period.append(hit)
        if len(self.period) < self.capacity:
            return
        hit_rate = sum(self.period) / self.capacity
        self.period = []
        gain, moved = hit_rate - self.last_hit_rate, self.rate - self.last_rate
        self.last_rate, self.last_hit_rate = self.rate, hit_rate
        if moved != 0:
            self.idle = 0
            by = abs(self.rate * moved)
            self.rate = min(max(self.rate + (by if gain * moved > 0 else -by), 0.001), 1.0)
        elif hit_rate == 0 or gain <= 0:
            self.idle += 1
            if self.idle == 10:
                self.idle = 0
                self.rate = 0.001 + (1.0 - 0.001) * self.generator.fraction()

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        if expert in self.reused:
            self.reused.remove(expert)
        else:
            self.scan.remove(expert)
            self.new.discard(expert)
            if expert in self.demoted:
                grown = self.most_reused + self.step(self.new_remembered(), len(self.demoted))
                self.most_reused = min(grown, max(self.capacity - 1, 1))
                self.demoted.remove(expert)
        self.to_reused(expert)
        self.touched(expert, now)
        self.learn(hit=True)

    def missed(self, expert: Expert, now: int) -> None:
        lower = math.exp(-self.rate)
        if expert in self.history[0]:
            self.reweighted(self.weight * lower, 1.0 - self.weight)
            if expert in self.new:
                self.most_reused = max(self.most_reused - self.step(len(self.demoted), self.new_remembered()), 1)
            self.history[0].remove(expert)
        elif expert in self.history[1]:
            self.reweighted(self.weight, (1.0 - self.weight) * lower)
            self.history[1].remove(expert)
        self.learn(hit=False)

    def installed(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.new.discard(expert)
        if expert in self.count:
            self.to_reused(expert)
        else:
            self.new.add(expert)
            self.scan.append(expert)
        self.touched(expert, now)

    def victim(self, held: list[tuple[int, Expert]]) -> int:
        slot_of = {expert: slot for slot, expert in held}
        sr_lru = next(one for one in self.scan + self.reused if one in slot_of)
        cr_lfu = min(slot_of, key=lambda one: (self.count[one], -self.last[one]))
        return slot_of[self.choose(sr_lru, cr_lfu)]

    def evicted(self, slot: int, expert: Expert) -> None:
        (self.scan if expert in self.scan else self.reused).remove(expert)
        self.demoted.discard(expert)
        self.remembered(expert)
