"""The table of execution models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashmoe_sim.io.errors import unknown_name
from flashmoe_sim.io.lazy import LazyTable

if TYPE_CHECKING:
    from flashmoe_sim.timeline.models.base import ExecutionModel

HERE = "flashmoe_sim.timeline.models"
EXECUTION_MODELS: LazyTable[type[ExecutionModel]] = LazyTable(
    {
        "resident": f"{HERE}.resident:Resident",
        "sync-install": f"{HERE}.sync_install:SyncInstall",
        "split-install": f"{HERE}.split_install:SplitInstall",
        "parallel-install": f"{HERE}.parallel_install:ParallelInstall",
        "async-upload": f"{HERE}.async_upload:AsyncUpload",
        "overlap-prefetch": f"{HERE}.overlap_prefetch:OverlapPrefetch",
        "hot-cold": f"{HERE}.hot_cold:HotCold",
        "prefill-copy": f"{HERE}.prefill_copy:PrefillCopy",
        "page-cache": f"{HERE}.page_cache:PageCache",
        "k-materialize": f"{HERE}.k_materialize:KMaterialize",
    }
)


def parse_execution(name: str) -> ExecutionModel:
    """The execution model of this name; raises BadInput for one that there is not."""
    if name not in EXECUTION_MODELS:
        raise unknown_name("execution model", name, EXECUTION_MODELS)
    return EXECUTION_MODELS[name]()
