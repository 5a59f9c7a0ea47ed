"""Every policy that evicts, by the name and parameters the command line takes, and its twin."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.policies.naive import Told, basic, queues

EVICTING: dict[str, Callable[[int], Told]] = {
    "lru": basic.Lru,
    "fifo": basic.Fifo,
    "lfu": basic.Lfu,
    "lfu:count=restart": partial(basic.Lfu, restart=True),
    "random": basic.Random,
    "random:seed=4294967295": partial(basic.Random, seed=4294967295),
    "clock": queues.Clock,
    "sieve": queues.Sieve,
    "slru": queues.Slru,
    "slru:protected=0.4": partial(queues.Slru, protected=0.4),
    "2q": queues.TwoQ,
    "2q:a1in=0.6:a1out=2.5": partial(queues.TwoQ, a1in=0.6, a1out=2.5),
    "mq": queues.Mq,
    "mq:life_time=3": partial(queues.Mq, life_time=3),
    "s3fifo": queues.S3Fifo,
    "s3fifo:small=0.4": partial(queues.S3Fifo, small=0.4),
    "min": basic.Min,
    "min:forced": basic.MinForced,
}
