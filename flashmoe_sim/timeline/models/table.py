"""The table of execution models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashmoe_sim.io.errors import unknown_name
from flashmoe_sim.io.lazy import LazyTable

if TYPE_CHECKING:
    from flashmoe_sim.timeline.models.base import ExecutionModel

EXECUTION_MODELS: LazyTable[type[ExecutionModel]] = LazyTable(
    __package__,
    {
        "resident": "resident:Resident",
        "sync-install": "sync_install:SyncInstall",
        "split-install": "split_install:SplitInstall",
        "parallel-install": "parallel_install:ParallelInstall",
        "async-upload": "async_upload:AsyncUpload",
        "overlap-prefetch": "overlap_prefetch:OverlapPrefetch",
        "hot-cold": "hot_cold:HotCold",
        "hot-cold-padded": "hot_cold:HotColdPadded",
        "prefill-copy": "prefill_copy:PrefillCopy",
        "page-cache": "page_cache:PageCache",
        "mapped": "mapped:Mapped",
        "k-materialize": "k_materialize:KMaterialize",
    },
)


def parse_execution(name: str) -> ExecutionModel:
    """The execution model of this name; raises BadInput if there is none."""
    if name not in EXECUTION_MODELS:
        raise unknown_name("execution model", name, EXECUTION_MODELS)
    return EXECUTION_MODELS[name]()
