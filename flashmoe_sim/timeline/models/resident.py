"""Everything is resident."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.names import Uploads


@dataclass(frozen=True)
class Resident(ExecutionModel):
    """Every expert is resident; nothing is read."""

    name: ClassVar[str] = "resident"
    describes: ClassVar[str] = "any system whose memory holds the whole model"
    uploads: ClassVar[Uploads] = "nothing"
    reads: ClassVar[bool] = False
    host_calls: ClassVar[Literal["all", "missing", "none"]] = "none"
    reads_ahead: ClassVar[bool] = False
