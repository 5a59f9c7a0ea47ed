"""All misses of a call at once, each chunk uploaded as it arrives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.names import Uploads


@dataclass(frozen=True)
class AsyncUpload(ExecutionModel):
    """As `parallel-install`, but each chunk is uploaded as soon as it has been read."""

    name: ClassVar[str] = "async-upload"
    describes: ClassVar[str] = "the patched llama.cpp runtime with parallel slot reads and an io-split of 1"
    by_chunk: ClassVar[bool] = True
    uploads: ClassVar[Uploads] = "as-read"
