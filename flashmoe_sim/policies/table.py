"""Every policy there is: one line each."""

from __future__ import annotations

from flashmoe_sim.parameters import parse
from flashmoe_sim.policies.base import Policy
from flashmoe_sim.policies.clock import Clock
from flashmoe_sim.policies.demand import Demand
from flashmoe_sim.policies.fifo import Fifo
from flashmoe_sim.policies.lfu import Lfu
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.policies.min_ import Min, MinForced
from flashmoe_sim.policies.mq import Mq
from flashmoe_sim.policies.random_ import Random
from flashmoe_sim.policies.s3fifo import S3Fifo
from flashmoe_sim.policies.sieve import Sieve
from flashmoe_sim.policies.slru import Slru
from flashmoe_sim.policies.static import Static, StaticGlobal
from flashmoe_sim.policies.two_q import TwoQ

POLICIES: dict[str, type[Policy]] = {
    "demand": Demand,
    "lru": Lru,
    "fifo": Fifo,
    "lfu": Lfu,
    "random": Random,
    "clock": Clock,
    "sieve": Sieve,
    "slru": Slru,
    "2q": TwoQ,
    "mq": Mq,
    "s3fifo": S3Fifo,
    "static": Static,
    "static:global": StaticGlobal,
    "min": Min,
    "min:forced": MinForced,
}


def parse_policy(text: str) -> Policy:
    """A policy from `lru`, `lru:stamp=last`, `min:forced` or `my_module:MyPolicy`."""
    return parse("policy", text, POLICIES, Policy)
