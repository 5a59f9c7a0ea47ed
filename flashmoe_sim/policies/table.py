"""The table of policies: one line each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from flashmoe_sim.io.lazy import LazyTable

if TYPE_CHECKING:
    from flashmoe_sim.policies.base import Policy

POLICIES: LazyTable[type[Policy]] = LazyTable(
    __package__,
    {
        "demand": "demand:Demand",
        "lru": "lru:Lru",
        "fifo": "fifo:Fifo",
        "clock": "clock:Clock",
        "clock-hand": "clock_hand:ClockHand",
        "sieve": "sieve:Sieve",
        "random": "random_:Random",
        "window": "window:Window",
        "least-stale": "least_stale:LeastStale",
        "lfu": "lfu:Lfu",
        "lfu-decay": "lfu_decay:LfuDecay",
        "lfu-halved": "lfu_halved:LfuHalved",
        "lfru": "lfru:Lfru",
        "hyperbolic": "hyperbolic:Hyperbolic",
        "lru-k": "lru_k:LruK",
        "slru": "slru:Slru",
        "2q": "two_q:TwoQ",
        "mq": "mq:Mq",
        "class-lru": "class_lru:ClassLru",
        "shared-class-lru": "shared_class_lru:SharedClassLru",
        "arc": "arc:Arc",
        "lirs": "lirs:Lirs",
        "s3fifo": "s3fifo:S3Fifo",
        "w-tinylfu": "w_tinylfu:WTinyLfu",
        "lecar": "lecar:LeCaR",
        "cacheus": "cacheus:Cacheus",
        "bounded-lru": "bounded_lru:BoundedLru",
        "second-miss": "second_miss:SecondMiss",
        "nth-miss": "nth_miss:NthMiss",
        "static": "static:Static",
        "static:global": "static:StaticGlobal",
        "placed": "placed:Placed",
        "hot-window": "hot_window:HotWindow",
        "hot-profile": "hot_profile:HotProfile",
        "bounded-swaps": "bounded_swaps:BoundedSwaps",
        "scored-swaps": "scored_swaps:ScoredSwaps",
        "lookahead": "lookahead:Lookahead",
        "min": "min_:Min",
        "min:forced": "min_:MinForced",
    },
)


def parse_policy(text: str) -> Policy:
    """A policy from `lru`, `lru:stamp=last`, `min:forced`, `lookahead-16` or `my_module:MyPolicy`."""
    from flashmoe_sim.parameters import parse
    from flashmoe_sim.policies.base import Policy

    return parse("policy", re.sub("^lookahead-", "lookahead:steps=", text), POLICIES, Policy)
