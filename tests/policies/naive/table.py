"""Every policy that evicts, by the name and parameters the command line takes, and its twin."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.policies.naive import Told, basic

EVICTING: dict[str, Callable[[int], Told]] = {
    "lru": basic.Lru,
    "fifo": basic.Fifo,
    "lfu": basic.Lfu,
    "lfu:count=restart": partial(basic.Lfu, restart=True),
    "random": basic.Random,
    "random:seed=4294967295": partial(basic.Random, seed=4294967295),
    "min": basic.Min,
    "min:forced": basic.MinForced,
}
