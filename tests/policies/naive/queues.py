"""Twins of the queue policies: clock, clock-hand, sieve, slru, 2q, mq, class-lru, s3fifo.

A queue is a dict of numbers in the order of entry; moving to its recent end means getting a new number.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from fractions import Fraction
from math import floor, frexp

from tests.policies.naive import Expert, Next, Twin

Held = list[tuple[int, Expert]]


def region(share: float, capacity: int) -> int:
    """Whole slots of a share: at least one, and at most all but one, unless that is zero."""
    slots = floor(share * capacity)
    if slots >= capacity:
        slots = capacity - 1
    return slots if slots > 0 else 1


class Queued(Twin):
    """Twins in which every resident has a number for its place in a queue, and bits or counts for its hits."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.place: dict[int, int] = {}
        self.hits: dict[int, int] = {}
        self.numbers = 0

    def to_recent_end(self, slot: int) -> None:
        self.numbers += 1
        self.place[slot] = self.numbers

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.hits[slot] += 1

    def installed(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.hits[slot] = 0
        self.to_recent_end(slot)

    def evicted(self, slot: int, expert: Expert) -> None:
        del self.place[slot], self.hits[slot]

    def oldest(self, slots: Iterable[int]) -> int:
        return min(slots, key=lambda slot: self.place[slot])


class Ghosts:
    """The experts put in last, at most `room` of them."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.experts: list[Expert] = []

    def put(self, expert: Expert) -> None:
        assert expert not in self.experts
        self.experts = [*self.experts, expert][-self.room :]

    def take(self, expert: Expert) -> bool:
        known = expert in self.experts
        self.experts = [other for other in self.experts if other != expert]
        return known


class Clock(Queued):
    """Of the oldest, one with hits goes to the recent end without them; the first without is the victim."""

    def victim(self, held: Held) -> int:
        slots = [slot for slot, _ in held]
        while self.hits[self.oldest(slots)]:
            self.hits[self.oldest(slots)] = 0
            self.to_recent_end(self.oldest(slots))
        return self.oldest(slots)


class ClockHand(Twin):
    """A hand over the slots: it forgets the uses of those it passes and evicts the first without."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.hand = 0
        self.recent: set[int] = set()

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.recent.add(slot)

    def installed(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.recent.add(slot)

    def victim(self, held: Held) -> int:
        from_hand = [slot for slot, _ in held if slot >= self.hand]
        before_hand = [slot for slot, _ in held if slot < self.hand]
        for slot in (from_hand + before_hand) * 2:
            self.hand = slot + 1
            if slot not in self.recent:
                return slot
            self.recent.remove(slot)
        raise AssertionError


class Sieve(Queued):
    """A hand over the order of installs: it forgets the hits of those it passes and evicts the first without."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.hand = 0  # the place where the next search begins

    def victim(self, held: Held) -> int:
        in_order = sorted((self.place[slot], slot) for slot, _ in held)
        from_hand = [slot for place, slot in in_order if place >= self.hand]
        before_hand = [slot for place, slot in in_order if place < self.hand]
        for slot in (from_hand + before_hand) * 2:
            if self.hits[slot] == 0:
                newer = [place for place in self.place.values() if place > self.place[slot]]
                self.hand = min(newer, default=0)
                return slot
            self.hits[slot] = 0
        raise AssertionError


class Slru(Queued):
    """Those hit since their install or last demotion are protected, as many as there is room for."""

    def __init__(self, capacity: int, *, protected: float = 0.8) -> None:
        super().__init__(capacity)
        self.room = region(protected, capacity)

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        others = [other for other in self.hits if self.hits[other] and other != slot]
        if not self.hits[slot] and len(others) == self.room:
            demoted = self.oldest(others)
            self.hits[demoted] = 0
            self.to_recent_end(demoted)
        self.hits[slot] = 1
        self.to_recent_end(slot)

    def victim(self, held: Held) -> int:
        return min((self.hits[slot], self.place[slot], slot) for slot, _ in held)[2]


class Remembering(Queued):
    """A queue of newcomers, of which those evicted are remembered, and a main one for those that come back."""

    def __init__(self, capacity: int, *, room: int, remembered: int) -> None:
        super().__init__(capacity)
        self.room = room
        self.ghosts = Ghosts(max(1, remembered))
        self.main: set[int] = set()
        self.returns = self.is_installed = False

    def missed(self, expert: Expert, now: int) -> None:
        self.returns = self.ghosts.take(expert)
        self.is_installed = False

    def installed(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        super().installed(slot, expert, now, coming)
        self.is_installed = True
        if self.returns:
            self.main.add(slot)

    def evicted(self, slot: int, expert: Expert) -> None:
        super().evicted(slot, expert)
        if slot not in self.main:
            self.ghosts.put(expert)
        self.main.discard(slot)

    @property
    def newcomers(self) -> int:
        """How many there are besides the one to make room for."""
        return len(self.place) - len(self.main) - self.is_installed


class TwoQ(Remembering):
    """Hits do not move newcomers; those that came back are in order of their last use."""

    def __init__(self, capacity: int, *, a1in: float = 0.25, a1out: float = 0.5) -> None:
        super().__init__(capacity, room=region(a1in, capacity), remembered=floor(a1out * capacity))

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        if slot in self.main:
            self.to_recent_end(slot)

    def victim(self, held: Held) -> int:
        wanted = [slot for slot, _ in held if (slot in self.main) == (self.newcomers <= self.room)]
        return self.oldest(wanted or [slot for slot, _ in held])


class Mq(Queued):
    """Eight lists by the logarithm of the count; what stays in one too long goes one down."""

    def __init__(self, capacity: int, *, life_time: int = 0) -> None:
        super().__init__(capacity)
        self.life_time = life_time or 2 * capacity
        self.history = Ghosts(4 * capacity)
        self.count: dict[Expert, int] = {}
        self.level: dict[int, int] = {}
        self.entered: dict[int, int] = {}
        self.requests = 0  # of the pool, while `now` counts those of all pools

    def enter(self, slot: int, level: int) -> None:
        self.level[slot] = level
        self.entered[slot] = self.requests
        self.to_recent_end(slot)

    def request(self) -> None:
        self.requests += 1
        for level in range(1, 8):
            there = [slot for slot in self.place if self.level[slot] == level]
            if there and self.requests - self.entered[self.oldest(there)] > self.life_time:
                self.enter(self.oldest(there), level - 1)

    def missed(self, expert: Expert, now: int) -> None:
        self.request()
        if not self.history.take(expert):
            self.count[expert] = 0

    def count_use(self, slot: int, expert: Expert) -> None:
        self.count[expert] += 1
        self.enter(slot, min(len(f"{self.count[expert]:b}") - 1, 7))

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.request()
        self.count_use(slot, expert)

    def installed(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        super().installed(slot, expert, now, coming)
        self.count_use(slot, expert)

    def evicted(self, slot: int, expert: Expert) -> None:
        super().evicted(slot, expert)
        self.history.put(expert)

    def victim(self, held: Held) -> int:
        return min((self.level[slot], self.place[slot], slot) for slot, _ in held)[2]


class ClassLru(Queued):
    """Lists by the logarithm of a count that halves every so many tokens; of their oldest, the largest age / 2^list
    leaves. A layer has a clock of its tokens."""

    def __init__(self, capacity: int, *, half_life: int = 128) -> None:
        super().__init__(capacity)
        self.half_life = half_life
        self.highest = self.log2(sum(2.0 ** (-age / half_life) for age in range(100 * half_life)))
        self.clock: Counter[int] = Counter()
        self.uses: dict[Expert, list[int]] = defaultdict(list)
        self.level: dict[int, int] = {}

    def log2(self, count: float) -> int:
        _, exponent = frexp(count)
        return exponent - 1

    def call(self, step: int) -> None:
        self.clock[self.layer] += self.tokens

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        uses, today = self.uses[expert], self.clock[expert[0]]
        uses.append(today)
        self.level[slot] = min(self.log2(sum(2.0 ** ((use - today) / self.half_life) for use in uses)), self.highest)
        self.to_recent_end(slot)

    installed = used

    def evicted(self, slot: int, expert: Expert) -> None:
        del self.place[slot], self.level[slot]

    def victim(self, held: Held) -> int:
        expert_in = dict(held)

        def weighed(slot: int) -> Fraction:
            expert = expert_in[slot]
            return Fraction(self.clock[expert[0]] - self.uses[expert][-1], 2 ** self.level[slot])

        lists = [[slot for slot in expert_in if self.level[slot] == level] for level in range(self.highest + 1)]
        return max((self.oldest(slots) for slots in lists if slots), key=weighed)


class SharedClassLru(ClassLru):
    """Of the misses in a full bank the first n leave out floor(n share), each as soon as it is due."""

    def __init__(self, capacity: int, *, half_life: int = 128, share: float = 0.5) -> None:
        super().__init__(capacity, half_life=half_life)
        self.share = share
        self.misses = self.left_out = 0

    def admits(self, expert: Expert, now: int) -> bool:
        if len(self.place) < self.capacity:
            return True
        self.misses += 1
        due = floor(self.misses * self.share) > self.left_out
        self.left_out += due
        return not due


class S3Fifo(Remembering):
    """Both queues are in order of entry; two hits take a newcomer to the main one, each hit there one more round."""

    def __init__(self, capacity: int, *, small: float = 0.1, skip: float = 0.0) -> None:
        room = region(small, capacity)
        super().__init__(capacity, room=room, remembered=capacity - room)
        self.skipped = floor(skip * room)
        self.entries: list[int] = []  # slots, as newcomers entered
        self.of_the_call: set[int] = set()  # slots of newcomers

    def call(self, step: int) -> None:
        self.of_the_call = set()

    def evicted(self, slot: int, expert: Expert) -> None:
        super().evicted(slot, expert)
        self.of_the_call.discard(slot)

    @property
    def newcomers(self) -> int:
        """Without those of the call if all of it is installed before room is made."""
        return len(self.place) - len(self.main) - (len(self.of_the_call) if self.is_installed else 0)

    def installed(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        super().installed(slot, expert, now, coming)
        if not self.returns:
            self.entries.append(slot)
            self.of_the_call.add(slot)

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        since = self.entries[::-1].index(slot) if slot not in self.main else self.skipped
        if since >= self.skipped:
            self.hits[slot] = min(self.hits[slot] + 1, 3)

    def victim(self, held: Held) -> int:
        small = sorted((slot for slot, _ in held if slot not in self.main), key=lambda slot: self.place[slot])
        main = [slot for slot, _ in held if slot in self.main]
        if small and (self.newcomers >= self.room or not main):
            for slot in small:
                if self.hits[slot] < 2:
                    return slot
                self.hits[slot] = 0
                self.main.add(slot)
                self.to_recent_end(slot)
                main.append(slot)
        while self.hits[self.oldest(main)]:
            self.hits[self.oldest(main)] -= 1
            self.to_recent_end(self.oldest(main))
        return self.oldest(main)
