"""First in, first out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from flashmoe_sim.policies._queue import move_to_newest, new_queue, oldest
from flashmoe_sim.policies.base import EvictingPolicy, State


def on_hit(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    pass


def on_install(state: Any, slot: int, key: int, now: int, upcoming: int) -> None:
    move_to_newest(state[0], slot)


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    return oldest(state[0], slot_key, blocked, mark)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Fifo(EvictingPolicy):
    """Evict the expert installed longest ago; hits change nothing."""

    name: ClassVar[str] = "fifo"
    source: ClassVar[str] = "Mattson et al. 1970"
    kernels: ClassVar[dict[str, Any]] = {"on_hit": on_hit, "on_install": on_install, "choose_victim": choose_victim}

    def allocate(self, *, slots: int, keys: int) -> State:
        return (new_queue(slots),)
