"""First in, first out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from flashmoe_sim.policies._queue import new_queues
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State, by_name
from flashmoe_sim.policies.lru import choose_victim, on_install


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    pass


@dataclass(frozen=True)
class Fifo(EvictingPolicy):
    """Evict the expert installed longest ago; hits change nothing."""

    name: ClassVar[str] = "fifo"
    source: ClassVar[str] = "Mattson et al. 1970"
    kernels: ClassVar[dict[str, Any]] = by_name(on_hit, on_install, choose_victim)

    def allocate(self, shape: PoolShape) -> State:
        return (new_queues(shape.slots),)
