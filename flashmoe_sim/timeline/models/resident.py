"""Everything is resident."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.names import Uploads
from flashmoe_sim.timeline.work import Work


@dataclass(frozen=True)
class Resident(ExecutionModel):
    """Every expert is resident; nothing is read.

    shared_from: references of a call from which an expert is computed once for all of its tokens; with fewer, each
        token computes its own. 0: of every call.
    """

    name: ClassVar[str] = "resident"
    describes: ClassVar[str] = "any system whose memory holds the whole model"
    uploads: ClassVar[Uploads] = "nothing"
    reads: ClassVar[bool] = False
    host_calls: ClassVar[Literal["all", "missing", "none"]] = "none"
    reads_ahead: ClassVar[bool] = False

    shared_from: int = 0

    @property
    def few_as_one(self) -> bool:
        return self.shared_from > 0

    def computed(self, work: Work) -> Work:
        apart = (work.refs < self.shared_from) & (work.requests < work.refs)
        return replace(work, requests=np.where(apart, work.refs, work.requests)) if apart.any() else work
