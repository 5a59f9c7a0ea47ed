"""Every policy, by the name and parameters the command line takes, and its twin; those that pin are in the replay's."""

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

SCHEDULED = ("hot-window", "hot-profile")
SCHEDULED_VARIANTS = (
    "hot-window:interval=1",
    "hot-window:interval=4",
    "hot-window:interval=4:bypass_tokens=1",
    "hot-profile:weighting=balanced",
    "hot-profile:update_rate=0.1",
    "hot-profile:weighting=balanced:update_rate=1.0",
)
