"""Twins of demand-era policies: lru, fifo, lfu, random, and the offline optimum."""

from __future__ import annotations

from collections import Counter

from tests.policies.naive import Expert, Next, Twin


class Lru(Twin):
    """Evict the smallest last-use stamp."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.stamp: dict[int, int] = {}

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.stamp[slot] = now

    def installed(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.stamp[slot] = now

    def victim(self, held: list[tuple[int, Expert]]) -> int:
        return min(held, key=lambda pair: (self.stamp[pair[0]], pair[0]))[0]


class Fifo(Lru):
    """Evict the oldest install; hits change nothing."""

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        pass


class Lfu(Twin):
    """Evict the smallest count; tie: older last use, then lower id."""

    def __init__(self, capacity: int, *, restart: bool = False) -> None:
        super().__init__(capacity)
        self.restart = restart
        self.count: Counter[Expert] = Counter()
        self.last: dict[Expert, int] = {}

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.count[expert] += 1
        self.last[expert] = now

    def installed(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        if self.restart:
            self.count[expert] = 0
        self.used(slot, expert, now, coming)

    def victim(self, held: list[tuple[int, Expert]]) -> int:
        return min(held, key=lambda pair: (self.count[pair[1]], self.last[pair[1]], pair[1]))[0]


class Random(Twin):
    """Evict the n-th of those allowed, n drawn from Marsaglia's xorshift of 32 bits (13, 17, 5)."""

    def __init__(self, capacity: int, *, seed: int = 1) -> None:
        super().__init__(capacity)
        self.state = seed

    def victim(self, held: list[tuple[int, Expert]]) -> int:
        self.state ^= self.state << 13 & 0xFFFFFFFF
        self.state ^= self.state >> 17
        self.state ^= self.state << 5 & 0xFFFFFFFF
        return held[self.state % len(held)][0]


class MinForced(Twin):
    """Evict the furthest next use; of those never used again the one whose last use is oldest."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.coming: dict[int, Next] = {}

    def used(self, slot: int, expert: Expert, now: int, coming: Next) -> None:
        self.coming[slot] = coming

    installed = used

    def victim(self, held: list[tuple[int, Expert]]) -> int:
        return max(held, key=lambda pair: self.coming[pair[0]])[0]


class Min(MinForced):
    """Like `min:forced`, but an expert used later than all those it could displace is not admitted."""

    bypass = True

    def declines(self, slot: int, coming: Next) -> bool:
        return coming > self.coming[slot]
