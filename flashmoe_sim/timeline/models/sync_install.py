"""Misses one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flashmoe_sim.timeline.models.base import ExecutionModel


@dataclass(frozen=True)
class SyncInstall(ExecutionModel):
    """Each miss is read, uploaded and installed before the next is read. Then all experts are computed."""

    name: ClassVar[str] = "sync-install"
    describes: ClassVar[str] = "engines that read with one thread"
    one_by_one: ClassVar[bool] = True
