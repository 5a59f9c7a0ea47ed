"""Computing beside reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.names import Uploads


@dataclass(frozen=True)
class OverlapPrefetch(ExecutionModel):
    """Hits are computed while misses are read, and misses as they arrive. Prefetches run behind demand reads.

    If reads and computing share one memory, an expert's bytes slow computing by `memory_s`: the call's own misses while
    they are read, in proportion to the time; an expert read ahead slows the call that uses it, whenever it was read. An
    expert that is never used gets only the bandwidth that computing leaves.
    """

    name: ClassVar[str] = "overlap-prefetch"
    describes: ClassVar[str] = "streaming engines with a predictor and a queue of reads by priority"
    uploads: ClassVar[Uploads] = "as-read"
    beside_compute: ClassVar[bool] = True
    in_background: ClassVar[bool] = True
