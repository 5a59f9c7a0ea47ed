"""llama.cpp's own cache of experts: slots for all layers on the GPU, and misses uploaded."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from flashmoe_sim.geometry.model import DEFAULT_TYPE, LayerGeometry, ModelGeometry
from flashmoe_sim.io.errors import Unsupported
from flashmoe_sim.io.sizes import MIB
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import Policy
from flashmoe_sim.policies.class_lru import ClassLru
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.policies.shared_class_lru import SharedClassLru
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.systems.base import Case, Launch
from flashmoe_sim.systems.execution import CopiedIfInstalled
from flashmoe_sim.systems.gpu_slots import UploadedMisses
from flashmoe_sim.systems.in_parts import replay_in_parts
from flashmoe_sim.systems.published import PublishedRun

FIRST, CLASSES, SHARED = 11480, 12170, 12191  # builds: the first with a cache, with ClassLRU, known to have a share
QUANTIZED = 12569  # the first that has room in its graph for both (#32636)
MOST_TOKENS = 32  # of a call that uses the cache
STAMP = "hits-first-sorted"


@dataclass(frozen=True)
class Group:
    """Layers whose experts have tensors of the same sizes, by number, and what each of them has; they share a bank."""

    layers: tuple[int, ...]
    layer: LayerGeometry

    @property
    def experts(self) -> int:
        return len(self.layers) * self.layer.n_experts

    @property
    def routed_bytes(self) -> int:
        return self.experts * self.layer.expert_bytes


@dataclass(frozen=True, kw_only=True)
class Cached(UploadedMisses, program="llama-cpp", name="cached"):
    """The experts used most and last of all layers are in slots on the GPUs; misses are uploaded from RAM and computed
    there.

    Layers whose experts have tensors of the same sizes share a bank, and the cache is split between such banks in
    proportion to their layers' bytes. A bank for fewer experts than those of a token is left out. One slot of each is
    reserved. Of a call, the hits count as used first, by first reference, then the misses, by number. Builds 11480 to
    12169 evict by LRU (`lru`), later ones by a rule whose code was read in part (`class-lru`). Several GPUs have caches
    of their own; here one is for all.

    Calls of more than 32 tokens copy the experts that they use to the GPU, those in the cache from there, and change
    nothing in it; here they copy all from RAM. Smaller calls that could need more experts than a bank has slots, as
    many as tokens times top-k, at most all of a layer, bypass it, and the CPU computes them.

    cache_mib: of all GPUs together; left out: as much as there is room for. The engine has no cache unless a size is
        given, and does not start with one for fewer than the experts of a token and one more.
    cpu_layers: layers whose experts are in RAM and in the cache, from layer 0 on, as in `--n-cpu-moe`; the others have
        theirs on the GPU. Left out: all layers. For one GPU.
    build: the number of llama.cpp's build, as in b12191; left out: the newest rule.
    cpu_share: of the misses of a full bank, those that the CPU computes, beside the GPU, and that are not cached; see
        `shared-class-lru`. Until a bank is full, all are uploaded.
    """

    build: int | None = None
    cpu_share: float = 0.0

    @property
    def _is_lru(self) -> bool:
        return self.build is not None and self.build < CLASSES

    @property
    def builds(self) -> str:
        if self._is_lru:
            return f"the rule of builds {FIRST} to {CLASSES - 1}; later ones evict by another"
        if self.cpu_share:
            return f"the rule of builds from {SHARED} on"
        return f"the rule of builds from {CLASSES} on; earlier ones evict by another (build={CLASSES - 1})"

    def of_builds(self, case: Case) -> list[str]:
        clauses = super().of_builds(case)
        if case.kv_type != DEFAULT_TYPE and (self.build is None or self.build < QUANTIZED):
            clauses.append(
                f"stops in builds before {QUANTIZED} if keys and values are not in {DEFAULT_TYPE} and layers have few "
                "tensors, as Cohere's"
            )
        return clauses

    def policy(self, case: Case) -> Policy:
        if self._is_lru:
            return Lru(stamp=STAMP)
        return SharedClassLru(stamp=STAMP, share=self.cpu_share) if self.cpu_share else ClassLru(stamp=STAMP)

    def why_not(self, case: Case) -> str:
        if self.build is not None and self.build < FIRST:
            return f"builds before {FIRST} have no --moe-cache-mib"
        if self.cpu_share and self.build is not None and self.build < SHARED:
            return f"--moe-cache-cpu-share is known of builds from {SHARED} on; leave out cpu_share"
        return super().why_not(case)

    def groups(self, model: ModelGeometry) -> list[Group]:
        """The layers in RAM, by the tensors of their experts."""
        alike = (tuple(filter(self.in_ram, numbers)) for numbers in model.alike)
        return [Group(numbers, model.layers[numbers[0]]) for numbers in sorted(filter(None, alike))]

    def slots(self, group: Group, model: ModelGeometry) -> int:
        """The slots of a group that experts get; 0 if they do not hold the experts of a token."""
        own_bytes = self.chosen * MIB * group.routed_bytes // self._together(model)
        slots = min(own_bytes // group.layer.expert_bytes - self.reserved, group.experts)
        return slots if slots >= (model.top_k or 1) else 0

    def _together(self, model: ModelGeometry) -> int:
        return sum(group.routed_bytes for group in self.groups(model))

    def _mib_of(self, slots: int, group: Group, model: ModelGeometry) -> int:
        """The smallest cache that gives a group so many slots."""
        own_bytes = (slots + self.reserved) * group.layer.expert_bytes
        return -(-own_bytes * self._together(model) // (group.routed_bytes * MIB))

    def least_mib(self, case: Case) -> int:
        model = case.model
        return min((self._mib_of(model.top_k or 1, group, model) for group in self.groups(model)), default=1)

    def whole_mib(self, case: Case) -> int:
        model = case.model
        return max((self._mib_of(group.experts, group, model) for group in self.groups(model)), default=0)

    def slots_bytes(self, case: Case) -> int:
        return sum(self.slots(group, case.model) * group.layer.expert_bytes for group in self.groups(case.model))

    def held_bytes(self, case: Case) -> int:
        used = [group for group in self.groups(case.model) if self.slots(group, case.model)]
        return self.slots_bytes(case) + sum(self.reserved * group.layer.expert_bytes for group in used)

    def execution(self, case: Case) -> CopiedIfInstalled:
        return CopiedIfInstalled(copy_from_tokens=MOST_TOKENS + 1, pinned=self.loads_whole(case))

    def replay(self, workload: Workload, setup: Setup) -> Replayed:
        trace, model = workload.trace, workload.geometry
        assert model is not None
        small = trace.n_tokens <= MOST_TOKENS
        references = np.diff(trace.offset)
        parts, banks = [], []
        for group in self.groups(model):
            if slots := self.slots(group, model):
                fits = np.minimum(references, group.layer.n_experts) <= slots
                parts.append(np.flatnonzero(small & fits & np.isin(trace.layer, group.layers)))
                banks.append(Bank(None, slots * group.layer.expert_bytes))
        placed = np.flatnonzero(self.placed_calls(trace))
        return replay_in_parts(workload, setup, parts, banks=banks, placed=placed)

    def launch(self, case: Case) -> Launch:
        words = ("--moe-cache-cpu-share", f"{self.cpu_share:g}") if self.cpu_share else ()
        launch = super().launch(case)
        return replace(launch, words=(*launch.words, *words))

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        """Of the build that the run tells; the pull request that added the cache had the first rule."""
        if "fork" in run.engine.lower():  # has a cache of its own
            raise Unsupported(f"{run.where}: no system runs {run.engine} as {run.strategy}")
        told = re.search(r"\bb(\d{5})\b", run.build)
        build = int(told[1]) if told else FIRST if run.build == "#29887" else None
        return cls(cache_mib=run.number_after("--moe-cache-mib ", "cache "), build=build)
