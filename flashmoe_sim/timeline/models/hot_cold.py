"""A hot lane and a cold one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flashmoe_sim.timeline.models._in_ram import InRam


@dataclass(frozen=True)
class HotCold(InRam):
    """The GPU computes hits while the CPU computes misses in RAM, and the call waits for the slower lane.

    min_parallel: requests of a call from which its two lanes run side by side.
    """

    name: ClassVar[str] = "hot-cold"
    describes: ClassVar[str] = "forks of llama.cpp with a hot set on the GPU, chosen by a tumbling window or a profile"

    min_parallel: int = 2

    @property
    def threshold(self) -> int:
        return self.min_parallel


@dataclass(frozen=True)
class HotColdPadded(HotCold):
    """As `hot-cold`, but the GPU computes an empty expert for each miss if anything hits, and misses of calls of many
    tokens are copied to it.
    """

    name: ClassVar[str] = "hot-cold-padded"
    describes: ClassVar[str] = "a fork of llama.cpp with a hot cache filled from a profile"
    padded: ClassVar[bool] = True

    copy_from_tokens: int = 256
