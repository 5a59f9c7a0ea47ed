"""The machine of a row: from the parts it names and the numbers it says, with estimates of the rest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from flashmoe_sim.field.engines import engine_of
from flashmoe_sim.field.model import model_of
from flashmoe_sim.field.rows import FieldRow
from flashmoe_sim.io.errors import BadInput, UnknownName, Unsupported, shown
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.attention_rates import bare, with_attention
from flashmoe_sim.machines.compose import compose_parts
from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Link, Machine, Quantity
from flashmoe_sim.machines.parts import Part, Parts, catalogue
from flashmoe_sim.machines.sockets import IN_WORDS, INTERLEAVED, MIRRORED, SPLIT, link_between
from flashmoe_sim.machines.table import PRESETS
from flashmoe_sim.machines.written import COUNTS, is_incomplete_studio, named_part, with_cards

FROM_ROW = "the row"
MEASURED = 0.1  # of a measured number, either way
PRESET_RAM = 0.08  # how far a preset's RAM may be from the row's
SIZES_GIB = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536)
LEAST_RAM_GIB, ROOM = 32.0, 1.15
SERVER_RAM_GIB = 256.0  # more is in machines with many channels
SERVER_GB_S = (100.0, 205.0, 460.0)  # 8 channels of DDR4-3200, from 4 of DDR5 to 12
ALL_IN_RAM = ("n_cpu_moe", "ot_regex", "cpu_only", "vram_static_profile", "vram_lru", "other")
BESIDE_GPU = ("all_gpu", "n_cpu_moe", "ot_regex", "vram_lru", "vram_static_profile")
STAND_IN_GPU = "rtx-3090"
OUTSIDE = "thunderbolt4"  # of a card beside the computer, if its link is not told
SOCKET_RAM = {"am4": "ddr4", "am5": "ddr5"}
# Gated delta nets took many steps on the CPU before llama.cpp's build b8233 (pull request 19504).
UNFUSED, FUSED = ("qwen3next", "qwen35moe"), "2026-03-07"
_RAM = re.compile(r"\bddr[345]|\bam[45]\b", re.IGNORECASE)
_CARDS = re.compile(rf"^(?:(\d{{1,2}}) ?[x*\u00d7]|({'|'.join(COUNTS)})\b) ?(?=\S)", re.IGNORECASE)
_CORES = re.compile(r"\b(\d{1,3})C\b")
# What a row says of how it used them; others let threads and pages lie on both.
_MODES = {
    MIRRORED: re.compile(r"\bUSE_NUMA\b|two copies|dual socket inferred", re.IGNORECASE),
    "": re.compile(r"numactl"),
}
_LINK = re.compile(r"(?:pcie|gen|^) ?([345])(?:\.0)?(?![.\d])(?! ?GB)(?: ?x ?(\d{1,2}))?|\bx(\d{1,2})\b", re.IGNORECASE)
_MAKERS = re.compile(r"\b(?:apple|nvidia|amd|intel)\b", re.IGNORECASE)
_RATE = re.compile(r"~?(\d+(?:\.\d+)?) ?GB/s", re.IGNORECASE)
_DRIVE = re.compile(r"(?=.*\d)(?=.*[A-Za-z]{2})")
LINUXES = ("linux", "ubuntu", "debian", "fedora", "cachyos", "proxmox", "raspberry pi os")
SYSTEMS_AS_WRITTEN = {**dict.fromkeys(LINUXES, "linux"), "windows": "windows", "macos": "macos", "android": "android"}
_SYSTEM = re.compile(rf"\b(?:{'|'.join(SYSTEMS_AS_WRITTEN)})\b", re.IGNORECASE)
_WORDS = re.compile(r"[^\s(),;/]+")


@dataclass(frozen=True)
class Built:
    """A machine, and what a reader must know of how it was put together."""

    machine: Machine
    notes: tuple[str, ...]


def machine_of(row: FieldRow) -> Machine:
    """The machine of a row. Raises BadInput if the row names nothing known that computes."""
    return built_of(row).machine


def built_of(row: FieldRow) -> Built:
    """The machine of a row with notes on what was estimated. Raises BadInput as `machine_of` does."""
    notes: list[str] = []
    chip = _chip(row)
    ram_gib, ram_known = _ram_gib(row, chip, notes)
    storage = _storage(row)
    if chip is not None:
        machine = _unified(row, chip, storage, ram_gib)
        machine = machine if machine.cpu_cores else _with_cores(row, machine)
    else:
        cards = _cards(row, notes)
        cpu = part_in(row.cpu, ("cpu",))
        memory = _memory(row, cpu, notes, server=ram_gib >= SERVER_RAM_GIB and ram_known)
        cpu = _stand_in(row, cpu, notes, ram_gib, computes=not cards)
        chosen = [part for part in (cpu, memory, _link(row) if cards else None, storage) if part is not None]
        generation = "" if cpu is not None or memory is not None else _generation(row)
        sockets = _sockets(row, cpu)
        parts = Parts({part.kind: part for part in chosen}, ram_gib, generation=generation, sockets=sockets)
        machine = _with_cores(row, compose_parts(with_cards(parts, cards)))
        if sockets > 1:
            machine = replace(machine, socket_mode=_socket_mode(row))
            notes.append(f"two sockets, {IN_WORDS.get(machine.socket_mode, 'as the engine has it')}")
    machine = _with_measured_numbers(row, replace(machine, os=machine.os or _system(row)))
    if not ram_known:
        machine = _with_guessed_ram(machine)
    return Built(_attending(row, _unfused(row, machine, notes)), tuple(notes))


def _system(row: FieldRow) -> str:
    """The operating system that a row tells of; empty if it tells of none, or of several."""
    found = {SYSTEMS_AS_WRITTEN[word.lower()] for word in _SYSTEM.findall(f"{row.flags} {row.notes}")}
    return found.pop() if len(found) == 1 else ""


def _attending(row: FieldRow, machine: Machine) -> Machine:
    """The machine with the rates of attention that follow from the rates and the interface that the row tells."""
    if machine.gpu is not None and any("vulkan" in text.lower() for text in (row.engine_version_or_pr, row.flags)):
        machine = replace(machine, api="vulkan")
    return with_attention(bare(machine))


def _unfused(row: FieldRow, machine: Machine, notes: list[str]) -> Machine:
    """The machine with what the build of a row took longer for a layer on the CPU, if it is known to be so old."""
    known = len(row.date) == len(FUSED) and row.date < FUSED
    if not known or machine.cpu is None or engine_of(row) != "llama.cpp" or model_of(row).arch not in UNFUSED:
        return machine
    more, layer = estimate("graph.cpu_unfused_us"), machine.cpu.layer_us
    notes.append(f"a build from before {FUSED}: {more.value:g} us more for a layer on the CPU")
    lo, value, hi = (one + other for one, other in zip(more.ends, (layer.lo, layer.value, layer.hi), strict=True))
    return machine.with_quantity("cpu.layer_us", replace(layer, lo=lo, value=value, hi=hi))


def part_in(text: str, kinds: Sequence[str]) -> Part | None:
    """The part of one of these kinds that a text names with the most of its words; None if it names none."""
    if is_incomplete_studio(text):
        return None
    words = _WORDS.findall(_MAKERS.sub("", text))
    for length in range(min(len(words), 7), 0, -1):
        for start in range(len(words) - length + 1):
            part = named_part(" ".join(words[start : start + length]))
            if part is not None and part.kind in kinds:
                return part
    return None


def _chip(row: FieldRow) -> Part | None:
    """The chip with unified memory that computes: named as the GPU, or as the CPU, beside no card."""
    chip = None if part_in(row.gpu, ("gpu",)) else part_in(row.gpu, ("chip",)) or part_in(row.cpu, ("chip",))
    _check_one(row, "gpu" if part_in(row.gpu, ("chip",)) else "cpu", alone=chip is not None)
    return chip


def _check_one(row: FieldRow, column: str, *, alone: bool) -> None:
    """Raise BadInput if a row names several chips, or several CPUs that only fit boards with one socket: such a row is
    about several machines. alone: whether the column names a chip.
    """
    text = getattr(row, column)
    cpu = part_in(text, ("cpu",))
    if _counted(text)[0] > 1 and (alone or (cpu is not None and link_between(cpu) is None)):
        raise Unsupported(f"{row.where}: {column} {shown(text)}: several machines, which are not modelled")


def _unified(row: FieldRow, chip: Part, storage: Part | None, ram_gib: float) -> Machine:
    """The machine of a chip: with the speeds of a preset that has it, if there is one, and the sizes of its RAM."""
    if row.ram_gb_s is not None and not _is_measured(row):
        chip = _with(chip, bandwidth_gb_s=_as_given(row.ram_gb_s, row.ram_gb_s_basis or "as told"))
    parts = {"chip": chip} | ({} if storage is None else {"storage": storage})
    composed = compose_parts(Parts(parts, ram_gib))
    sizes = {int(name.rpartition("-")[2]): name for name in PRESETS if name.rpartition("-")[0] == chip.name}
    if not sizes:
        return composed
    nearest = min(sizes, key=lambda size: abs(size - ram_gib))
    preset = load_machine(sizes[nearest])
    if preset.memory is None or composed.memory is None or preset.gpu is None or composed.gpu is None:
        return composed
    ram = composed.memory.ram_gib
    if abs(nearest - ram_gib) <= PRESET_RAM * ram_gib:
        memory, gpu = replace(preset.memory, ram_gib=ram), preset.gpu
        same_drive = storage is None
    else:
        memory = replace(preset.memory, ram_gib=ram, reserve_gib=composed.memory.reserve_gib)
        gpu, same_drive = replace(preset.gpu, memory_gib=composed.gpu.memory_gib), False
    drive = preset.storage if same_drive else composed.storage
    name = f"{sizes[nearest]} with {ram_gib:g} GiB"
    return replace(preset, name=name, title=composed.title, memory=memory, gpu=gpu, storage=drive)


def _cards(row: FieldRow, notes: list[str]) -> list[Part]:
    """Every GPU, with the numbers that the row tells of equal ones."""
    found: list[Part] = []
    for text in re.split(r"\s\+\s", row.gpu):
        number, one = _counted(text)
        part = part_in(one, ("gpu",))
        if part is None and text != row.gpu and part_in(text, ("chip",)) is None:
            raise UnknownName(f"{row.where}: gpu {shown(text)}: no part is named so; `sim machine parts` lists all")
        if part is not None:
            found += [part] * number
    if not found:
        uses_gpu = row.strategy in BESIDE_GPU or part_in(row.cpu, ("cpu",)) is None
        if row.gpu and uses_gpu and "not stated" not in row.gpu:
            raise UnknownName(f"{row.where}: gpu {shown(row.gpu)}: no part is named so; `sim machine parts` lists all")
        if row.strategy not in BESIDE_GPU or row.gpu or part_in(row.cpu, ("cpu",)) is None:
            return []
        notes.append(f"no GPU is named, but the strategy has one: {STAND_IN_GPU} stands for it")
        return [catalogue()[STAND_IN_GPU]]
    if len({part.name for part in found}) > 1:
        return found
    numbers = dict[str, Quantity]()
    if row.gpu_vram_gib is not None:
        numbers["memory_gib"] = _as_given(row.gpu_vram_gib / len(found), "an even share of all cards' memory")
    if row.gpu_mem_gb_s is not None:
        numbers["bandwidth_gb_s"] = _as_given(row.gpu_mem_gb_s, "of one card")
    return [_with(found[0], **numbers)] * len(found)


def _counted(text: str) -> tuple[int, str]:
    """How many of one a text such as `4x RTX 3090` or `dual RTX 3060` names, and the one."""
    if (match := _CARDS.match(text)) is None:
        return 1, text
    return int(match[1]) if match[1] else COUNTS[match[2].lower()], text[match.end() :]


def _generation(row: FieldRow) -> str:
    """The generation of RAM that the text of a row says, or the socket of its CPU; empty if it says neither."""
    match = _RAM.search(f"{row.cpu} {row.notes} {row.flags}")
    return "" if match is None else SOCKET_RAM.get(match[0].lower(), match[0].lower())


def _sockets(row: FieldRow, cpu: Part | None) -> int:
    """The sockets that a run had: one if it names one CPU, or was on one of two."""
    alone = cpu is None or link_between(cpu) is None or "single socket" in row.flags
    return 2 if not alone and _counted(row.cpu)[0] == 2 else 1


def _socket_mode(row: FieldRow) -> str:
    """How a run used two sockets, one of sockets.MODES; empty for bound to one if that one's RAM has room."""
    if "kt-kernel" in row.engine:
        return SPLIT
    said = f"{row.flags} {row.notes}"
    return next((mode for mode, words in _MODES.items() if words.search(said)), INTERLEAVED)


def _with_cores(row: FieldRow, machine: Machine) -> Machine:
    """The machine with as many cores as the row says of its CPU, of which it may rent a part."""
    told = _CORES.search(row.cpu)
    return machine if told is None else replace(machine, cpu_cores=int(told[1]))


def _memory(row: FieldRow, cpu: Part | None, notes: list[str], *, server: bool) -> Part | None:
    """Memory as fast as the row says, or as its sockets have it; None for what the CPU takes at best."""
    if row.ram_gb_s is not None:
        told = row.ram_gb_s / _sockets(row, cpu)
        nominal = told / estimate("desktop.ram_share").value if _is_measured(row) else told
        return _memory_part(_as_given(nominal, row.ram_gb_s_basis or "as told"))
    if cpu is not None:
        return None
    if server:
        notes.append(f"no CPU is known, but {row.ram_gib:g} GiB: memory of a server is assumed")
        lo, value, hi = SERVER_GB_S
        return _memory_part(Quantity(value, lo, hi, "8 channels of DDR4-3200, as a server has", "nominal", True))
    notes.append("neither CPU nor RAM speed is known: two channels are assumed")
    return None


def _memory_part(bandwidth: Quantity) -> Part:
    return Part(
        f"{bandwidth.value:.4g}GB/s",
        "memory",
        f"RAM of {bandwidth.value:.4g} GB/s",
        bandwidth.source,
        bandwidth.condition,
        numbers={"bandwidth_gb_s": bandwidth},
    )


def _stand_in(row: FieldRow, cpu: Part | None, notes: list[str], ram_gib: float, *, computes: bool) -> Part | None:
    """The CPU; one like it if nothing else computes and the name is not known."""
    if cpu is not None or not computes:
        return cpu
    if not row.cpu or "silicon" in row.cpu.lower():
        raise UnknownName(f"{row.where}: names no GPU, CPU or chip that is known; `sim machine parts` lists all")
    stand_in = catalogue()["epyc-7763" if ram_gib >= SERVER_RAM_GIB else "ryzen-5950x"]
    notes.append(f"unknown CPU {shown(row.cpu)}: {stand_in.name} stands for it")
    return stand_in


def outside(row: FieldRow) -> bool:
    """Whether the card is beside the computer."""
    return "eGPU" in f"{row.flags} {row.notes}"


def _link(row: FieldRow) -> Part | None:
    """The link that the text names, which may say the generation, the lanes or both; an outside one if it says that."""
    generation, lanes = "", ""
    for clause in re.split(r"[;,]", row.pcie):
        if "nvme" in clause.lower():
            continue
        for match in _LINK.finditer(clause.strip()):
            generation, lanes = generation or match[1] or "", lanes or match[2] or match[3] or ""
    if not (generation or lanes) and outside(row):
        return catalogue()[OUTSIDE]
    return catalogue().get(f"pcie{generation or 5}x{lanes or 16}") if generation or lanes else None


def _storage(row: FieldRow) -> Part | None:
    """The drive that the notes or flags name, if the row has no number for it. A class of drives is none."""
    if row.ssd_gb_s is not None:
        return None
    for text in (row.notes, row.flags):
        words = _WORDS.findall(text)
        for length in (3, 2, 1):
            for start in range(len(words) - length + 1):
                name = " ".join(words[start : start + length])
                drive = named_part(name) if _DRIVE.search(name) else None
                if drive is not None and drive.kind == "storage" and "of the class" not in drive.condition:
                    return drive
    return None


def _ram_gib(row: FieldRow, chip: Part | None, notes: list[str]) -> tuple[float, bool]:
    """GiB of RAM and whether they are known: as the row says, or the only size with which its chip is sold.

    Else the smallest usual size that held the run.
    """
    if row.ram_gib is not None:
        return row.ram_gib, True
    if chip is not None and len(chip.sold_gib) == 1:
        return chip.sold_gib[0], True
    try:
        model = model_of(row)
        file_gib = row.model_file_gib or (model.routed_bytes + (model.dense_bytes or 0)) / GIB
    except BadInput:
        file_gib = 0.0
    holds_all = row.strategy in ALL_IN_RAM or chip is not None
    least = max(LEAST_RAM_GIB, ROOM * file_gib) if holds_all else 2 * LEAST_RAM_GIB
    ram_gib = float(next((size for size in SIZES_GIB if size >= least), SIZES_GIB[-1]))
    notes.append(f"RAM is not told: {ram_gib:g} GiB assumed, half to twice as much")
    return ram_gib, False


def _with_measured_numbers(row: FieldRow, machine: Machine) -> Machine:
    """The machine with what was measured of it in the place of shares of nominal numbers."""
    memory, storage, link = machine.memory, machine.storage, machine.link
    if memory is not None and row.ram_gb_s is not None and _is_measured(row):
        of_one = row.ram_gb_s / machine.sockets
        memory = replace(memory, bandwidth_gb_s=_measured(of_one, row.ram_gb_s_basis))
    if row.ssd_gb_s is not None:
        storage = replace(storage, read_gb_s=_measured(row.ssd_gb_s, "ssd_gb_s of the row"))
    if link is not None and (rate := _link_rate(row)) is not None:
        link = _link_of(link, rate)
    return replace(machine, memory=memory, storage=storage, link=link)


def _link_rate(row: FieldRow) -> float | None:
    """GB/s into the GPU, if the text says them."""
    for clause in row.pcie.split(";"):
        if "nvme" not in clause.lower() and (match := _RATE.search(clause)):
            return float(match[1])
    return None


def _link_of(link: Link, gb_s: float) -> Link:
    pinned = _measured(gb_s, "pcie of the row")
    scale = gb_s / link.pinned_gb_s.value
    pageable = link.pageable_gb_s
    value = min(pageable.value * max(scale, 1.0), gb_s)
    scaled = replace(pageable, value=value, lo=min(pageable.lo, value), hi=min(max(pageable.hi, value), pinned.hi))
    return replace(link, pinned_gb_s=pinned, pageable_gb_s=scaled)


def _with_guessed_ram(machine: Machine) -> Machine:
    memory = machine.memory
    if memory is None:
        return machine
    size = memory.ram_gib.value
    guess = Quantity(size, size / 2, size * 2, "not told: the smallest usual size that holds the run", "a guess", True)
    return replace(machine, memory=replace(memory, ram_gib=guess))


def _is_measured(row: FieldRow) -> bool:
    basis = row.ram_gb_s_basis.lower()
    return basis.startswith(("measured", "told")) and "vendor" not in basis


def _with(part: Part, **numbers: Quantity) -> Part:
    return replace(part, numbers={**part.numbers, **numbers})


def _as_given(value: float, condition: str) -> Quantity:
    return Quantity(value, value, value, FROM_ROW, condition)


def _measured(value: float, condition: str) -> Quantity:
    return Quantity(value, (1 - MEASURED) * value, (1 + MEASURED) * value, FROM_ROW, condition)
