"""Strata: a profile's experts on the GPU, exchanged a few at a time, and misses shared by CPU and GPU."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from flashmoe_sim.drafts import MTP, Drafts, given_drafts
from flashmoe_sim.geometry.model import DEFAULT_TYPE, ModelGeometry
from flashmoe_sim.io.sizes import MIB
from flashmoe_sim.policies.base import Policy
from flashmoe_sim.policies.bounded_swaps import BoundedSwaps
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.systems.base import HALF, Case, Launch, gpu_left, halved, largest_expert_bytes, no_room
from flashmoe_sim.systems.execution import SharedMisses
from flashmoe_sim.systems.gpu_slots import GpuCache
from flashmoe_sim.systems.published import PublishedRun
from flashmoe_sim.systems.workloads import batched, learning
from flashmoe_sim.timeline.names import WHOLE

RESERVE_BYTES = 700 * MIB
CHUNKS = (8192, 6144, 4096, 3072, 2048, 1024, 512, 256)
SHORT_READ = 64  # tokens of a prompt that are read like an answer's
BUFFERS_BYTES, TOKEN_BYTES = 160 * MIB, 680 * 1024  # of a chunk
CHOSEN = 2048  # tokens that the indexer chooses: of 5 to 477 thousand the published speeds are the same
LENT_SHARE, KEPT = 0.9, 128  # of the slots, and slots that are not lent
KV_WORDS = {"q8_0": "int8"}  # what its flag --kv calls types that others call so
WINDOW = 4  # tokens that a pass verifies, as its setup starts it
ACCEPT = 0.77  # 2.8 tokens of text a window of four: its documentation has 2.4 to 3.2
FULL_SHARE, FULL_GB_S, FAST_GB_S, SLOW_GB_S, LEAST_SHARE = 0.55, 26.0, 20.0, 4.0, 0.05


@dataclass(frozen=True, kw_only=True)
class Strata(GpuCache, program="strata"):
    """A profile's most used experts are on the GPU, and every four windows a few are exchanged for experts used more.
    The CPU computes misses, of which the GPU takes a share over the link.

    Every layer keeps as many experts as the profile gave it. A prompt is read in chunks, as large as nine tenths of the
    slots lend buffers for; the experts that are not on the GPU, or whose slots are lent, are uploaded while it
    computes. That the lent ones come back after it is left out. The program swaps in copies of which RAM has another;
    its modes with less RAM are left out.

    experts: in GPU memory, in all layers together; left out: as many as fit beside 700 MiB, the program's automatic
        rule.
    every: windows between exchanges; 0: none, so that the residents stay those of the profile.
    swaps: the most experts exchanged at once.
    pcie_share: of the misses, for the GPU; left out: the program's rule from the speed of the link.
    profile: what the experts are chosen by: `half` (the first half of the trace; the second is timed) or `all` (the
        whole trace, in hindsight). The program comes with a profile of its own.
    """

    experts: int | None = None
    every: int = 4
    swaps: int = 96
    pcie_share: float | None = None
    profile: str = HALF

    def sizes(self, case: Case) -> Sequence[int]:
        return halved(self._most(case))

    def own_size(self, case: Case) -> int:
        if most := self._most(case):
            return most
        raise no_room("experts on the GPU", gpu_left(case) - RESERVE_BYTES)

    def _most(self, case: Case) -> int:
        return min(max(gpu_left(case) - RESERVE_BYTES, 0) // case.expert_bytes, case.all_experts)

    def policy(self, case: Case) -> BoundedSwaps:
        return BoundedSwaps(every=self.every or 1, swaps=self.swaps if self.every else 0)

    def execution(self, case: Case) -> SharedMisses:
        return SharedMisses(copy_from_tokens=SHORT_READ + 1, share=round(WHOLE * self._share(case)))

    def _share(self, case: Case) -> float:
        if self.pcie_share is not None:
            return self.pcie_share
        link = case.machine.link
        gb_s = 0.0 if link is None else link.pinned_gb_s.value
        if gb_s >= FAST_GB_S:
            return FULL_SHARE
        return 0.0 if gb_s < SLOW_GB_S else min(max(FULL_SHARE * gb_s / FULL_GB_S, LEAST_SHARE), FULL_SHARE)

    def held_bytes(self, case: Case) -> int:
        return min(self.chosen * case.expert_bytes, case.model.routed_bytes)

    def attended(self, model: ModelGeometry) -> int:
        return CHOSEN if model.arch == "qwen4exp" else 0

    def chunk(self, model: ModelGeometry) -> int:
        """Tokens of a prompt that are read at once."""
        return next((tokens for tokens in CHUNKS if self._lends(model, tokens)), CHUNKS[-1])

    def _lends(self, model: ModelGeometry, tokens: int) -> bool:
        lent = _lent(model, tokens)
        return lent + KEPT <= self.chosen and lent <= LENT_SHARE * self.chosen

    def prepared(self, workload: Workload) -> Workload:
        assert workload.geometry is not None
        return batched(workload, self.chunk(workload.geometry))

    def taught(self, policy: Policy, workload: Workload) -> Policy:
        return learning(policy, workload) if self.learns_first_half else policy

    def replay(self, workload: Workload, setup: Setup) -> Replayed:
        """With calls of prompts that also miss residents whose slots are lent, of all as many per layer."""
        found, model = super().replay(workload, setup), workload.geometry
        assert model is not None
        assert found.stream is not None
        tokens = found.stream.n_tokens
        chunk = min(self.chunk(model), int(tokens.max(initial=0)))
        share = _lent(model, chunk) / self.chosen if self._lends(model, chunk) else 0.0
        lent = np.where(tokens > SHORT_READ, np.rint(share * found.stream.hits), 0).astype(np.int32)
        stream = replace(found.stream, hits=found.stream.hits - lent, misses=found.stream.misses + lent)
        return replace(found, stream=stream)

    def launch(self, case: Case) -> Launch:
        words = ["strata", "--serve", "--pack", "PACK", "--native", case.gguf, "--ple-gguf", case.gguf]
        words += ["--max-context", str(case.context)] if case.context else []
        words += [] if case.kv_type == DEFAULT_TYPE else ["--kv", KV_WORDS.get(case.kv_type, case.kv_type)]
        words += ["--expert-profile", "data/expert-profile.bin", "--expert-cache", str(self.experts)]
        words += ["--adapt-every", str(self.every), "--adapt-swaps", str(self.swaps)]
        words += [] if self.pcie_share is None else ["--pcie-frac", f"{self.pcie_share:g}"]
        return Launch((*words, "--prefill", "auto"))

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        match = re.search(r"--pcie-frac (\d[\d.]*)", run.flags)
        return cls(experts=run.residents, pcie_share=float(match[1]) if match else None)

    @classmethod
    def drafted(cls, run: PublishedRun) -> Drafts | None:
        """With the model's own layer, as its setup does."""
        if re.search(r"no (?:MTP|drafts)|MTP off|--spec 1\b", run.flags, re.IGNORECASE):
            return None
        window = run.number_after("--spec ")
        return given_drafts((WINDOW if window is None else window) - 1, ACCEPT, MTP, run.model)


def _lent(model: ModelGeometry, tokens: int) -> int:
    """Slots whose memory holds the buffers of a chunk."""
    return math.ceil((BUFFERS_BYTES + tokens * TOKEN_BYTES) / largest_expert_bytes(model))
