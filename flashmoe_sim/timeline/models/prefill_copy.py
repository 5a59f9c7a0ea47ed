"""Batches copied to the GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from flashmoe_sim.timeline.models._in_ram import InRam
from flashmoe_sim.timeline.models.base import NEVER


@dataclass(frozen=True)
class PrefillCopy(InRam):
    """Calls of many tokens copy missing experts to the GPU. Smaller calls compute them in RAM after the hits.

    A call without misses does not stop for the host, for example in a layer whose experts are all on the GPU.
    """

    name: ClassVar[str] = "prefill-copy"
    describes: ClassVar[str] = "llama.cpp with experts placed on the CPU"
    host_calls: ClassVar[Literal["all", "missing", "none"]] = "missing"

    copy_from_tokens: int = 32
    pinned: bool = False

    @property
    def threshold(self) -> int:
        return NEVER
