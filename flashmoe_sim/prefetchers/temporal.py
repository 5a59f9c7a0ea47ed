"""`--moe-prefetch-temporal`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flashmoe_sim.prefetchers._last_call import LastCall


@dataclass(frozen=True)
class Temporal(LastCall):
    """After every step, each layer prefetches the union of its last call."""

    name: ClassVar[str] = "temporal"
