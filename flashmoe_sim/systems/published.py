"""A run whose speed somebody published, as a system reads its own settings from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import Incomplete

T = TypeVar("T")
RanAs: TypeAlias = Mapping[str, tuple[str, ...]]  # strategies of runs, by the name of the engine
GPU_LAYERS = ("-ngl", "--n-gpu-layers", "--gpu-layers")


@dataclass(frozen=True, kw_only=True)
class PublishedRun:
    """What is told of a run beside its machine; a text is empty and a number None if it is not told.

    where: its place, for errors. engine, build, strategy, flags: as written. slots_per_layer: of experts in a layer's
    bank. cache_bytes: of the cache, or of the experts in VRAM. residents: experts of all layers in the cache.
    resident_share: of all experts. cpu_layers: layers whose experts the CPU computes.
    """

    where: str
    engine: str
    build: str
    strategy: str
    flags: str
    model: ModelGeometry
    slots_per_layer: int | None = None
    cache_bytes: int | None = None
    residents: int | None = None
    resident_share: float | None = None
    cpu_layers: int | None = None

    def number_after(self, *words: str) -> int | None:
        """The whole number right after one of these words in the flags, if there is one."""
        match = re.search(rf"(?:{'|'.join(map(re.escape, words))})(\d+)", self.flags)
        return int(match[1]) if match else None

    @property
    def gpu_layers(self) -> int | None:
        """Layers that the flags of llama.cpp put on the GPU, if they say how many."""
        return self.number_after(*(f"{name}{sign}" for name in GPU_LAYERS for sign in " ="))

    def told(self, value: T | None, what: str) -> T:
        """The value. Raises BadInput if the run does not say what it is."""
        if value is None:
            raise Incomplete(f"{self.where}: does not say {what}")
        return value

    @property
    def slots(self) -> int:
        """Slots of a layer. Raises BadInput if the run does not say how many."""
        return self.told(self.slots_per_layer, "how many slots a layer has")
