"""A hot set on the GPU that follows a window of decodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flashmoe_sim.policies.hot_window import HotWindow
from flashmoe_sim.systems.base import Case, Launch, Share, ladder, llama_words
from flashmoe_sim.systems.gpu_slots import GpuSlots
from flashmoe_sim.timeline.models.hot_cold import HotCold

MAP_BYTES = 8  # per expert: its slot, and its place in the routing, on the GPU
ID_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class HotWindowSlots(GpuSlots, program="hot-window"):
    """The most used experts of the last window of decodes are also on the GPU; the CPU computes misses in parallel.

    For long prompts, which bypass the hot set, the program copies experts to the GPU; here the CPU computes them.
    slots: hot experts per layer; left out: as many as the GPU has room for. The program itself has no such rule, and
        without its flag the hot set is off.
    interval: decodes after which the hot set changes.
    bypass_tokens: calls of more tokens bypass the hot set; 0: no call does, which is the program's default and makes
        prompts several times slower. Its authors use 64.
    """

    slots: int | None = None
    interval: int = 40
    bypass_tokens: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        HotWindow(self.interval, self.bypass_tokens)

    def policy(self, case: Case) -> HotWindow:
        return HotWindow(self.interval, self.bypass_tokens, count="reference", observe="last", warm_up=True)

    def execution(self, case: Case) -> HotCold:
        return HotCold()

    def why_not(self, case: Case) -> str:
        if self.chosen > case.n_experts:
            return f"{self.slots} slots; {case.model.name} has {case.n_experts} experts a layer, so they never fill"
        return super().why_not(case)

    def sizes(self, case: Case) -> Sequence[int]:
        return ladder(case.model.top_k or 1, self.most(case))

    def room(self, case: Case) -> int:
        return super().room(case) - _maps_bytes(case)

    def memory(self, case: Case) -> tuple[Share, ...]:
        hot, *others = super().memory(case)
        return (hot, Share("maps", "gpu", _maps_bytes(case)), *others)

    def beside(self, case: Case) -> tuple[Share, ...]:
        ids = len(case.model.layers) * case.n_experts * ID_BYTES
        return (Share("pinned buffers", "ram", case.expert_bytes * self.chosen + ids), *super().beside(case))

    def launch(self, case: Case) -> Launch:
        words = ["-ngl", "99", "--cpu-moe", *self.serving_words(case), "--moe-hot-k", str(self.slots)]
        words += ["--moe-hot-rebalance-interval", str(self.interval)]
        bypass = {"LLAMA_MOE_HOT_PP_BYPASS_N_TOKENS": str(self.bypass_tokens)} if self.bypass_tokens else {}
        return Launch(llama_words(case, *words), bypass)


def _maps_bytes(case: Case) -> int:
    return sum(layer.n_experts * MAP_BYTES for layer in case.model.layers.values())
