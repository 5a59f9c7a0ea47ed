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

    shared_from: references of a call from which tokens share the experts that are read; with fewer, each token reads
        its own. 0: they share them in every call. shared_by: how many tokens share a read of an expert; 0: all.
    """

    name: ClassVar[str] = "resident"
    describes: ClassVar[str] = "any system whose memory holds the whole model"
    uploads: ClassVar[Uploads] = "nothing"
    reads: ClassVar[bool] = False
    host_calls: ClassVar[Literal["all", "missing", "none"]] = "none"
    reads_ahead: ClassVar[bool] = False

    shared_from: int = 0
    shared_by: int = 0

    @property
    def few_as_one(self) -> bool:
        return self.shared_from > 0

    def computed(self, work: Work) -> Work:
        if not self.shared_from:
            return work
        shared = np.maximum(work.requests, -(-work.refs // self.shared_by)) if self.shared_by else work.requests
        requests = np.where(work.refs < self.shared_from, work.refs, shared)
        return work if np.array_equal(requests, work.requests) else replace(work, requests=requests)
