"""What systems with a cache of experts on the GPU have in common: slots of every layer, or of all layers together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.sizes import MIB
from flashmoe_sim.parameters import INT32, Limits
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import Policy
from flashmoe_sim.residency.workload import Setup
from flashmoe_sim.systems.base import (
    Case,
    Launch,
    Plan,
    Share,
    System,
    gpu_left,
    gpu_weights,
    halved,
    ladder,
    llama_words,
    no_room,
)
from flashmoe_sim.systems.published import PublishedRun
from flashmoe_sim.systems.split import besides, of_other_gpus, room_of_each
from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.trace.routing import RoutingTrace


@dataclass(frozen=True, kw_only=True)
class GpuCache(System):
    """Experts are cached on a GPU with its own memory, and all are in RAM or in files.

    held, others: what its memory calls the experts in the cache, and all of them, which may be in the mapped file or,
        as `others_in` says, in RAM; empty if neither holds them.
    copies: as for `gpu_weights`. shared: whether all layers share the cache. contract, direct_io: of its replay and its
        reads.
    """

    own_gpu: ClassVar[bool | None] = True
    held: ClassVar[str] = "slots"
    others: ClassVar[str] = "experts"
    others_in: ClassVar[str] = "mapped"
    copies: ClassVar[bool] = True
    contract: ClassVar[str] = "atomic"
    shared: ClassVar[bool] = False
    direct_io: ClassVar[bool] = False

    @abstractmethod
    def policy(self, case: Case) -> Policy:
        """Which experts are in the cache."""

    @abstractmethod
    def execution(self, case: Case) -> ExecutionModel:
        """The order of events of a call."""

    @abstractmethod
    def held_bytes(self, case: Case) -> int:
        """Bytes of the cache."""

    def bank(self, case: Case) -> Bank:
        return Bank(budget_bytes=self.held_bytes(case))

    def plan(self, case: Case) -> Plan:
        scope: Literal["layer", "global"] = "global" if self.shared else "layer"
        setup = Setup(self.bank(case), self.policy(case), self.contract, scope=scope)
        return Plan(setup, self.execution(case), self.machine_of(case), self.direct_io)

    def memory(self, case: Case) -> tuple[Share, ...]:
        weights = gpu_weights(case, copies=self.copies)
        return (Share(self.held, "gpu", self.held_bytes(case)), *weights, *self.beside(case))

    def beside(self, case: Case) -> tuple[Share, ...]:
        """What it keeps beside its cache and weights."""
        return (Share(self.others, self.others_in, case.model.routed_bytes),) if self.others else ()


@dataclass(frozen=True, kw_only=True)
class GpuSlots(GpuCache):
    """Every layer has equally many slots; `size` is their number, None for all."""

    size: ClassVar[str] = "slots"

    def why_not(self, case: Case) -> str:
        return super().why_not(case) or self.why_not_slots(getattr(self, self.size), case)

    def room(self, case: Case) -> int:
        """Bytes of the GPU for slots."""
        return gpu_left(case)

    def most(self, case: Case) -> int:
        """The most slots per layer that fit."""
        return min(max(self.room(case), 0) // case.slot_bytes, case.n_experts)

    def sizes(self, case: Case) -> Sequence[int]:
        return self.accepted(ladder(1, self.most(case)), case)

    def own_size(self, case: Case) -> int:
        if most := self.most(case):
            return most
        raise no_room("slots on the GPU", self.room(case))

    def bank(self, case: Case) -> Bank:
        return Bank(slots=min(self.chosen, case.n_experts) or 1)

    def held_bytes(self, case: Case) -> int:
        return self.chosen * case.slot_bytes

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        return cls().of_size(run.slots)


@dataclass(frozen=True, kw_only=True)
class UploadedMisses(GpuCache):
    """The experts used last are in slots on the GPUs; misses are uploaded from RAM.

    reserved: slots that no expert gets.
    """

    keeps: ClassVar[str] = "copies of the experts used last, of all layers together, in GPU memory"
    misses: ClassVar[str] = "uploaded from RAM and computed on the GPU"
    limits: ClassVar[Limits] = {"cache_mib": (1, INT32), "cpu_layers": (1, INT32)}
    size: ClassVar[str] = "cache_mib"
    held: ClassVar[str] = "cached experts"
    shared: ClassVar[bool] = True
    by_faults: ClassVar[bool] = True
    reserved: ClassVar[int] = 1

    cache_mib: int | None = None
    cpu_layers: int | None = None

    def why_not(self, case: Case) -> str:
        least = self.least_mib(case)
        if self.cache_mib is not None and self.cache_mib < least:
            return (
                f"{self.cache_mib} MiB; the experts of a token in one layer and one reserved slot take {least}; give "
                f"cache_mib={least} or more"
            )
        if self.placed_bytes(case) == case.model.routed_bytes:
            return f"no layer below {self.cpu_layers} has experts, so there is nothing to cache"
        if self.cpu_layers is not None and case.machine.gpus > 1:
            return f"with cpu_layers, it is known for one GPU only; the machine has {case.machine.gpus}"
        return super().why_not(case)

    def sizes(self, case: Case) -> Sequence[int]:
        return halved(self._most_mib(case), least=self.least_mib(case))

    def own_size(self, case: Case) -> int:
        if (most := self._most_mib(case)) < self.least_mib(case):
            raise no_room("a cache on the GPU", most * MIB)
        return most

    def _most_mib(self, case: Case) -> int:
        return max(min(self.left_bytes(case) // MIB, self.whole_mib(case)), 0)

    @abstractmethod
    def least_mib(self, case: Case) -> int:
        """A cache for the experts of a token in one layer."""

    @abstractmethod
    def whole_mib(self, case: Case) -> int:
        """A cache for all experts in RAM."""

    @abstractmethod
    def slots_bytes(self, case: Case) -> int:
        """Bytes of the slots that experts get."""

    def bank(self, case: Case) -> Bank:
        return Bank(budget_bytes=self.slots_bytes(case))

    def left_bytes(self, case: Case) -> int:
        """GPU memory for the cache: each GPU holds its layers and as much of the cache as the others."""
        return case.machine.gpus * room_of_each(case, case.spare_bytes) - self.placed_bytes(case)

    def placed_bytes(self, case: Case) -> int:
        """Bytes of the layers whose experts are all on the GPU."""
        return case.experts_bytes(number for number in case.model.layers if not self.in_ram(number))

    def in_ram(self, layer: int) -> bool:
        """Whether the experts of a layer are in RAM and in the cache."""
        return self.cpu_layers is None or layer < self.cpu_layers

    def placed_calls(self, trace: RoutingTrace) -> NDArray[np.bool_]:
        """Which calls are of layers whose experts are all on the GPU, bool [calls]."""
        return np.isin(trace.layer, [layer for layer in trace.layers if not self.in_ram(layer)])

    def memory(self, case: Case) -> tuple[Share, ...]:
        cached, *others = super().memory(case)
        placed_bytes = self.placed_bytes(case)
        placed = (Share("experts of whole layers", "gpu", placed_bytes),) if placed_bytes else ()
        return (cached, *placed, *others)

    def beside(self, case: Case) -> tuple[Share, ...]:
        in_ram = Share(self.others, "mapped", case.model.routed_bytes - self.placed_bytes(case))
        return (*of_other_gpus(case, besides(case)), in_ram)

    def launch(self, case: Case) -> Launch:
        in_ram = ("--cpu-moe",) if self.cpu_layers is None else ("--n-cpu-moe", str(self.cpu_layers))
        words = ("-ngl", "99", *in_ram, *self.serving_words(case), "--moe-cache-mib", str(self.cache_mib))
        return Launch(llama_words(case, *words))
