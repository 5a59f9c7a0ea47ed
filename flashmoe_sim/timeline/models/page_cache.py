"""No bank, only the page cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flashmoe_sim.timeline.models.parallel_install import ParallelInstall


@dataclass(frozen=True)
class PageCache(ParallelInstall):
    """No bank: all experts of a call are read together over the lanes, from the page cache if it holds them."""

    name: ClassVar[str] = "page-cache"
    describes: ClassVar[str] = "flash-moe, whose only tier is the page cache"
    has_bank: ClassVar[bool] = False
