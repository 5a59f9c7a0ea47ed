"""From a probe's results to a machine, with the numbers that it cannot measure marked as estimates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from statistics import median

from flashmoe_sim.io.sizes import GIB, size
from flashmoe_sim.machines.attention_rates import bare, with_attention
from flashmoe_sim.machines.compose import compose
from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.machines.faults import read_by_faults
from flashmoe_sim.machines.here.by_system import MacFacts
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import (
    REFERENCE_BYTES,
    Compute,
    Host,
    Link,
    Machine,
    Memory,
    Quantity,
    Storage,
)
from flashmoe_sim.machines.reads import MeasuredRead, ReadTable
from flashmoe_sim.machines.table import PRESETS
from flashmoe_sim.machines.written import reported_part
from native_bridge.probe.estimate import Estimate
from native_bridge.probe.memory import LANES, STEP_BYTES
from native_bridge.probe.probe import Probed, known_bandwidth
from native_bridge.probe.storage import StorageFound, largest_piece

UNMEASURED = "not measured: it takes runs of a model; sim bridge calibrate or sim machine fit find it"
OS_NAMES = {"Linux": "linux", "macOS": "macos", "Darwin": "macos", "Windows": "windows"}


def as_machine(found: Probed, *, name: str, today: date) -> Machine:
    """The machine that a probe found.

    Numbers that need runs of a model (layer_us, call_us, install_us, weights_gb_s) are estimates: of a machine made of
    these parts if the catalogue has the card, else the median of the presets, between their least and their most.
    """
    source = f"measured by sim machine probe, {today.isoformat()}"
    memory = _memory(found, source)
    storage = _with_faults(_storage(found.storage, source, found.facts.where), found, source)
    base = _of_parts(found, memory) or _of_presets(found, memory, storage)
    machine = replace(
        base,
        name=name,
        title=f"{_title(found)}; computing not measured",
        storage=storage,
        host=replace(base.host, first_touch_gb_s=_first_touch(found, source)),
        memory=memory,
        link=_link(found, source) or base.link,
        gpu=base.gpu and replace(base.gpu, memory_gib=_gpu_memory(found, source)),
        api="metal" if found.mac is not None else "cuda" if found.gpu is not None else "",  # it measures by CUDA alone
        gpu_maker="apple" if found.mac is not None else "nvidia" if found.gpu is not None else "",
        os=_os(found),
        cpu_cores=found.facts.physical_cores,
    )
    return with_attention(bare(machine))


def _os(found: Probed) -> str:
    return next((os for name, os in OS_NAMES.items() if found.facts.system.startswith(name)), "")


def _of_parts(found: Probed, memory: Memory | None) -> Machine | None:
    """The machine that the catalogue of parts makes of the card, the processor and the RAM, with the rate of this RAM.

    None for a card that it does not have, and without one.
    """
    if found.gpu is None or found.gpu.integrated:
        return None
    card = reported_part(found.gpu.name, "gpu", memory_gib=found.gpu.memory_bytes / GIB)
    processor = reported_part(found.facts.processor, "cpu")
    if card is None:
        return None
    named = [card.name, *([processor.name] if processor else []), f"{found.facts.ram_bytes / GIB:.3f}GiB"]
    made = compose(" + ".join(named))
    assert made.cpu is not None
    return replace(made, cpu=replace(made.cpu, weights_gb_s=_weights("cpu", False, memory)))


def _of_presets(found: Probed, memory: Memory | None, storage: Storage) -> Machine:
    """A machine with the estimates of presets: for its processor and card, or for a GPU that shares its RAM."""
    unified, processor = _is_unified(found), reported_part(found.facts.processor, "cpu")
    return Machine(
        name="",
        title="",
        unified=unified,
        storage=storage,
        host=Host(call_us=_unmeasured("host.call_us"), install_us=_unmeasured("host.install_us")),
        gpu=_estimated("gpu", memory, unified=unified) if unified or found.gpu is not None else None,
        cpu=None if unified else _estimated("cpu", memory, unified=False),
        cpu_features=None if processor is None else processor.features,
    )


def _gpu_memory(found: Probed, source: str) -> Quantity | None:
    """What weights and caches can take of the GPU's memory; None if the GPU takes what it wants of the RAM."""
    if found.gpu is not None and not found.gpu.integrated:
        return Quantity(*(_gib(found.gpu.free_bytes),) * 3, f"{source}, {found.gpu.by}", f"free on {found.gpu.name}")
    if found.mac is not None and found.mac.wired_limit_mib is not None:
        limit = min(found.mac.wired_limit_mib / 1024, _gib(found.facts.ram_bytes))
        return Quantity(limit, limit, limit, "sysctl iogpu.wired_limit_mb", found.facts.system)
    return None


def _estimated(section: str, memory: Memory | None, *, unified: bool) -> Compute:
    knee = estimate("run.knee_tokens")
    return Compute(
        weights_gb_s=_weights(section, unified, memory),
        layer_us=_unmeasured(f"{section}.layer_us"),
        knee_tokens=Quantity(knee.value, knee.lo, knee.hi, UNMEASURED, "not measured", True),
    )


def _title(found: Probed) -> str:
    facts = found.facts
    processor = f"{facts.processor}, {facts.cores} cores"
    if found.mac is not None:
        processor = found.mac.chip + (f" ({found.mac.gpu_cores}-core GPU)" if found.mac.gpu_cores else "")
    card = f" with {found.gpu.name}" if found.gpu is not None else ""
    return f"{processor}{card}, {_gib(facts.ram_bytes):.3g} GiB, {facts.system}, {facts.where}"


def _storage(found: StorageFound, source: str, where: str) -> Storage:
    """Its table, and read_gb_s from the table at 4 MiB and 4 in flight, so that the table holds as measured."""
    by, estimated = f"{source}, {found.how}", found.is_page_cache

    def rate(which: str) -> float:
        table = ReadTable(
            [
                MeasuredRead(point.size_bytes / 1024, point.depth, getattr(point.gb_s, which), "")
                for point in found.points
            ]
        )
        return REFERENCE_BYTES * LANES / table.read_s(REFERENCE_BYTES, LANES) / 1e9

    sizes = sorted({point.size_bytes for point in found.points})
    largest = f"reads of {size(sizes[-1])}, {LANES} in flight, {found.condition}, {where}"
    smallest = f"reads of {size(sizes[0])}, 1 in flight, {found.condition}, {where}"
    reference = Estimate(rate("value"), rate("lo"), rate("hi"), min(point.gb_s.rounds for point in found.points))
    return Storage(
        read_gb_s=reference.quantity(by, largest, estimated=estimated),
        request_us=found.request_us.quantity(by, smallest, estimated=estimated),
        lanes=Quantity(LANES, LANES, LANES, "--moe-cache-io-split 4, not measured", "the patched runtime"),
        measured=tuple(
            MeasuredRead(
                point.size_bytes / 1024,
                point.depth,
                float(f"{point.gb_s.value:.4g}"),
                f"{by}, {size(point.size_bytes)}, {point.depth} in flight, {found.condition}: "
                f"{point.gb_s.lo:.3g} to {point.gb_s.hi:.3g} in {point.gb_s.rounds} rounds",
            )
            for point in found.points
        ),
    )


def _with_faults(storage: Storage, found: Probed, source: str) -> Storage:
    """With what page faults of a mapped file read, if they were measured and came from it.

    What the system reads around a piece is added by its read-ahead, which is the disk's on Linux.
    """
    facts, read, faults = found.facts, storage.read_gb_s, found.faults_gb_s
    if facts.read_ahead_kib:
        window = 2.0 * facts.read_ahead_kib  # llama.cpp and the probe say that they read in order
        storage = replace(
            storage, fault_kib=Quantity(window, window, window, "the disk's read-ahead, twice", facts.where)
        )
    if faults is None or read.estimated or faults.lo > read.hi:
        return storage
    piece_bytes = largest_piece(point.size_bytes for point in found.storage.points)
    around_bytes = read_by_faults(storage, _os(found)).around_bytes(piece_bytes)
    condition = f"{facts.cores} threads, each its part of pieces of {size(piece_bytes)}, {facts.system}"
    rate = faults.quantity(f"{source}, page faults", condition, factor=1 + around_bytes / piece_bytes)
    return replace(storage, faults_gb_s=rate)


def _memory(found: Probed, source: str) -> Memory | None:
    """The measured memory; None if there was no time for it."""
    memory, facts = found.memory, found.facts
    if memory.together is None or memory.from_cache is None:
        return None
    ram, taken = _gib(facts.ram_bytes), _gib(facts.ram_bytes - facts.available_bytes)
    known_by = "the limit of the control group" if facts.ram_limited else "reported by the system"
    unified = _is_unified(found)
    bandwidth = memory.together.quantity(
        f"{source}, numpy",
        f"copies of {size(memory.buffer_bytes)}, {memory.threads} threads, bytes read and written"
        + (", by the CPU alone" if unified else ""),
        factor=2,
        estimated=unified,
    )
    if found.mac is not None and (known := known_bandwidth(found.mac)) is not None:
        preset, quantity = known
        bandwidth = replace(quantity, source=f"preset {preset}: {quantity.source}")
    return Memory(
        ram_gib=Quantity(ram, ram, ram, known_by, facts.system if found.mac is None else _mac(found.mac, facts.system)),
        bandwidth_gb_s=bandwidth,
        copy_gb_s=memory.from_cache.quantity(
            source, f"{size(memory.cached_bytes)} of a cached file, {memory.threads} threads, reads of 1 MiB"
        ),
        reserve_gib=Quantity(
            taken, taken * 0.9, taken * 1.1, "RAM less what the system says is available", "when the probe began"
        ),
    )


def _first_touch(found: Probed, source: str) -> Quantity | None:
    """The rate of first fills; None if there was no time to measure it, or the bank is not in RAM."""
    if found.memory.first_touch is None or (found.gpu is not None and not _is_unified(found)):
        return None
    return found.memory.first_touch.quantity(
        source,
        f"a byte to each page of {size(STEP_BYTES)} of new memory, each of {LANES} threads, {found.facts.system}",
    )


def _mac(mac: MacFacts, system: str) -> str:
    return system if mac.model is None else f"{mac.model}, {system}"


def _is_unified(found: Probed) -> bool:
    return found.mac is not None or (found.gpu is not None and found.gpu.integrated)


def _link(found: Probed, source: str) -> Link | None:
    if found.link is None or found.gpu is None:
        return None
    by, condition = f"{source}, {found.gpu.by}", f"copies of 4 and 64 MiB to {found.gpu.name}"
    return Link(
        found.link.pinned_gb_s.quantity(by, f"{condition}, pinned"),
        found.link.pageable_gb_s.quantity(by, f"{condition}, pageable"),
        found.link.request_us.quantity(by, f"{condition}, pinned, each waited for"),
    )


def _weights(section: str, unified: bool, memory: Memory | None) -> Quantity:
    """The rate at which the computing unit streams weights: the presets' share of the memory's bandwidth.

    A GPU with its own memory, and a machine whose memory was not measured, get the presets' rates instead.
    """
    rates, shares = [], []
    for preset in map(load_machine, PRESETS):
        rate = dict(preset.quantities()).get(f"{section}.weights_gb_s")
        if rate is None or preset.memory is None or (section == "gpu" and preset.unified != unified):
            continue
        per = preset.memory.bandwidth_gb_s.value
        rates.append(rate)
        shares.append(replace(rate, value=rate.value / per, lo=rate.lo / per, hi=rate.hi / per))
    if memory is None or (section == "gpu" and not unified):
        return _middle(rates)
    share, of = _middle(shares), memory.bandwidth_gb_s
    condition = f"share of memory.bandwidth_gb_s: {share.condition}"
    lo, value, hi = (
        float(f"{one * times:.4g}")
        for one, times in zip((share.lo, share.value, share.hi), (of.lo, of.value, of.hi), strict=True)
    )
    return replace(share, lo=lo, value=value, hi=hi, condition=condition)


def _unmeasured(path: str) -> Quantity:
    """An estimate of an unmeasured number: what presets have."""
    presets = [dict(load_machine(name).quantities()) for name in PRESETS]
    return _middle([preset[path] for preset in presets if path in preset])


def _middle(known: Sequence[Quantity]) -> Quantity:
    """An estimate from the quantities of presets."""
    condition = f"median of {len(known)} presets, and what the least and the most have"
    usual = median(one.value for one in known)
    return Quantity(usual, min(one.lo for one in known), max(one.hi for one in known), UNMEASURED, condition, True)


def _gib(size_bytes: float) -> float:
    return float(f"{size_bytes / GIB:.4g}")
