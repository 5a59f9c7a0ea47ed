"""Cacheus.

State: the two queues of slots of SR-LRU, oldest first; which of them each slot is in, and whether it was demoted; the
rank of each slot by count of uses, then the latest use; the count of each key, kept while it is resident or remembered;
two queues of remembered keys, oldest first; which of them each key is in, and whether it was never used again; the
numbers of these keys, limits and the tally of the current period; weight, rates and hit rate; and the generator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim._jit import inlined
from flashmoe_sim.parameters import Limits
from flashmoe_sim.policies._queue import move_to_newest, new_queues, oldest, put_newest, take_out
from flashmoe_sim.policies._random import SEEDS, new_generator, unit_draw
from flashmoe_sim.policies._rank import EMPTY, HIGH, LOW, least_ranked, new_ranks
from flashmoe_sim.policies._regions import slots_of
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name
from flashmoe_sim.policies.lecar import shifted

PARTS = 2
SCAN, REUSED = range(PARTS)
RULES = 2
SR_LRU, CR_LFU, NOWHERE = range(RULES + 1)
# Places in the sizes, after the lengths of the queues of remembered keys
N_REUSED, MOST_REUSED, N_DEMOTED, N_NEW, CAPACITY, MOST_REMEMBERED, USES, HITS, IDLE, CHOSE = range(RULES, RULES + 10)
WEIGHT, RATE, LAST_RATE, LAST_HIT_RATE = range(4)
LEAST_RATE, MOST_RATE = 0.001, 1.0
IDLE_PERIODS = 10
SCAN_SHARE = 0.01


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    link, part, demoted, rank, count, _, _, new, size, learnt, generator = state
    count_use(rank, count, slot, key, now)
    if part[slot] == SCAN:
        new[key] = False
        if demoted[slot]:
            grown = size[MOST_REUSED] + rounded_ratio(size[N_NEW], size[N_DEMOTED])
            size[MOST_REUSED] = min(grown, max(size[CAPACITY] - 1, 1))
            demoted[slot] = False
            size[N_DEMOTED] -= 1
        part[slot] = REUSED
        size[N_REUSED] += 1
    move_to_newest(link, slot, len(part) + REUSED)
    demote(link, part, demoted, size)
    end_request(size, learnt, generator, 1)


def on_miss(state: Any, key: int, now: int) -> None:
    _, _, _, _, _, ghosts, remembered, new, size, learnt, generator = state
    if remembered[key] != NOWHERE:
        learnt[WEIGHT] = shifted(learnt[WEIGHT], math.exp(-learnt[RATE]), remembered[key] == SR_LRU)
        if remembered[key] == SR_LRU and new[key]:
            shrunk = size[MOST_REUSED] - rounded_ratio(size[N_DEMOTED], size[N_NEW])
            size[MOST_REUSED] = max(shrunk, 1)
        forget(ghosts, remembered, new, size, key)
    end_request(size, learnt, generator, 0)


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    link, part, demoted, rank, count, _, _, new, size, _, _ = state
    # Only remembered keys still have a count.
    into = REUSED if count[key] > 0 else SCAN
    new[key] = into == SCAN
    part[slot] = into
    demoted[slot] = False
    size[N_REUSED] += into
    put_newest(link, slot, len(part) + into)
    demote(link, part, demoted, size)
    count_use(rank, count, slot, key, now)


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    link, part, _, rank, _, _, _, _, size, learnt, generator = state
    by_scan = oldest(link, len(part) + SCAN, slot_key, blocked, mark)
    if by_scan < 0:
        by_scan = oldest(link, len(part) + REUSED, slot_key, blocked, mark)
    by_count = least_ranked(rank, slot_key, blocked, mark)
    size[CHOSE] = NOWHERE
    if by_scan != by_count:
        size[CHOSE] = SR_LRU if unit_draw(generator) < learnt[WEIGHT] else CR_LFU
    return by_count if size[CHOSE] == CR_LFU else by_scan  # type: ignore[no-any-return]


def on_evict(state: Any, slot: int, key: int) -> None:
    link, part, demoted, rank, count, ghosts, remembered, new, size, _, _ = state
    take_out(link, slot)
    rank[slot] = EMPTY
    size[N_REUSED] -= part[slot]
    size[N_DEMOTED] -= demoted[slot]
    demoted[slot] = False
    into = size[CHOSE]
    if into == NOWHERE:
        count[key] = 0
        return
    end = len(remembered) + into
    if size[into] == size[MOST_REMEMBERED]:
        oldest_key = ghosts[1, end]
        count[oldest_key] = 0
        forget(ghosts, remembered, new, size, oldest_key)
    put_newest(ghosts, key, end)
    remembered[key] = into
    size[into] += 1
    size[N_NEW] += into == SR_LRU and new[key]


@inlined
def count_use(rank: Any, count: Any, slot: int, key: int, now: int) -> None:
    count[key] += 1
    rank[slot] = (count[key] << HIGH) + (LOW - now)


@inlined
def demote(link: Any, part: Any, demoted: Any, size: Any) -> None:
    while size[N_REUSED] > size[MOST_REUSED]:
        slot = link[1, len(part) + REUSED]
        part[slot] = SCAN
        demoted[slot] = True
        size[N_REUSED] -= 1
        size[N_DEMOTED] += 1
        move_to_newest(link, slot, len(part) + SCAN)


@inlined
def forget(ghosts: Any, remembered: Any, new: Any, size: Any, key: int) -> None:
    size[N_NEW] -= remembered[key] == SR_LRU and new[key]
    size[remembered[key]] -= 1
    remembered[key] = NOWHERE
    take_out(ghosts, key)


@inlined
def rounded_ratio(a: int, b: int) -> int:
    """a / b to the nearest whole number, but at least 1."""
    return max((2 * a + b) // (2 * b), 1)


@inlined
def end_request(size: Any, learnt: Any, generator: Any, hit: int) -> None:
    """Once every `capacity` uses, move the rate in the direction that raised the hit rate."""
    size[USES] += 1
    size[HITS] += hit
    if size[USES] < size[CAPACITY]:
        return
    hit_rate = np.divide(size[HITS], size[CAPACITY])
    better = hit_rate - learnt[LAST_HIT_RATE]
    moved = learnt[RATE] - learnt[LAST_RATE]
    rate = learnt[RATE]
    if moved != 0.0:
        size[IDLE] = 0
        change = abs(rate * moved)
        rate = min(max(rate + (change if better * moved > 0.0 else -change), LEAST_RATE), MOST_RATE)
    else:
        size[IDLE] += hit_rate == 0.0 or better <= 0.0
        if size[IDLE] == IDLE_PERIODS:
            size[IDLE] = 0
            rate = LEAST_RATE + (MOST_RATE - LEAST_RATE) * unit_draw(generator)
    learnt[LAST_RATE] = learnt[RATE]
    learnt[RATE] = rate
    learnt[LAST_HIT_RATE] = hit_rate
    size[USES] = 0
    size[HITS] = 0


@dataclass(frozen=True)
class Cacheus(EvictingPolicy):
    """Draw a scan-resistant LRU or a churn-resistant LFU for each eviction; the weights and their rate adapt.

    CR-LFU picks the expert used least often, among equals the one used last. SR-LRU divides the bank: an expert that is
    used again, or comes back while it is remembered, goes to the reused part; a new one goes to the other part, whose
    oldest is the victim (the oldest reused expert if no other is evictable). If there are more reused experts than
    slots for them, they are demoted: the oldest becomes the newest of the other part. When a demoted expert is hit, the
    slots for reused experts grow by the number of new experts that SR-LRU remembers over the number of demoted experts
    in the bank; when one of these new experts comes back, they shrink by the inverse ratio. Each change is at least 1,
    within 1 and all slots but one. An expert is new if it was never hit.

    The draw, agreement, counts and the bounds of the weights are as for `lecar`, but each rule remembers half as many
    experts as the bank holds, and a miss on one of them multiplies the weight of the rule by e^-rate. Each time the
    bank has served as many uses as it has slots, the rate changes by itself times its last change: further up or down
    if hit rate and rate moved the same way, else back. If the rate did not change and the hit rate failed to rise ten
    times, it is drawn again between its bounds, 0.001 and 1.

    The paper's pseudocode leaves the start open. As in the authors' program, reused experts begin with 99% of the bank
    (at least one slot is left for others) and the rate begins at the square root of 2 ln 2 / slots. The bank fills up
    through the other part; no rule is specific to a bank that is not full.

    seed: seed of the draws; every pool starts from it.
    """

    name: ClassVar[str] = "cacheus"
    ties: ClassVar[str] = "between the two a seeded draw; equal counts: latest use"
    source: ClassVar[str] = "Rodriguez et al. 2021 (FAST), section 4"
    most_uses: ClassVar[int | None] = LOW
    kernels: ClassVar[dict[str, Any]] = by_name(on_hit, on_miss, on_install, choose_victim, on_evict)
    limits: ClassVar[Limits] = {"seed": SEEDS}

    seed: int = 1

    def allocate(self, shape: PoolShape) -> State:
        c = shape.capacity
        size = np.zeros(CHOSE + 1, np.int64)
        size[MOST_REUSED] = max(c - slots_of(SCAN_SHARE, c), 1)
        size[CAPACITY] = c
        size[MOST_REMEMBERED] = max(c // 2, 1)
        rate = min(max(math.sqrt(2 * math.log(2) / c), LEAST_RATE), MOST_RATE)
        return (
            new_queues(shape.slots, queues=PARTS),
            np.zeros(shape.slots, np.uint8),
            np.zeros(shape.slots, np.bool_),
            new_ranks(shape.slots),
            np.zeros(shape.keys, np.int64),
            new_queues(shape.keys, queues=RULES),
            np.full(shape.keys, NOWHERE, np.uint8),
            np.zeros(shape.keys, np.bool_),
            size,
            np.array([0.5, rate, 0.0, 0.0]),
            new_generator(self.seed),
        )
