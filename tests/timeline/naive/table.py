"""The twin of each execution model."""

from __future__ import annotations

from tests.timeline.naive.beside import HotCold, HotColdPadded, OverlapPrefetch, PrefillCopy
from tests.timeline.naive.twin import Twin
from tests.timeline.naive.waiting import (
    AsyncUpload,
    KMaterialize,
    Mapped,
    ParallelInstall,
    Resident,
    SplitInstall,
    SyncInstall,
)

TWINS: dict[str, type[Twin]] = {
    "resident": Resident,
    "sync-install": SyncInstall,
    "split-install": SplitInstall,
    "parallel-install": ParallelInstall,
    "async-upload": AsyncUpload,
    "overlap-prefetch": OverlapPrefetch,
    "hot-cold": HotCold,
    "hot-cold-padded": HotColdPadded,
    "prefill-copy": PrefillCopy,
    "page-cache": ParallelInstall,
    "mapped": Mapped,
    "k-materialize": KMaterialize,
}
