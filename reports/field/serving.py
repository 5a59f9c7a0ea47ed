"""How a row's tokens are served: what is resident where, and who computes or reads the rest."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from flashmoe_sim.budget import own_memory
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.machines.machine import Machine, Quantity
from flashmoe_sim.systems.all_gpu import AllGpu
from flashmoe_sim.systems.base import Case, System, gpu_left
from flashmoe_sim.systems.cpu import Cpu
from flashmoe_sim.systems.hot_cache import RESERVE_BYTES, HotCache
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.systems.placed_ik import PlacedIk
from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.models.hot_cold import HotCold, HotColdPadded
from flashmoe_sim.timeline.models.mapped import Mapped
from flashmoe_sim.timeline.models.parallel_install import ParallelInstall
from flashmoe_sim.timeline.models.prefill_copy import PrefillCopy
from flashmoe_sim.timeline.models.resident import Resident
from reports.field.model import name_of
from reports.field.rows import FieldRow
from reports.field.settings import Settings

OF_RAM = 0.8  # what an engine that sizes its own cache takes of the RAM that is left
FAST = 1e6  # GB/s: no copy at all
_DIRECT = re.compile(r"DIRECT=1|-direct\b|O_DIRECT", re.IGNORECASE)
_NGL = re.compile(r"-ngl (\d+)")
_TARGET = re.compile(r"--fit-target (\d+)")
_RESERVE = re.compile(r"--moe-hot-cache-auto-reserve-mib (\d+)")
_BUDGET = re.compile(r"(\d+) % budget")
LOADED = re.compile(r"--no-mmap|(?:-lm|--load-mode) none")
_TOPP = re.compile(r"--topp 0\.7")
_NO_DRAFTS = re.compile(r"no MTP|MTP off|MTP=0|no drafter|--spec-type none", re.IGNORECASE)
_DRAFTS = re.compile(r"MTP|draft", re.IGNORECASE)
_TP = re.compile(r"\bTP (\d)")
_DENSE_GB = re.compile(r"(?:lm_head|dnproj) (\d+(?:\.\d+)?) GB")
_STRATEGY = re.compile(r"--kt-expert-placement-strategy ([\w-]+)")
TOPP_SHARE = 0.6  # of the experts that are computed with --topp 0.7: 360 of 600, as a colibri row says


@dataclass(frozen=True, kw_only=True)
class Way:
    """How tokens are served.

    far_layers: how many layers have experts that can miss. share: of their experts, those in the bank or the hot set.
    kind: of the hit curve; `uniform` if every expert is as likely as any other; `none` if nothing ever hits.
    ram_share: of the experts, those that RAM holds beside the bank; the others are read from storage. tier_bytes: of
    them, those of a tier of the engine's own; the page cache holds the rest.
    fixed_share: of `share`, experts of a list that never changes. slots: experts of a layer in the bank, if told.
    program: whose kernels the CPU runs.
    """

    execution: ExecutionModel
    machine: Machine
    model: ModelGeometry
    far_layers: int
    share: float
    kind: str
    ram_share: float
    tier_bytes: float = 0.0
    name: str = ""
    fixed_share: float = 0.0
    drafts: bool = False
    direct_io: bool = False
    notes: tuple[str, ...] = ()
    program: str = ""


@dataclass(frozen=True)
class RowParts:
    """A row with its parts read."""

    row: FieldRow
    model: ModelGeometry
    machine: Machine
    settings: Settings

    @property
    def case(self) -> Case:
        return Case(self.model, self.machine)

    @property
    def layers(self) -> int:
        return len(self.model.layers)

    @property
    def experts(self) -> int:
        return sum(layer.n_experts for layer in self.model.layers.values())


def way_of(parts: RowParts) -> Way:
    """How the tokens of a row are served. Raises BadInput if nothing is known that works so."""
    row = parts.row
    if row.engine.startswith("transformers"):
        raise BadInput(f"{row.where}: {row.engine} copies whole layers, which is not modelled")
    parts = replace(parts, machine=_in_parallel(row, parts.machine), model=_with_fewer(row, parts.model))
    way = WAYS[row.strategy](parts) if row.strategy in WAYS else _unknown(parts)
    drafts = _DRAFTS.search(row.flags) is not None and _NO_DRAFTS.search(row.flags) is None
    return replace(way, drafts=drafts)


def _unknown(parts: RowParts) -> Way:
    raise BadInput(f"{parts.row.where}: unknown strategy {parts.row.strategy!r}; expected one of {', '.join(WAYS)}")


def _all_gpu(parts: RowParts) -> Way:
    """Everything is on the GPU, or on the chip that shares its RAM."""
    if parts.machine.gpu is None:
        return _cpu_only(parts)
    machine = AllGpu().adapted(parts.machine)
    return _way(parts, Resident(), machine, far_layers=0, share=1.0, kind="uniform", ram_share=1.0)


def _placed(parts: RowParts) -> Way:
    """Layers of experts on the CPU, as told or as few as must be."""
    row, case = parts.row, parts.case
    if parts.machine.gpu is None:
        return _cpu_only(parts)
    if (share := parts.settings.resident_share) is not None and parts.settings.cpu_layers is None:
        return _profiled(parts, share)
    if not own_memory(parts.machine):
        return _all_gpu(parts)
    system: System = PlacedIk() if "ik_llama" in row.engine else PlacedLayers()
    layers = parts.settings.cpu_layers
    if layers is None:
        layers = _layers_off(parts, case)
    layers = min(layers, parts.layers)
    off_bytes = layers / parts.layers * parts.model.routed_bytes
    ram_share = _page_share(parts, off_bytes)  # pages of layers on the GPU need not stay
    return _way(
        parts,
        PrefillCopy(),
        system.adapted(parts.machine),
        far_layers=round(layers),
        share=0.0,
        kind="none",
        ram_share=ram_share,
    )


def _layers_off(parts: RowParts, case: Case) -> float:
    """Layers on the CPU if the flags say how many are on the GPU, or that the engine fits them."""
    if (on := _NGL.search(parts.row.flags)) and int(on[1]) < parts.layers:
        return parts.layers - int(on[1])
    machine = parts.machine
    if (target := _TARGET.search(parts.row.flags)) and machine.gpu is not None and machine.gpu.memory_gib is not None:
        size = machine.gpu.memory_gib
        left = size.value - int(target[1]) * MIB / GIB
        machine = replace(machine, gpu=replace(machine.gpu, memory_gib=replace(size, value=left)))
    return len(PlacedLayers().on_cpu(Case(case.model, machine, case.kv_bytes)))


def _cpu_only(parts: RowParts) -> Way:
    """The CPU computes everything, mapped."""
    machine = Cpu().adapted(parts.machine)
    ram_share = _page_share(
        replace(parts, machine=machine), parts.model.routed_bytes, beside=parts.model.dense_bytes or 0
    )
    return _way(parts, Mapped(), machine, far_layers=parts.layers, share=0.0, kind="none", ram_share=ram_share)


def _mapped(parts: RowParts) -> Way:
    """The operating system decides what RAM holds."""
    return _placed(parts) if parts.machine.gpu is not None and own_memory(parts.machine) else _cpu_only(parts)


def _dynamic(parts: RowParts) -> Way:
    """A cache of experts on the GPU; misses are computed on the CPU, or uploaded."""
    row = parts.row
    if parts.machine.gpu is None:
        return _cpu_only(parts)
    share = _share(parts, _auto_gpu_share(parts))
    kind = "held-out" if re.search(r"warm heat|heat map", row.flags) or row.id.endswith("-warm") else "lru"
    far = parts.layers if parts.settings.cpu_layers is None else min(round(parts.settings.cpu_layers), parts.layers)
    if row.engine.startswith(("FreeToken", "kekzl", "tinyserve")):
        machine = _pinned(parts.machine)
        return _way(parts, ParallelInstall(), machine, far_layers=far, share=share, kind=kind, ram_share=1.0)
    machine = parts.machine
    if "--moe-cache-mib" in row.flags:  # llama.cpp's own cache, whose misses are uploaded
        machine = _pinned(machine) if LOADED.search(row.flags) else machine
        return _way(parts, ParallelInstall(), machine, far_layers=far, share=share, kind=kind, ram_share=1.0)
    if row.engine.startswith("colibri"):
        on_gpu = sum(float(size) * 1e9 for size in _DENSE_GB.findall(row.slots_per_layer_or_cache_gib))
        on_cpu = max((parts.model.streamed_bytes or 0) - on_gpu, 0)
        machine = _dense_on_cpu(machine, on_cpu / parts.layers)
        parts = replace(parts, model=replace(parts.model, dense_bytes=(parts.model.dense_bytes or 0) - round(on_cpu)))
    fixed = parts.settings.static_share or 0.0
    if fixed:
        slots = parts.settings.slots_per_layer or 0.0
        share = min(fixed + slots / max(layer.n_experts for layer in parts.model.layers.values()), 1.0)
    return _way(parts, HotCold(), machine, far_layers=far, share=share, kind=kind, ram_share=1.0, fixed_share=fixed)


def _static(parts: RowParts) -> Way:
    """A list of experts that stay on the GPU."""
    if parts.machine.gpu is None:
        return _cpu_only(parts)
    if parts.row.engine.startswith("adrianhoehne"):
        return _hot_cache(parts)
    return _profiled(parts, _share(parts, _auto_gpu_share(parts)))


def _hot_cache(parts: RowParts) -> Way:
    """The fork with a hot cache: its automatic size leaves a reserve; the GPU computes an empty expert for a miss.

    Raises BadInput for a hot set on two GPUs, which work on the same layer.
    """
    if "--moe-hot-cache-second-device" in parts.row.flags:
        raise BadInput(f"{parts.row.where}: hot experts on a second GPU are not modelled")
    reserved = _RESERVE.search(parts.row.flags)
    reserve_bytes = int(reserved[1]) * MIB if reserved else RESERVE_BYTES
    share = min(max(gpu_left(parts.case) - reserve_bytes, 0) / parts.model.routed_bytes, 1.0)
    machine = HotCache().adapted(parts.machine)
    return _way(parts, HotColdPadded(), machine, far_layers=parts.layers, share=share, kind="held-out", ram_share=1.0)


def _profiled(parts: RowParts, share: float) -> Way:
    row = parts.row
    placement = _STRATEGY.search(row.flags)
    kind = {"random": "uniform", "front-loading": "uniform", "dynamic": "hindsight"}.get(
        placement[1] if placement else "", "held-out"
    )
    if row.engine.startswith("SES"):
        return _from_storage(parts, share=share, kind="lru")
    return _way(parts, HotCold(), parts.machine, far_layers=parts.layers, share=share, kind=kind, ram_share=1.0)


def _from_storage(parts: RowParts, *, share: float | None = None, kind: str = "lru") -> Way:
    """A bank where experts are computed; the others are read from storage, or from what RAM holds of it."""
    row, machine = parts.row, parts.machine
    cpu_computes = row.strategy == "ssd_stream" and not _computes_on_gpu(row, machine)
    if cpu_computes:
        machine = replace(machine, gpu=None, link=None, api="")
        parts = replace(parts, machine=machine)
    own = machine.gpu is not None and own_memory(machine)
    auto = _auto_gpu_share(parts) if own else _auto_ram_share(parts)
    if share is None:
        share = 0.0 if "no cache" in row.flags else _share(parts, auto)
    direct = _DIRECT.search(row.flags) is not None or row.engine.startswith("nvmoe")
    settings, tier_bytes = parts.settings, 0.0
    if settings.ram_residents is not None and own:
        tier_bytes = settings.ram_residents / parts.experts * parts.model.routed_bytes
    elif settings.ram_bytes is not None and own:
        tier_bytes = settings.ram_bytes
    page_cache_bytes = 0.0
    if not direct:
        taken = tier_bytes if own else share * parts.model.routed_bytes + (parts.model.dense_bytes or 0)
        page_cache_bytes = max(parts.case.ram_bytes - taken, 0.0)
    ram_share = (tier_bytes + page_cache_bytes) / parts.model.routed_bytes
    return _way(
        parts,
        ParallelInstall(),
        machine,
        far_layers=parts.layers,
        share=min(share, 1.0),
        kind=kind,
        ram_share=min(ram_share, 1.0),
        tier_bytes=tier_bytes,
        direct_io=direct,
    )


def _stored(parts: RowParts) -> Way:
    return _from_storage(parts)


def _other(parts: RowParts) -> Way:
    """By engine and flags."""
    row = parts.row
    if row.engine.startswith("FreeToken"):
        share = _share(parts, _auto_gpu_share(parts))
        return _way(parts, HotCold(), parts.machine, far_layers=parts.layers, share=share, kind="lru", ram_share=1.0)
    if row.engine.startswith("kekzl"):
        machine = _pinned(parts.machine)
        return _way(parts, ParallelInstall(), machine, far_layers=parts.layers, share=0.0, kind="none", ram_share=1.0)
    return _placed(parts)


WAYS: dict[str, Callable[[RowParts], Way]] = {
    "all_gpu": _all_gpu,
    "n_cpu_moe": _placed,
    "ot_regex": _placed,
    "cpu_only": _cpu_only,
    "page_cache_mmap": _mapped,
    "vram_lru": _dynamic,
    "vram_static_profile": _static,
    "slot_bank_ssd": _stored,
    "ssd_stream": _stored,
    "other": _other,
}


def _way(parts: RowParts, execution: ExecutionModel, machine: Machine, **placed: object) -> Way:
    name = name_of(parts.row)
    of = {"model": parts.model, "name": name, "program": parts.row.engine}
    return Way(execution=execution, machine=machine, **of, **placed)  # type: ignore[arg-type]


def _share(parts: RowParts, auto: float) -> float:
    """The share of experts in the bank, as told in whatever unit; else what fits."""
    settings, model = parts.settings, parts.model
    if settings.slots_per_layer is not None:
        if settings.slots_per_layer < model.top_k:
            return 0.0
        return min(settings.slots_per_layer / max(layer.n_experts for layer in model.layers.values()), 1.0)
    if settings.resident_share is not None:
        return settings.resident_share
    if settings.residents is not None:
        return min(settings.residents / parts.experts, 1.0)
    if settings.cache_bytes is not None:
        return min(settings.cache_bytes / model.routed_bytes, 1.0)
    if settings.ram_bytes is not None and not own_memory(parts.machine):
        return min(settings.ram_bytes / model.routed_bytes, 1.0)
    if (budget := _BUDGET.search(parts.row.flags)) and parts.machine.gpu and parts.machine.gpu.memory_gib:
        return min(int(budget[1]) / 100 * parts.machine.gpu.memory_gib.value * GIB / model.routed_bytes, 1.0)
    return auto


def _auto_gpu_share(parts: RowParts) -> float:
    return min(max(gpu_left(parts.case), 0) / parts.model.routed_bytes, 1.0)


def _auto_ram_share(parts: RowParts) -> float:
    room = parts.case.ram_bytes - (parts.model.dense_bytes or 0)
    return min(max(OF_RAM * room, 0) / parts.model.routed_bytes, 1.0)


def _page_share(parts: RowParts, wanted_bytes: float, *, beside: int = 0) -> float:
    """The share of mapped bytes that RAM holds."""
    if parts.row.ram_gib is None or wanted_bytes <= 0:
        return 1.0
    return min(max(parts.case.ram_bytes - beside, 0) / wanted_bytes, 1.0)


def _computes_on_gpu(row: FieldRow, machine: Machine) -> bool:
    if machine.gpu is None:
        return False
    in_cuda = "CUDA" in row.engine_version_or_pr
    return row.engine.startswith("SES") or (machine.unified and ("Metal" in row.flags or in_cuda))


def _pinned(machine: Machine) -> Machine:
    """The machine of an engine that uploads from where experts lie in RAM, without a copy."""
    if machine.memory is None:
        return machine
    copy = machine.memory.copy_gb_s
    return replace(machine, memory=replace(machine.memory, copy_gb_s=replace(copy, value=FAST, lo=FAST, hi=FAST)))


def _in_parallel(row: FieldRow, machine: Machine) -> Machine:
    """The machine with cards that work on the same layer."""
    if (cards := _TP.search(row.flags)) is None or machine.gpu is None or machine.gpu.weights_gb_s is None:
        return machine
    return replace(machine, gpu=replace(machine.gpu, weights_gb_s=_times(machine.gpu.weights_gb_s, int(cards[1]))))


def _with_fewer(row: FieldRow, model: ModelGeometry) -> ModelGeometry:
    if _TOPP.search(row.flags) is None:
        return model
    return replace(model, top_k=max(round(TOPP_SHARE * model.top_k), 1))


def _dense_on_cpu(machine: Machine, layer_bytes: float) -> Machine:
    """The machine whose CPU computes these bytes of a layer: their time goes into the GPU's time of a layer."""
    if machine.gpu is None or machine.cpu is None or machine.cpu.weights_gb_s is None:
        return machine
    rate, layer = machine.cpu.weights_gb_s, machine.gpu.layer_us
    value, slow, fast = (layer_bytes / gb_s * 1e-3 for gb_s in (rate.value, rate.lo, rate.hi))
    cpu = machine.cpu.layer_us
    longer = replace(
        layer, value=layer.value + cpu.value + value, lo=layer.lo + cpu.lo + fast, hi=layer.hi + cpu.hi + slow
    )
    return replace(machine, gpu=replace(machine.gpu, layer_us=longer))


def _times(quantity: Quantity, factor: float) -> Quantity:
    return replace(quantity, value=quantity.value * factor, lo=quantity.lo * factor, hi=quantity.hi * factor)
