"""No prefetching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flashmoe_sim.prefetchers.base import Prefetcher


@dataclass(frozen=True)
class NoPrefetch(Prefetcher):
    """Read nothing ahead."""

    name: ClassVar[str] = "none"
    contracts: ClassVar[tuple[str, ...]] = ("runtime", "protected", "atomic", "sequential")
