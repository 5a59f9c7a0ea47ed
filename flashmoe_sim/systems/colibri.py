"""colibri: experts pinned by use, an LRU list of each layer in RAM, and the SSD, computed where they are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from flashmoe_sim.budget import own_memory
from flashmoe_sim.drafts import MTP, Drafts, given_drafts
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.machines.machine import Machine, Quantity
from flashmoe_sim.policies._staged import StagedLru
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.systems.base import (
    HALF,
    Case,
    Cost,
    Launch,
    Plan,
    Share,
    System,
    gpu_left,
    ladder,
    largest_expert_bytes,
    no_room,
    ram_weights,
    without_gpu,
)
from flashmoe_sim.systems.colibri_tiers import replay_tiers
from flashmoe_sim.systems.execution import OwnTier, ReadIntoSlots
from flashmoe_sim.systems.published import PublishedRun
from flashmoe_sim.systems.workloads import profile_of, with_fewer, with_profile
from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.models.overlap_prefetch import OverlapPrefetch
from flashmoe_sim.timeline.models.parallel_install import ParallelInstall
from flashmoe_sim.trace.routing import RoutingTrace

GB = 10**9
CPU, METAL, CUDA = "cpu", "metal", "cuda"
# c/colibri.c, cap_for_ram(): the budget, and what it leaves free beside weights, context and the places of a call: 1.2
# and 2.5 GB, and what GLM-5.2 needs to unpack the keys and values of 4096 tokens.
RAM_SHARE, FREE_BYTES, PLACES = 0.88, 3_700_000_000 + 4096 * 64 * 448 * 4, 64
WIDE = 2  # times the bytes of an expert that one of the drafting layer has
CONTEXT = 4096  # tokens
GPU_FREE_BYTES = 2 * GB
FAST_GB_S = 4.0  # of a drive from which on a Mac's list has one slot
TOP_P_SHARE = 0.6  # of the experts of a token that --topp 0.7 leaves: 360 of 600 (issue 605)
BEFORE_TUNING = "before PR 77"  # of 12 July 2026
KNOWN_DRAFTS = (1, 3)
WAITING = estimate("cost.colibri_waiting").ends


@dataclass(frozen=True, kw_only=True)
class Colibri(System, program="colibri"):
    """The most used experts may be pinned, every layer has an LRU list of equally many slots in RAM, and misses are
    read from the SSD. The CPU computes them all, or a Mac's GPU; another GPU computes only the experts pinned on it.

    Of a call with more misses than slots, the last ones stay. The engine reads a prompt's experts in parts of 64; here
    they are read together, and the speed of prompts is not predicted. Exchanges of pinned experts while it runs, reads
    ahead and routing bent to cached experts are left out, as are a second copy of the model on another drive and its
    Vulkan tier.

    cap: slots of each layer; left out: as many as the engine's own rule has, which is 1 on a Mac's GPU with a fast SSD.
        The engine lowers it to what its budget holds.
    ram_gb: its budget of RAM in GB; left out: 88% of what is free.
    pin_gb: experts pinned in RAM, in GB; the engine learns them from earlier runs.
    device: `cpu`, `metal`, or `cuda` (HIP too), which has experts of its own.
    vram_gb: experts pinned on a GPU with its own memory, in GB; left out: as many as fit beside 2 GB. 0: none.
    dense: with `cuda`, whether the dense weights and attention are on the GPU too; if not, all is timed on the CPU.
    pipe: whether hits are computed while misses are read.
    direct: whether reads bypass the page cache.
    top_k: experts per token; left out: the model's.
    tuned: whether the CPU's threads wait actively, as on Linux since July 2026.
    profile: where uses are counted: `half` (the first half of the trace; the second is timed), `all` (the whole trace,
        in hindsight), or the file of another trace.
    """

    cap: int | None = None
    ram_gb: float | None = None
    pin_gb: float = 0
    device: str = CPU
    vram_gb: float | None = None
    dense: bool = True
    pipe: bool = False
    direct: bool = False
    top_k: int | None = None
    tuned: bool = True
    profile: str = HALF

    @property
    def uses_profile(self) -> bool:
        return self.pin_gb > 0 or (self.device == CUDA and self.vram_gb != 0)

    @property
    def uses_gpu(self) -> bool:
        return self.device != CPU

    def why_not(self, case: Case) -> str:
        machine = case.machine
        if machine.cpu is None and self.device != METAL:
            return "needs a CPU that the machine's file describes"
        if self.device == METAL and machine.api != "metal":
            return "device=metal needs a Mac's GPU; leave it out"
        if self.device == CUDA and not (own_memory(machine) and machine.api in ("cuda", "rocm")):
            return "device=cuda needs an NVIDIA or AMD GPU with a memory of its own; leave it out"
        return super().why_not(case)

    def sizes(self, case: Case) -> Sequence[int]:
        return ladder(1, self._most(case))

    def own_size(self, case: Case) -> int:
        most = self._most(case)
        return 1 if self.device == METAL and case.machine.storage.read_gb_s.value >= FAST_GB_S else most

    def _most(self, case: Case) -> int:
        """The most slots of a layer that the engine's budget of RAM holds; one if the RAM holds more than it."""
        room, rows = self._room(case) - self._pinned(case) * case.expert_bytes, self._rows_bytes(case)
        slots = min(int(room // rows), case.n_experts)
        if slots < 1 and self._beside(case) + rows > case.ram_bytes:
            raise no_room("a slot of each layer", case.ram_bytes - self._beside(case))
        return max(slots, 1)

    def _room(self, case: Case) -> float:
        """What the budget of RAM has for experts."""
        budget = RAM_SHARE * case.ram_bytes if self.ram_gb is None else self.ram_gb * GB
        return budget - self._beside(case)

    def _beside(self, case: Case) -> int:
        """What the engine counts beside experts that stay: weights, context, the places of a call and a margin."""
        return case.dense_bytes + FREE_BYTES + PLACES * case.expert_bytes + self._context_bytes(case)

    def _rows_bytes(self, case: Case) -> int:
        """Bytes of a slot in every layer, with the drafting layer if it drafts."""
        drafting = case.drafts is not None and case.drafts.kind == MTP
        return case.slot_bytes + drafting * WIDE * case.model.drafting_layers * case.expert_bytes

    def _context_bytes(self, case: Case) -> int:
        """Keys and values in 32 bits; of the engine's own context if none is given."""
        attention = case.model.attention
        if case.context or attention is None:
            return 2 * case.kv_bytes
        return 2 * attention.context_bytes(CONTEXT, kv_type=case.kv_type)

    def _slots(self, case: Case) -> int:
        return min(self.chosen, self._most(case))

    def _on_gpu(self, case: Case) -> int:
        """Experts pinned on a GPU with its own memory."""
        if self.device != CUDA:
            return 0
        room = case.gpu_bytes - GPU_FREE_BYTES - (case.gpu_dense_bytes if self.dense else 0)
        if case.leaves_spare and self.dense:
            room = min(room, gpu_left(case))
        wanted = room if self.vram_gb is None else min(self.vram_gb * GB, room + GPU_FREE_BYTES)
        return min(int(max(wanted, 0) // case.expert_bytes), case.all_experts)

    def _pinned(self, case: Case) -> int:
        """Experts pinned in RAM: as far as they fit beside a slot of each layer, and are not on the GPU."""
        room = max(self._room(case) - self._rows_bytes(case), 0)
        return min(int(min(self.pin_gb * GB, room) // case.expert_bytes), case.all_experts - self._on_gpu(case))

    def plan(self, case: Case) -> Plan:
        on_gpu, pinned = self._on_gpu(case), self._pinned(case)
        machine = self.machine_of(case)
        if not self._computes_on_gpu and on_gpu:  # as more RAM, which its GPU does not lack
            on_gpu, pinned = 0, on_gpu + pinned
            machine = _with_reserve(machine, -self._on_gpu(case) * case.expert_bytes)
        elif on_gpu or self.device == CUDA:
            held = self._slots(case) * case.slot_bytes + pinned * case.expert_bytes + case.dense_bytes
            machine = _with_reserve(machine, held)
        policy = StagedLru(on_gpu=on_gpu, in_ram=pinned)
        setup = Setup(Bank(slots=self._slots(case)), policy, "atomic", io_split=1)
        return Plan(setup, self._execution(), machine, direct_io=self.direct)

    @property
    def _computes_on_gpu(self) -> bool:
        return self.device == METAL or (self.device == CUDA and self.dense)

    def _execution(self) -> ExecutionModel:
        if self.device == METAL:
            return ReadIntoSlots()
        if self.device == CUDA and self.dense:
            return OwnTier()
        return OverlapPrefetch() if self.pipe else ParallelInstall()

    def adapted(self, machine: Machine) -> Machine:
        found = super().adapted(machine)
        return found if self._computes_on_gpu else replace(without_gpu(found), gpus=1, cards=())

    def costs_on(self, machine: Machine) -> tuple[Cost, ...]:
        paths = {"storage.request_us", {METAL: "gpu.weights_gb_s", CUDA: "gpu.layer_us"}.get(self.device)}
        return tuple(cost for cost in self.costs if cost.path in paths)

    def machine_of(self, case: Case) -> Machine:
        """The machine, whose CPU reads weights no faster than its cores compute them with this engine's kernels."""
        machine = super().machine_of(case)
        cpu, features = machine.cpu, machine.cpu_features or ()
        known = next((name for name in ("neon", "avx512", "avx2") if name in features), None)
        if cpu is None or cpu.weights_gb_s is None or known is None or not machine.cpu_cores:
            return machine
        core = estimate("cpu.colibri_core_gb_s", known)
        times = WAITING if not self.tuned else (1.0, 1.0, 1.0)
        lo, value, hi = (machine.cpu_cores * end * by for end, by in zip(core.ends, times, strict=True))
        if value >= cpu.weights_gb_s.value:
            return machine
        return machine.with_quantity("cpu.weights_gb_s", Quantity(value, lo, hi, core.source, core.condition, True))

    def prepared(self, workload: Workload) -> Workload:
        return with_fewer(workload, self.top_k)

    def replay(self, workload: Workload, setup: Setup) -> Replayed:
        assert isinstance(setup.policy, StagedLru)
        return replay_tiers(workload, setup, setup.policy, profile_of(workload.trace, self.profile))

    def with_profile_of(self, trace: RoutingTrace, folder: Path) -> Self | None:
        return with_profile(self, self.profile, trace, folder)

    def memory(self, case: Case) -> tuple[Share, ...]:
        each, on_gpu = case.expert_bytes, self._on_gpu(case)
        kept = [
            Share("slots", "ram", self._slots(case) * case.slot_bytes),
            Share("pinned experts", "ram", self._pinned(case) * each),
            *ram_weights(case),
        ]
        if self.device == CUDA:
            kept.append(Share("pinned experts", "gpu", on_gpu * each))
            kept.append(Share("dense weights", "gpu", case.gpu_dense_bytes * self.dense))
        if not self.direct:
            kept.append(Share("experts", "mapped", case.model.routed_bytes))
        return tuple(kept)

    def launch(self, case: Case) -> Launch:
        words = ["coli", "serve", "--model", "COLI_MODEL", "--cap", str(self._slots(case))]
        words += ["--ctx", str(case.context)] if case.context else []
        words += [] if self.ram_gb is None else ["--ram", f"{self.ram_gb:g}"]
        words += [] if self.top_k is None else ["--topk", str(self.top_k)]
        on = {"CAP_RAISE": "0", "DRAFT": "0", "PIPE": str(int(self.pipe)), "DIRECT": str(int(self.direct))}
        on |= {} if self.tuned else {"COLI_NO_OMP_TUNE": "1"}
        if self.device == METAL:
            on |= {"COLI_METAL": "1"}
        if self.device == CUDA:
            on |= {"COLI_CUDA": "1", "CUDA_EXPERT_GB": f"{self._on_gpu(case) * case.expert_bytes / GB:.1f}"}
            on |= {"CUDA_RELEASE_HOST": "1"}
            on |= {"CUDA_DENSE": "1", "COLI_CUDA_ATTN": "1"} if self.dense else {}
        pinned = f"{self._pinned(case) * case.expert_bytes / GB:.1f}"
        on |= {"PIN": "auto", "PIN_GB": pinned} if self.uses_profile else {"AUTOPIN": "0"}
        return Launch(tuple(words), on)

    def started(self, case: Case) -> Launch:
        launch = self.launch(case)
        if case.drafts is None:
            return launch
        return replace(launch, environment={**launch.environment, "DRAFT": str(case.drafts.count)})

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        flags, each = run.flags, largest_expert_bytes(run.model)
        device = _device(run)
        ram = re.search(r"(?:--ram |RAM_GB=)(\d+)", flags)
        topp = re.search(r"--topp 0\.7", flags)
        on_gpu, pinned = _pinned_in(run, each)
        return cls(
            cap=_cap(run, device, raised=ram is not None),
            ram_gb=float(ram[1]) if ram else None,
            pin_gb=pinned,
            device=device,
            vram_gb=on_gpu if device == CUDA else None,
            dense=device != CUDA or "CUDA_DENSE=1" in flags or "CUDA_PIPE=2" in flags,
            pipe=re.search(r"PIPE=1|\+PIPE\b|PIPE_WORKERS|URING=1|Windows", flags) is not None,
            direct=run.model.arch == "deepseek4" or re.search(r"DIRECT=1|O_DIRECT", flags) is not None,
            top_k=round(TOP_P_SHARE * run.model.top_k) if topp else None,
            tuned=BEFORE_TUNING not in run.build,
        )

    @classmethod
    def drafted(cls, run: PublishedRun) -> Drafts | None:
        """With the model's own layer, as GLM-5.2 does by default without CUDA: one token, three until July 2026."""
        flags, model = run.flags, run.model
        on = "COLI_CUDA_MTP=1" in flags or "MTP draft" in flags or _device(run) != CUDA
        if model.arch != "glm-dsa" or not on or re.search(r"MTP[ =](?:off|0)|DRAFT=0", flags):
            return None
        later = model.quant == "int4-g64" or re.search(r"draft=1|CUDA_MTP=1|August 2026", f"{flags} {run.build}")
        count = KNOWN_DRAFTS[0 if later else 1]
        return given_drafts(count, estimate(f"drafts.colibri_accept.{count}").value, MTP, model)


def _device(run: PublishedRun) -> str:
    if "metal" in run.flags.lower():
        return METAL
    tier = re.search(r"CUDA_EXPERT_GB|COLI_CUDA=1|VRAM|CUDA expert tier|expert tier|GB tier|\bGPUs?\b", run.flags)
    return CUDA if tier or run.strategy in ("vram_lru", "vram_static_profile") else CPU


def _cap(run: PublishedRun, device: str, *, raised: bool) -> int | None:
    """Slots of a layer; None if the engine chose them.

    It raises the cap that it is given for GLM-5.2, except on a Mac's GPU; on these, a budget of RAM says that it did.
    """
    asked = run.number_after("--cap ", "cap=", "cap ")
    if run.model.arch == "glm-dsa":
        if device != METAL:
            return None if re.search(r"\bcap \d+(?![\d/])", run.flags) else run.slots_per_layer
        if raised and run.slots_per_layer is None and asked is None:
            return max(layer.n_experts for layer in run.model.layers.values())
    return run.slots_per_layer or asked


def _pinned_in(run: PublishedRun, each: int) -> tuple[float | None, float]:
    """GB of experts pinned on the GPU, None for as many as fit, and in RAM beside them."""
    number = r"(\d+(?:\.\d+)?)"
    both = re.search(r"(\d+) VRAM \+ (\d+) RAM pinned", run.flags)
    if both:
        return int(both[1]) * each / GB, int(both[2]) * each / GB
    tier = re.search(rf"CUDA_EXPERT_GB={number}|{number} GB (?:expert )?tier", run.flags)
    on_gpu = float(next(filter(None, tier.groups()))) if tier else None
    if run.residents is not None and on_gpu is None and run.strategy == "vram_lru":
        on_gpu = run.residents * each / GB
    if re.search(r"PIN_GB=all", run.flags) or run.engine == "colibri qwen36":
        return on_gpu, run.model.routed_bytes / GB
    pin = re.search(rf"PIN_GB={number}|{number} GB (?:frozen |auto-learned )?pin\b|pin {number} GB", run.flags)
    return on_gpu, float(next(filter(None, pin.groups()))) if pin else 0.0


def _with_reserve(machine: Machine, size_bytes: int) -> Machine:
    """The machine with so much more of its RAM in use."""
    if machine.memory is None:
        return machine
    reserve = machine.memory.reserve_gib
    more = replace(reserve, value=reserve.value + size_bytes / GIB)
    return replace(machine, memory=replace(machine.memory, reserve_gib=more))
