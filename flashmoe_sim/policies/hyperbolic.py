"""Hyperbolic caching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from flashmoe_sim.policies._ratio import KERNELS, ratios
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State


@dataclass(frozen=True)
class Hyperbolic(EvictingPolicy):
    """Evict the expert with the fewest uses per time since its install.

    Time is counted in requests of the pool; the request that installs an expert is its first use. The paper evicts the
    lowest of 64 residents drawn at random, since the order changes all the time; we compare all of them, exactly.
    """

    name: ClassVar[str] = "hyperbolic"
    ties: ClassVar[str] = "older last use"
    source: ClassVar[str] = "Blankstein, Sen, Freedman: Hyperbolic Caching, USENIX ATC 2017"
    most_uses: ClassVar[int | None] = 2**31 - 1
    kernels: ClassVar[dict[str, Any]] = KERNELS

    def allocate(self, shape: PoolShape) -> State:
        return ratios(shape, restarts=True, from_last=False, added=0)
