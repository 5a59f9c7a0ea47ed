"""Least frequently used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from flashmoe_sim.parameters import Choices
from flashmoe_sim.policies._frequency import KERNELS, frequencies
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State


@dataclass(frozen=True)
class Lfu(EvictingPolicy):
    """Evict the least frequently used expert.

    count: `keep` counts uses over the whole run, `restart` since the install.
    """

    name: ClassVar[str] = "lfu"
    ties: ClassVar[str] = "older last use, then lower expert number"
    source: ClassVar[str] = "arXiv 2608.07911 (count kept); tinyserve (count restarts)"
    kernels: ClassVar[dict[str, Any]] = KERNELS
    choices: ClassVar[Choices] = {"count": ("keep", "restart")}

    count: str = "keep"

    def allocate(self, shape: PoolShape) -> State:
        return frequencies(shape, restarts=self.count == "restart")
