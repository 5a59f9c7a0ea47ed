"""Frequency over recency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from flashmoe_sim.parameters import Choices
from flashmoe_sim.policies._ratio import KERNELS, ratios
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State


@dataclass(frozen=True)
class Lfru(EvictingPolicy):
    """Evict the expert with the smallest uses / (time since its last use + 1).

    Time is counted in requests of the pool, as tinyserve does; arXiv 2608.07911 counts it in routed calls.

    count: `keep` counts uses over the whole run, `restart` since the install.
    """

    name: ClassVar[str] = "lfru"
    ties: ClassVar[str] = "older last use"
    source: ClassVar[str] = "arXiv 2608.07911 (count kept); tinyserve (count restarts)"
    most_uses: ClassVar[int | None] = 2**31 - 1
    kernels: ClassVar[dict[str, Any]] = KERNELS
    choices: ClassVar[Choices] = {"count": ("keep", "restart")}

    count: str = "keep"

    def allocate(self, shape: PoolShape) -> State:
        return ratios(shape, restarts=self.count == "restart", from_last=True, added=1)
