"""The table of policies: one line each."""

from __future__ import annotations

import re

from flashmoe_sim.parameters import parse
from flashmoe_sim.policies.arc import Arc
from flashmoe_sim.policies.base import Policy
from flashmoe_sim.policies.bounded_lru import BoundedLru
from flashmoe_sim.policies.bounded_swaps import BoundedSwaps
from flashmoe_sim.policies.cacheus import Cacheus
from flashmoe_sim.policies.clock import Clock
from flashmoe_sim.policies.clock_hand import ClockHand
from flashmoe_sim.policies.demand import Demand
from flashmoe_sim.policies.fifo import Fifo
from flashmoe_sim.policies.hot_profile import HotProfile
from flashmoe_sim.policies.hot_window import HotWindow
from flashmoe_sim.policies.hyperbolic import Hyperbolic
from flashmoe_sim.policies.least_stale import LeastStale
from flashmoe_sim.policies.lecar import LeCaR
from flashmoe_sim.policies.lfru import Lfru
from flashmoe_sim.policies.lfu import Lfu
from flashmoe_sim.policies.lfu_decay import LfuDecay
from flashmoe_sim.policies.lfu_halved import LfuHalved
from flashmoe_sim.policies.lirs import Lirs
from flashmoe_sim.policies.lookahead import Lookahead
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.policies.lru_k import LruK
from flashmoe_sim.policies.min_ import Min, MinForced
from flashmoe_sim.policies.mq import Mq
from flashmoe_sim.policies.nth_miss import NthMiss
from flashmoe_sim.policies.placed import Placed
from flashmoe_sim.policies.random_ import Random
from flashmoe_sim.policies.s3fifo import S3Fifo
from flashmoe_sim.policies.scored_swaps import ScoredSwaps
from flashmoe_sim.policies.second_miss import SecondMiss
from flashmoe_sim.policies.sieve import Sieve
from flashmoe_sim.policies.slru import Slru
from flashmoe_sim.policies.static import Static, StaticGlobal
from flashmoe_sim.policies.two_q import TwoQ
from flashmoe_sim.policies.w_tinylfu import WTinyLfu
from flashmoe_sim.policies.window import Window

POLICIES: dict[str, type[Policy]] = {
    "demand": Demand,
    "lru": Lru,
    "fifo": Fifo,
    "clock": Clock,
    "clock-hand": ClockHand,
    "sieve": Sieve,
    "random": Random,
    "window": Window,
    "least-stale": LeastStale,
    "lfu": Lfu,
    "lfu-decay": LfuDecay,
    "lfu-halved": LfuHalved,
    "lfru": Lfru,
    "hyperbolic": Hyperbolic,
    "lru-k": LruK,
    "slru": Slru,
    "2q": TwoQ,
    "mq": Mq,
    "arc": Arc,
    "lirs": Lirs,
    "s3fifo": S3Fifo,
    "w-tinylfu": WTinyLfu,
    "lecar": LeCaR,
    "cacheus": Cacheus,
    "bounded-lru": BoundedLru,
    "second-miss": SecondMiss,
    "nth-miss": NthMiss,
    "static": Static,
    "static:global": StaticGlobal,
    "placed": Placed,
    "hot-window": HotWindow,
    "hot-profile": HotProfile,
    "bounded-swaps": BoundedSwaps,
    "scored-swaps": ScoredSwaps,
    "lookahead": Lookahead,
    "min": Min,
    "min:forced": MinForced,
}


def parse_policy(text: str) -> Policy:
    """A policy from `lru`, `lru:stamp=last`, `min:forced`, `lookahead-16` or `my_module:MyPolicy`."""
    return parse("policy", re.sub("^lookahead-", "lookahead:steps=", text), POLICIES, Policy)
