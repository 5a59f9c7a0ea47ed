"""Class-LRU: a list for each class of decayed use counts, whose oldest experts compete by their age for their class.

State: the queues of the slots, one for each class; of each key the count when it was used last, the time of that use
and its layer; the clock of each layer, in tokens; 2^(-t/half_life) for t below the half life; and how many classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from flashmoe_sim._jit import inlined
from flashmoe_sim.parameters import Limits
from flashmoe_sim.policies._queue import move_to_newest, new_queues, oldest
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name

GONE = 1100  # half lives after which nothing is left of any count


def on_call(state: Any, step: int, row: int, tokens: int) -> None:
    state[4][row] += tokens


@inlined
def use(state: Any, slot: int, key: int) -> None:
    link, count, last, layer, clock, decay, classes = state[:7]
    age = clock[layer[key]] - last[key]
    left = math.ldexp(decay[age % len(decay)], -min(age // len(decay), GONE))
    count[key] = count[key] * left + 1
    last[key] = clock[layer[key]]
    queue = 0
    for power in range(1, classes[0]):
        queue += count[key] >= 1 << power
    move_to_newest(link, slot, link.shape[1] - classes[0] + queue)


def on_use(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    use(state, slot, key)


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    link, _, last, layer, clock, _, classes = state[:7]
    victim, most = -1, -1
    for queue in range(classes[0]):
        slot = oldest(link, link.shape[1] - classes[0] + queue, slot_key, blocked, mark)
        if slot < 0:
            continue
        key = slot_key[slot]
        weighed = (clock[layer[key]] - last[key]) << (classes[0] - 1 - queue)
        if weighed > most:
            victim, most = slot, weighed
    return victim


@dataclass(frozen=True)
class ClassLru(EvictingPolicy):
    """Evict, of the least recently used of each class, the one with the largest age / 2^class; class: log2 of its uses.

    A use multiplies an expert's count by 2^(-t/half_life), where t is the tokens of its layer since the last use, and
    adds 1. Counts survive eviction. The class is log2 of the count, rounded down, and stays until the next use. Classes
    end at that of the largest count which uses in every token can reach: 7 at a half life of 128. Age is counted in
    tokens of the expert's layer, those of the present call included.

    Of the engine's code, its head comment was read, not how it plans a call. Not known are ties, whether the class
    counts the present use, whether ages count the present call, and whether a call of several tokens adds more than 1.
    In one bank for all layers, on the traces deepseek-v2-lite and gpt-oss-120b, any other choice moves the hit rate of
    single tokens by up to 1.4 points if the bank has an eighth of the experts and 0.4 if it has more, and that of calls
    of four tokens by up to 6.6 if it has at most a quarter and 0.4 if it has half.

    half_life: half life of a count, in tokens.
    """

    name: ClassVar[str] = "class-lru"
    ties: ClassVar[str] = "lower class"
    source: ClassVar[str] = "ggml-org/llama.cpp c4fb57969: src/llama-moe-cache.cpp, first comment; release b12170"
    kernels: ClassVar[dict[str, Any]] = by_name(on_call, on_use, choose_victim)
    limits: ClassVar[Limits] = {"half_life": (1, 2**20)}

    half_life: int = 128

    def allocate(self, shape: PoolShape) -> State:
        classes = math.floor(-math.log2(1 - 2 ** (-1 / self.half_life))) + 1
        return (
            new_queues(shape.slots, queues=classes),
            np.zeros(shape.keys),
            np.zeros(shape.keys, np.int64),
            shape.key_row.copy(),
            np.zeros(int(shape.key_row.max()) + 1, np.int64),
            np.array([2.0 ** (-tokens / self.half_life) for tokens in range(self.half_life)]),
            np.array([classes]),
        )
