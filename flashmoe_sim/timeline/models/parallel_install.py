"""All misses of a call at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flashmoe_sim.timeline.models.base import ExecutionModel


@dataclass(frozen=True)
class ParallelInstall(ExecutionModel):
    """Misses are read together over the lanes, then uploaded and installed in turn. Then all experts are computed."""

    name: ClassVar[str] = "parallel-install"
    describes: ClassVar[str] = "the patched llama.cpp runtime with parallel slot reads"
