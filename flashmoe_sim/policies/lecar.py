"""Learning cache replacement.

State: the queue of slots by last use; the rank of each slot by count of uses, then last use; the count of each key,
kept while it is resident or remembered; two queues of remembered keys, oldest first; which of them each key is in, and
when it left the bank; lengths and the time; the weight of LRU, the rate and the discount; and the generator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim._jit import inlined
from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.parameters import Limits
from flashmoe_sim.policies._queue import move_to_newest, new_queues, oldest, put_newest, take_out
from flashmoe_sim.policies._random import SEEDS, new_generator, unit_draw
from flashmoe_sim.policies._rank import EMPTY, HIGH, least_ranked, new_ranks
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name

RULES = 2
LRU, LFU, NOWHERE = range(RULES + 1)
CAPACITY, TIME, CHOSE = range(RULES, RULES + 3)  # after the lengths of the queues of remembered keys
WEIGHT, RATE, DISCOUNT = range(3)
LEAST_WEIGHT = 0.01


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    link, rank, count, _, _, _, size, _, _ = state
    use(link, rank, count, size, slot, key, now)
    move_to_newest(link, slot, link.shape[1] - 1)


def on_miss(state: Any, key: int, now: int) -> None:
    _, _, _, ghosts, remembered, left, size, weight, _ = state
    size[TIME] = now
    if remembered[key] != NOWHERE:
        raised = math.exp(weight[RATE] * math.pow(weight[DISCOUNT], float(now - left[key])))
        weight[WEIGHT] = shifted(weight[WEIGHT], raised, remembered[key] == LFU)
        size[remembered[key]] -= 1
        remembered[key] = NOWHERE
        take_out(ghosts, key)


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    link, rank, count, _, _, _, size, _, _ = state
    use(link, rank, count, size, slot, key, now)
    put_newest(link, slot, link.shape[1] - 1)


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    link, rank, _, _, _, _, size, weight, generator = state
    least_recent = oldest(link, link.shape[1] - 1, slot_key, blocked, mark)
    least_frequent = least_ranked(rank, slot_key, blocked, mark)
    size[CHOSE] = NOWHERE
    if least_recent != least_frequent:
        size[CHOSE] = LRU if unit_draw(generator) < weight[WEIGHT] else LFU
    return least_frequent if size[CHOSE] == LFU else least_recent  # type: ignore[no-any-return]


def on_evict(state: Any, slot: int, key: int) -> None:
    link, rank, count, ghosts, remembered, left, size, _, _ = state
    take_out(link, slot)
    rank[slot] = EMPTY
    into = size[CHOSE]
    if into == NOWHERE:
        count[key] = 0
        return
    end = len(remembered) + into
    if size[into] == size[CAPACITY]:
        forgotten = ghosts[1, end]
        take_out(ghosts, forgotten)
        remembered[forgotten] = NOWHERE
        count[forgotten] = 0
        size[into] -= 1
    put_newest(ghosts, key, end)
    remembered[key] = into
    left[key] = size[TIME]
    size[into] += 1


@inlined
def use(link: Any, rank: Any, count: Any, size: Any, slot: int, key: int, now: int) -> None:
    size[TIME] = now
    count[key] += 1
    rank[slot] = (count[key] << HIGH) + now


@inlined
def shifted(weight: float, raised: float, upwards: bool) -> float:
    """The weight of the first of two rules, after one of the two weights is multiplied by `raised`."""
    first = weight * raised if upwards else weight
    second = 1.0 - weight if upwards else (1.0 - weight) * raised
    return min(max(first / (first + second), LEAST_WEIGHT), 1.0 - LEAST_WEIGHT)


@dataclass(frozen=True)
class LeCaR(EvictingPolicy):
    """Draw LRU or LFU for each eviction; the one whose victims come back loses weight.

    Each of the two rules remembers the experts that it evicted last, as many as the bank holds. A miss on one of them,
    t uses after its eviction from a bank of n slots, multiplies the weight of the other rule by e^(rate * discount^(t /
    n)). The victim is drawn from the two rules' choices among the evictable experts, with the weights as probabilities;
    if both rules choose the same expert, it is evicted without a draw and not remembered. Counts of uses are kept while
    an expert is in the bank or remembered.

    Algorithm 1 draws, and remembers, even if the rules agree, and does not say where counts come from. Agreement,
    counts and the bounds of 1 and 99% on the weights are as in the authors' program.

    rate: how fast the weights change. discount: share of `rate` that applies to an expert evicted as many uses ago as
    the bank has slots.
    seed: seed of the draws; every pool starts from it.
    """

    name: ClassVar[str] = "lecar"
    ties: ClassVar[str] = "between the two a seeded draw; equal counts: older last use"
    source: ClassVar[str] = "Vietri et al. 2018 (HotStorage), Algorithm 1"
    most_uses: ClassVar[int | None] = 2**HIGH - 1
    kernels: ClassVar[dict[str, Any]] = by_name(on_hit, on_miss, on_install, choose_victim, on_evict)
    limits: ClassVar[Limits] = {"seed": SEEDS}

    rate: float = 0.45
    discount: float = 0.005
    seed: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.rate <= 10:
            raise OutOfRange(f"policy lecar: rate={self.rate} is not above 0 and at most 10")
        if not 0 < self.discount <= 1:
            raise OutOfRange(f"policy lecar: discount={self.discount} is not above 0 and at most 1")

    def allocate(self, shape: PoolShape) -> State:
        return (
            new_queues(shape.slots),
            new_ranks(shape.slots),
            np.zeros(shape.keys, np.int64),
            new_queues(shape.keys, queues=RULES),
            np.full(shape.keys, NOWHERE, np.uint8),
            np.zeros(shape.keys, np.int64),
            np.array([0, 0, shape.capacity, 0, NOWHERE], np.int64),
            np.array([0.5, self.rate, self.discount ** (1 / shape.capacity)]),
            new_generator(self.seed),
        )
