"""Twins of the policies that score, admit or look ahead. Each keeps its own clock: the requests of its bank."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from fractions import Fraction
from math import inf

from tests.policies.naive import Expert, Next, Twin
from tests.policies.naive.basic import Lru


class Timed(Twin):
    """Counts the requests of its own bank, and keeps for each expert when it was used."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.time = 0
        self.step = 0
        self.uses: dict[Expert, list[int]] = defaultdict(list)

    def call(self, step: int) -> None:
        self.step = step

    def missed(self, expert: Expert, now: int) -> None:
        self.time += 1

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.time += 1
        self.uses[expert].append(self.time)

    def installed(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.uses[expert].append(self.time)


class LfuDecay(Timed):
    """Evict the lowest score. A use in step s adds 2^(s/H): what all scores have lost by now is one common factor."""

    def __init__(self, capacity: int, *, half_life: int = 16) -> None:
        super().__init__(capacity)
        self.half_life = half_life
        self.score: defaultdict[Expert, float] = defaultdict(float)

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        super().used(slot, expert, now, coming)
        self.add(expert)

    def installed(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        super().installed(slot, expert, now, coming)
        self.add(expert)

    def add(self, expert: Expert) -> None:
        whole, part = divmod(self.step, self.half_life)
        self.score[expert] += 2.0 ** (part / self.half_life) * 2**whole

    def victim(self, held: list[tuple[int, Expert]]) -> int:
        return min(held, key=lambda pair: (self.score[pair[1]], self.uses[pair[1]][-1]))[0]


class LfuHalved(LfuDecay):
    """Evict the fewest uses. A use in a step counts as many halves fewer as have passed since, each rounded down."""

    def __init__(self, capacity: int, *, every: int = 16) -> None:
        super().__init__(capacity)
        self.every = every
        self.halved = 0

    def add(self, expert: Expert) -> None:
        self.age()
        self.score[expert] += 1

    def age(self) -> None:
        for _ in range(min(self.step // self.every - self.halved, 64)):
            for expert in self.score:
                self.score[expert] //= 2
        self.halved = self.step // self.every

    def victim(self, held: list[tuple[int, Expert]]) -> int:
        self.age()
        return super().victim(held)


class Lfru(Timed):
    """Evict the smallest frequency / (now - last + 1)."""

    def __init__(self, capacity: int, *, restart: bool = False) -> None:
        super().__init__(capacity)
        self.restart = restart

    def installed(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        if self.restart:
            self.uses[expert].clear()
        super().installed(slot, expert, now, coming)

    def victim(self, held: list[tuple[int, Expert]]) -> int:
        def worth(expert: Expert) -> tuple[Fraction, int]:
            uses = self.uses[expert]
            return Fraction(len(uses), self.time - uses[-1] + 1), uses[-1]

        return min(held, key=lambda pair: worth(pair[1]))[0]


class Hyperbolic(Timed):
    """Evict the fewest uses since the install for the time since then."""

    def installed(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.uses[expert] = [self.time]

    def victim(self, held: list[tuple[int, Expert]]) -> int:
        def rate(expert: Expert) -> tuple[float | Fraction, int]:
            uses = self.uses[expert]
            age = self.time - uses[0]
            return Fraction(len(uses), age) if age else inf, uses[-1]

        return min(held, key=lambda pair: rate(pair[1]))[0]


class Window(Lru):
    """LRU among the experts with less than the share of the last accesses, else among all."""

    def __init__(self, capacity: int, *, window: int = 256, share: str = "0.1") -> None:
        super().__init__(capacity)
        self.protected_from = Fraction(share) * window
        self.recent: deque[Expert] = deque(maxlen=window)

    def missed(self, expert: Expert, now: int) -> None:
        self.recent.append(expert)

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        super().used(slot, expert, now, coming)
        self.recent.append(expert)

    def victim(self, held: list[tuple[int, Expert]]) -> int:
        often = Counter(self.recent)
        return super().victim([pair for pair in held if often[pair[1]] < self.protected_from] or held)


class LeastStale(Twin):
    """Evict experts that the step has not touched, then the others, each by last use or by install."""

    def __init__(self, capacity: int, *, by_install: bool = False) -> None:
        super().__init__(capacity)
        self.by_install = by_install
        self.fresh: set[int] = set()
        self.step = 0
        self.order: list[int] = []

    def call(self, step: int) -> None:
        if step != self.step:
            self.fresh.clear()
        self.step = step

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.fresh.add(slot)
        if not self.by_install:
            self.order.remove(slot)
            self.order.append(slot)

    def installed(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.fresh.add(slot)
        self.order.append(slot)

    def evicted(self, slot: int, expert: Expert) -> None:
        self.fresh.discard(slot)
        self.order.remove(slot)

    def victim(self, held: list[tuple[int, Expert]]) -> int:
        allowed = [slot for slot in self.order if slot in dict(held)]
        return ([slot for slot in allowed if slot not in self.fresh] + allowed)[0]


class BoundedLru(Lru):
    """LRU with at most `cap` installs in a call."""

    def __init__(self, capacity: int, *, cap: int = 2) -> None:
        super().__init__(capacity)
        self.cap = cap

    def call(self, step: int) -> None:
        self.admitted = 0

    def admits(self, expert: Expert, now: int) -> bool:
        self.admitted += 1
        return self.admitted <= self.cap


class SecondMiss(Lru):
    """LRU that admits on the second miss within so many steps, and then forgets both."""

    def __init__(self, capacity: int, *, window: int = 32) -> None:
        super().__init__(capacity)
        self.window = window
        self.step = 0
        self.misses: dict[Expert, list[int]] = defaultdict(list)

    def call(self, step: int) -> None:
        self.step = step

    def admits(self, expert: Expert, now: int) -> bool:
        again = any(step >= self.step - self.window for step in self.misses[expert])
        if again:
            self.misses[expert].clear()
        else:
            self.misses[expert].append(self.step)
        return again


class NthMiss(Lru):
    """LRU that admits on the n-th miss since the last install, with another n while nothing need leave."""

    def __init__(self, capacity: int, *, empty: int = 2, full: int = 8, cap: int = 8) -> None:
        super().__init__(capacity)
        self.empty, self.full, self.cap = empty, full, cap
        self.there: set[int] = set()
        self.misses: Counter[Expert] = Counter()

    def call(self, step: int) -> None:
        self.admitted = 0

    def admits(self, expert: Expert, now: int) -> bool:
        self.misses[expert] += 1
        enough = self.misses[expert] >= (self.full if len(self.there) >= self.capacity else self.empty)
        if not enough or self.admitted == self.cap:
            return False
        self.admitted += 1
        return True

    def installed(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        super().installed(slot, expert, now, coming)
        self.there.add(slot)
        del self.misses[expert]

    def evicted(self, slot: int, expert: Expert) -> None:
        self.there.remove(slot)


class Lookahead(Twin):
    """Evict an expert not used within `steps` steps, oldest last use first, else the one used last in them."""

    def __init__(self, capacity: int, *, steps: int = 16) -> None:
        super().__init__(capacity)
        self.steps = steps
        self.coming: dict[int, Next] = {}
        self.last: dict[int, int] = {}
        self.step: float = -inf  # before the first call nothing is seen

    def call(self, step: int) -> None:
        self.step = step

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.coming[slot] = coming
        self.last[slot] = now

    installed = used

    def seen(self, slot: int) -> bool:
        call, _ = self.coming[slot]
        return self.steps > 0 and call != inf and self.step_of[int(call)] <= self.step + self.steps

    def victim(self, held: list[tuple[int, Expert]]) -> int:
        slots = [slot for slot, _ in held]
        unseen = [slot for slot in slots if not self.seen(slot)]
        if unseen:
            return min(unseen, key=lambda slot: self.last[slot])
        return max(slots, key=lambda slot: self.coming[slot])
