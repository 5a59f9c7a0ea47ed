"""Misses one by one, and each one tensor family after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flashmoe_sim.timeline.models.base import ExecutionModel


@dataclass(frozen=True)
class SplitInstall(ExecutionModel):
    """Misses are served in turn, each one tensor family after another: the family's chunks are read together, then
    uploaded. Then all experts are computed.

    Prefetches are read and uploaded in the same way while the next call waits.
    """

    name: ClassVar[str] = "split-install"
    describes: ClassVar[str] = "the patched llama.cpp runtime by default"
    one_by_one: ClassVar[bool] = True
    by_family: ClassVar[bool] = True
