"""From what a computer says of itself to its parts, each field with where it was seen or what its absence means."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.compose import compose, compose_parts
from flashmoe_sim.machines.here.by_system import cpus, memory_limit_bytes, memory_used_bytes, parse_mac
from flashmoe_sim.machines.here.drives import drive_of
from flashmoe_sim.machines.here.gpus import Found, SeenGpu, gpus_of
from flashmoe_sim.machines.here.modules import Ram, modules_in, of_dmidecode, of_smbios, of_udev, processors_of, ram_of
from flashmoe_sim.machines.here.texts import Seen, text_of, trouble_of
from flashmoe_sim.machines.machine import Machine, Quantity
from flashmoe_sim.machines.parts import Part, catalogue, integrated
from flashmoe_sim.machines.sockets import link_between
from flashmoe_sim.machines.unnamed_memory import ram_by_size
from flashmoe_sim.machines.written import named_part, parse_parts, reported_part

USUAL = ((64, 4), (256, 16), (1000, 32), (math.inf, 64))  # up to so many GiB, RAM is sold in steps of so many
ANY_GIB = 8.0  # where not even the size can be seen
FEW_CORES = 0.75  # of a processor's: with fewer a virtual machine has but a share of its RAM's speed
_FLAGS = {"avx2": "avx2", "avx512f": "avx512", "amx_tile": "amx", "asimd": "neon"}
_VIRTUAL = re.compile(r"kvm|virtual|vmware|qemu|xen|bochs|amazon ec2|google compute|openstack|droplet", re.IGNORECASE)
_EDITION = re.compile(r" ?\b(?:engineering reference|developer kit|super|model \w\+?|rev [\d.]+)", re.IGNORECASE)
_ARM = {"0xd0b": "Cortex-A76", "0xd0c": "Neoverse N1", "0xd40": "Neoverse V1", "0xd4f": "Neoverse V2"}


@dataclass(frozen=True)
class Field:
    """One thing that was looked for. value: what was found, or nothing. source: where. effect: on the answer.

    alarm: whether the answer may be for less than the computer has.
    """

    name: str
    value: str
    source: str = ""
    effect: str = ""
    alarm: bool = False


@dataclass(frozen=True)
class Here:
    """This machine: how to write it, what it is, and how each part of that is known.

    wired: a Mac's limit of memory for the GPU, where one was set.
    """

    spelling: str
    machine: Machine
    fields: tuple[Field, ...]
    wired: Quantity | None = None

    def with_parts(self, added: str) -> Machine:
        """This machine with these parts instead of those of the same kind; what was seen beside parts stays."""
        parts, new = parse_parts(self.spelling), parse_parts(added)
        made = compose_parts(parts.with_parts(new))
        if "cpu" not in new.by_kind and "chip" not in new.by_kind:
            made = replace(made, cpu_features=self.machine.cpu_features, cpu_cores=self.machine.cpu_cores)
        made = replace(made, unseen=_unseen(self.fields, given=[kind.upper() for kind in new.by_kind]))
        return made if self.wired is None else made.with_quantity("gpu.memory_gib", self.wired)


@dataclass(frozen=True)
class _Cpu:
    """cores: physical ones of all sockets, 0 if unknown; usable: logical ones that this process may use.

    virtual: what it is that hides the computer, or empty.
    """

    name: str
    source: str
    part: Part | None
    cores: int = 0
    logical: int = 0
    usable: int = 0
    sockets: int = 1
    features: tuple[str, ...] | None = None
    virtual: str = ""


@dataclass
class _Draft:
    """What is put together: the parts as they are written, and what is said of each."""

    words: list[str] = field(default_factory=list)
    fields: list[Field] = field(default_factory=list)

    def say(self, name: str, value: str, source: str = "", effect: str = "", *, alarm: bool = False) -> None:
        self.fields.append(Field(name, value, source, effect, alarm))


def this_machine(seen: Seen) -> Here:
    """The machine that was seen; what cannot be seen is a guess that is told."""
    system = text_of(seen, "system").partition(" ")[0]
    draft = _Draft()
    if system == "Darwin":
        return _mac(seen, draft)
    wsl = "microsoft" in text_of(seen, "/proc/version").lower()
    cpu, contained = _processor(seen, wsl=wsl), bool(text_of(seen, "container").strip())
    gpus = gpus_of(seen, cpu.name, contained=contained)
    board = named_part(cpu.name)
    cards = _cards(gpus, draft, within=board is not None and board.kind == "chip")
    chip = _chip(gpus, cards, draft, cpu)
    usable_gib, limit_gib, source = _ram(seen)
    source_of, modules = modules_in(_modules(seen))
    ram = ram_of(modules, cpu.part, cpu.sockets)
    if not usable_gib and limit_gib is None:
        usable_gib, source = ANY_GIB, ""
    exact = bool(cpu.virtual) or (limit_gib is not None and limit_gib < (usable_gib or math.inf))
    lent = sum(gpu.memory_gib or 0 for gpu in gpus.gpus if gpu.own is False)
    installed = _installed(min(usable_gib or math.inf, limit_gib or math.inf), ram.size_gib, lent, exact=exact)
    shared = _whole(cpu, draft, chip, contained=contained)
    if chip is None or (integrated(chip) and cpu.part is not None):
        named = cpu.part is not None and not shared and (cpu.sockets == 1 or _stands_twice(cpu))
        times = f"{cpu.sockets}x " if named and cpu.sockets > 1 else ""
        draft.words.append(f"{times}{cpu.part.name}" if named and cpu.part is not None else "other-cpu")
    _say_memory(draft, _Known(chip, cpu, ram, source_of, installed), shared=shared, seen=seen)
    _say_link(draft, cards)
    _say_drive(draft, seen)
    _say_ram(draft, seen, installed, (usable_gib, limit_gib, source), lent)
    os = "windows" if system == "Windows" else "linux"
    draft.words.append(os)
    draft.say("OS", _os(seen, os, wsl=wsl), "the system", "WSL: speeds are those of Linux" if wsl else "")
    return _put_together(draft, cpu)


@dataclass(frozen=True)
class _Known:
    """What decides the memory's speed."""

    chip: Part | None
    cpu: _Cpu
    ram: Ram
    source: str
    installed_gib: float


def _put_together(draft: _Draft, cpu: _Cpu | None = None, wired_gib: float | None = None) -> Here:
    """The machine of the words, without those that do not go with the others."""
    words, machine = draft.words, None
    while machine is None:
        try:
            machine = compose(" + ".join(words))
        except BadInput as error:
            kept = [
                word
                for word in words
                if (part := named_part(word)) is None or part.kind not in ("memory", "link", "storage")
            ]
            if kept == words:
                raise
            draft.say("together", "", "", f"{error}; left out", alarm=True)
            words = kept
    if cpu is not None and cpu.features is not None:
        machine = replace(machine, cpu_features=cpu.features)
    if cpu is not None and cpu.usable and (not machine.cpu_cores or cpu.usable < machine.cpu_cores):
        machine = replace(machine, cpu_cores=min(cpu.usable, cpu.cores or cpu.usable))
    limit = None
    if wired_gib is not None:
        limit = Quantity(wired_gib, wired_gib, wired_gib, "sysctl iogpu.wired_limit_mb", "as it is set now")
        machine = machine.with_quantity("gpu.memory_gib", limit)
    machine = replace(machine, unseen=_unseen(draft.fields))
    return Here(machine.name, machine, tuple(draft.fields), limit)


def _unseen(fields: Sequence[Field], *, given: Sequence[str] = ()) -> tuple[str, ...]:
    """What an answer is without. given: names of fields whose part the user gave."""
    return tuple(f"{one.name}: {one.effect}" for one in fields if one.alarm and one.name not in given)


def _processor(seen: Seen, *, wsl: bool) -> _Cpu:
    """The processor of a Linux or Windows computer."""
    if text_of(seen, "registry"):
        return _of_registry(seen)
    blocks = [dict(_lines(block)) for block in text_of(seen, "/proc/cpuinfo").strip().split("\n\n")]
    first = blocks[0] if blocks else {}
    board = _EDITION.sub("", text_of(seen, "/proc/device-tree/model").strip("\0\n ")).strip()
    name, source = first.get("model name", ""), "/proc/cpuinfo"
    if not name:
        arm = _ARM.get(next((block["CPU part"] for block in blocks if "CPU part" in block), ""), "")
        name, source = (board, "/proc/device-tree/model") if board else (f"Arm {arm}".strip(), source)
    flags = set(first.get("flags", first.get("Features", "")).split())
    pairs = {(block.get("physical id", ""), block["core id"]) for block in blocks if "core id" in block}
    product = text_of(seen, "/sys/class/dmi/id/product_name").strip()
    maker = text_of(seen, "/sys/class/dmi/id/sys_vendor").strip()
    virtual = "WSL" if wsl else f"a virtual machine ({product})" if _VIRTUAL.search(f"{maker} {product}") else ""
    virtual = virtual or ("a virtual machine" if "hypervisor" in flags else "")
    logical = sum("processor" in block for block in blocks)
    usable = min(
        [number for number in (logical, _number(text_of(seen, "affinity")), cpus(text_of(seen, "cgroup"))) if number],
        default=0,
    )
    part = reported_part(name, "cpu") or (reported_part(board, "cpu") if board else None)
    return _Cpu(
        name or "a processor without a name",
        source,
        part,
        len(pairs) or logical,
        logical,
        usable,
        1 if virtual else max(1, len({package for package, _ in pairs})),
        tuple(feature for flag, feature in _FLAGS.items() if flag in flags) if flags else None,
        virtual,
    )


def _of_registry(seen: Seen) -> _Cpu:
    """By Windows' registry and system calls, as `cpu: NAME` and `features: avx2`, and the firmware's table."""
    says = dict(_lines(text_of(seen, "registry")))
    name = says.get("cpu", "")
    product = says.get("product", "")
    features = tuple(says["features"].split()) if "features" in says else None
    sockets, cores = processors_of(_smbios(seen))
    return _Cpu(
        name or "a processor without a name",
        "the registry",
        reported_part(name, "cpu"),
        cores,
        _number(says.get("logical", "")),
        _number(says.get("logical", "")),
        max(1, sockets),
        features,
        f"a virtual machine ({product})" if _VIRTUAL.search(product) else "",
    )


def _whole(cpu: _Cpu, draft: _Draft, chip: Part | None, *, contained: bool) -> bool:
    """Say which processor it is, and whether this is a share of it whose part of the RAM's speed is unknown.

    chip: which has this processor, if it is of a chip.
    """
    part, cores = cpu.part, f", {cpu.cores} cores" if cpu.cores else ""
    sockets = f", {cpu.sockets} sockets" if cpu.sockets > 1 else ""
    features = f", {' '.join(cpu.features)}" if cpu.features else ""
    effect, cores_seen = "", cpu.cores or cpu.logical
    shared = bool(cpu.virtual) and part is not None and part.cores > 0 and cores_seen < FEW_CORES * part.cores
    if shared:
        assert part is not None
        effect = f"{cpu.virtual} with {cores_seen} of its {part.cores} cores: its share of the RAM's speed is not known"
    elif part is None and chip is None:
        why = f"{cpu.virtual} hides its model" if cpu.virtual else "is not in `sim machine parts`"
        effect = f"{why}: taken as any processor, at the speed that RAM of this size may have"
    elif cpu.sockets > 1 and not _stands_twice(cpu):
        effect = f"{cpu.sockets} sockets of it are not modelled: taken as any processor"
    if cpu.usable and cpu.usable < cpu.logical:
        where = "this container" if contained else "this process"
        said = f"{where} may use {cpu.usable} of {cpu.logical} logical cores, which may not reach the RAM's speed"
        effect = f"{effect}; {said}" if effect else said
    few = 0 < cpu.usable < cpu.logical
    draft.say("CPU", f"{cpu.name}{cores}{sockets}{features}", cpu.source, effect, alarm=few)
    return shared


def _stands_twice(cpu: _Cpu) -> bool:
    return cpu.part is not None and cpu.sockets == 2 and link_between(cpu.part) is not None


def _cards(found: Found, draft: _Draft, *, within: bool) -> list[SeenGpu]:
    """The cards that are counted, each of one maker; and what is said of all.

    within: whether the processor's name is that of a chip with a GPU.
    """
    cards = [gpu for gpu in found.gpus if gpu.part is not None and gpu.part.kind == "gpu" and "MIG" not in gpu.trouble]
    by_maker: Counter[str] = Counter()
    for gpu in cards:
        by_maker[gpu.maker] += round(gpu.part.numbers["memory_gib"].value if gpu.part else 0)
    maker = by_maker.most_common(1)[0][0] if by_maker else ""
    counted = [gpu for gpu in cards if gpu.maker == maker]
    for gpu in found.gpus:
        if gpu.part is not None and gpu.part.kind == "chip":
            continue
        if gpu.part is None and gpu.memory_gib is None and within:  # `Orin (nvgpu)`
            continue
        memory = f", {gpu.memory_gib:.1f} GiB" if gpu.memory_gib else ""
        alarm = bool(gpu.trouble) or (gpu not in counted and gpu.own is not False)
        draft.say("GPU", f"{gpu.name}{memory}", gpu.source, _effect(gpu, counted, maker), alarm=alarm)
    if found.warning:
        draft.say("GPU", "", "", f"nvidia-smi warns: {found.warning}", alarm=True)
    if found.trouble:
        draft.say("GPU", "", "", f"{found.trouble}; the answer is without it", alarm=True)
    for name, number in Counter(gpu.part.name for gpu in counted if gpu.part).items():
        draft.words.append(f"{number}x {name}" if number > 1 else name)
    return counted


def _effect(gpu: SeenGpu, counted: Sequence[SeenGpu], maker: str) -> str:
    """What a GPU that is not counted as it is means for the answer."""
    if gpu in counted:
        return f"{gpu.trouble}; it is counted, and computes once that is mended" if gpu.trouble else ""
    if gpu.trouble:
        return f"{gpu.trouble}; the answer is without it"
    if gpu.part is not None:
        return f"beside cards of {maker} it is not modelled; the answer is without it"
    if gpu.own is False and counted:
        return "within the processor; not counted beside a card"
    if gpu.own is False:
        return "within the processor; not counted: it computes no faster than the CPU, or is not known"
    return "not in `sim machine parts`; the answer is without it. A machine's file can have its numbers"


def _chip(found: Found, cards: Sequence[SeenGpu], draft: _Draft, cpu: _Cpu) -> Part | None:
    """The chip whose GPU is within the processor, if it is what computes."""
    chips = [gpu for gpu in found.gpus if gpu.part is not None and gpu.part.kind == "chip"]
    if not chips:
        board = named_part(cpu.name)
        if cards or board is None or board.kind != "chip":
            return None
        chips = [SeenGpu(cpu.name, cpu.source, board.maker, board, own=False)]
    gpu = chips[0]
    if cards:
        draft.say("GPU", gpu.name, gpu.source, "within the processor; not counted beside a card")
        return None
    draft.say("GPU", f"{gpu.name}, which shares the RAM", gpu.source)
    assert gpu.part is not None
    draft.words.append(gpu.part.name)
    return gpu.part


def _modules(seen: Seen) -> Iterator[tuple[str, list[Any]]]:
    yield "DMI (dmidecode)", of_dmidecode(text_of(seen, "dmidecode"))
    yield "DMI (udev)", of_udev(text_of(seen, "/run/udev/data/+dmi:id"))
    yield "the firmware (SMBIOS)", of_smbios(_smbios(seen))


def _smbios(seen: Seen) -> bytes:
    with suppress(ValueError):
        return bytes.fromhex(text_of(seen, "smbios"))
    return b""


def _say_memory(draft: _Draft, known: _Known, *, shared: bool, seen: Seen) -> None:
    """The kind, speed and channels of the RAM, or what is taken instead."""
    chip, ram = known.chip, known.ram
    if chip is not None and not integrated(chip):
        rate = chip.numbers["bandwidth_gb_s"].value
        draft.say("memory", f"{chip.title}'s own, {rate:g} GB/s nominal", "the catalogue of parts")
        return
    if ram.part is not None and not shared and not known.cpu.virtual:
        draft.words.append(ram.part.name)
        draft.say("memory", ram.part.title, f"{known.source}, {ram.how}")
        return
    why = trouble_of(seen, "dmidecode") or "no DMI that may be read"
    if known.source:
        why = f"{known.source} does not give {ram.unknown or 'what this machine has of it'}"
    if known.cpu.virtual:
        why = f"{known.cpu.virtual} hides it"
    part = None if shared or known.cpu.sockets > 2 else known.cpu.part
    if chip is not None:
        nominal = chip.numbers["bandwidth_gb_s"]
        taken, give = f"{nominal.lo:.3g} to {nominal.hi:.3g} GB/s", "ddr5-5600x2"
    elif part is not None and part.memory:
        taken, give = f"{part.memory}, the fastest of {part.name}, or slower", part.memory
    else:
        guess = ram_by_size(known.installed_gib, "")
        taken, give = f"{guess.lo:.3g} to {guess.hi:.3g} GB/s by the size of the RAM", "ddr4-3200x2"
    effect = f'kind, speed and channels unknown ({why}): taken as {taken}; give --machine "this + {give}", or measure'
    draft.say("memory", "", "", f"{effect} with `sim machine probe`")


def _say_link(draft: _Draft, cards: Sequence[SeenGpu]) -> None:
    if not cards:
        return
    known = [gpu for gpu in cards if gpu.link in catalogue()]
    if not known:
        draft.say(
            "link", "", "", 'lanes of the GPU unknown: taken as its widest, or half; give --machine "this + pcie4x16"'
        )
        return
    slowest = min(known, key=lambda gpu: catalogue()[gpu.link].numbers["gb_s"].value)
    draft.words.append(slowest.link)
    title = catalogue()[slowest.link].title
    uses = f", of {slowest.wide} lanes that it could use" if slowest.wide else ""
    of = f", the slowest of {len(cards)} cards" if len({gpu.link for gpu in known}) > 1 else ""
    draft.say("link", f"{title}{uses}{of}", slowest.source)


def _say_drive(draft: _Draft, seen: Seen) -> None:
    drive = drive_of(seen)
    if drive.part is not None:
        draft.words.append(drive.part.name)
    draft.say("drive", drive.said, drive.source, drive.effect)


def _say_ram(draft: _Draft, seen: Seen, installed: float, ram: tuple[float, float | None, str], lent: float) -> None:
    usable, limit, source = ram
    draft.words.append(f"{installed:g}GiB")
    effect, limited = "", limit is not None and limit < (usable or math.inf)
    if limited:
        of = f"the computer has {usable:.1f} GiB" if usable else "of the computer's"
        source, effect = "the control group's limit", f"{of}; a program that takes more is killed"
    elif lent > 1:
        effect = f"{lent:.1f} GiB of it are set aside for the GPU in the firmware; the system has {usable:.1f}"
    elif installed > usable * 1.005:
        effect = f"{usable:.1f} GiB of it for programs"
    if not source:
        unknown = f'size unknown: taken as {installed:g} GiB; give --machine "this + 64GiB"'
        draft.say("RAM", "", "", unknown, alarm=True)
        return
    draft.say("RAM", f"{installed:g} GiB", source, effect, alarm=limited)
    free = _free(seen, limit)
    if free is not None:
        draft.say("free RAM", f"{free:.1f} GiB now", "/proc/meminfo" if "/proc/meminfo" in seen else "the system")


def _ram(seen: Seen) -> tuple[float, float | None, str]:
    """GiB that the system has, GiB that a control group allows if it limits them, and where the former is from."""
    limit = memory_limit_bytes(text_of(seen, "cgroup"))
    meminfo = dict(_lines(text_of(seen, "/proc/meminfo")))
    if (kib := _number(meminfo.get("MemTotal", ""))) > 0:
        total, source = kib / 2**20, "/proc/meminfo"
    else:
        total, source = _number(dict(_lines(text_of(seen, "registry"))).get("memory", "")) / 2**30, "the system"
    return total, (None if limit is None else limit / 2**30), source


def _free(seen: Seen, limit: float | None) -> float | None:
    kib = _number(dict(_lines(text_of(seen, "/proc/meminfo"))).get("MemAvailable", ""))
    free = kib / 2**20 if kib else _number(dict(_lines(text_of(seen, "registry"))).get("free", "")) / 2**30
    if limit is not None:
        free = min(free, limit - memory_used_bytes(text_of(seen, "cgroup")) / 2**30)
    return max(free, 0.0) if free else None


def _installed(usable: float, of_modules: float, lent: float, *, exact: bool) -> float:
    """RAM as it was sold, of which the system keeps some for itself; in a virtual machine or a limit as it is."""
    if exact:
        return float(f"{usable:.3g}") if usable >= 1 else round(max(usable, 0.01), 2)
    if of_modules >= 0.98 * (usable + lent) and of_modules <= 1.5 * (usable + lent) + 2:
        return of_modules
    step = next(step for most, step in USUAL if usable + lent <= most)
    return float(step * math.ceil((usable + lent) / step)) if usable + lent > 3 else float(math.ceil(usable + lent))


def _os(seen: Seen, os: str, *, wsl: bool) -> str:
    if os == "windows":
        return dict(_lines(text_of(seen, "registry"))).get("windows", "Windows")
    pretty = re.search(r'^PRETTY_NAME="?([^"\n]+)', text_of(seen, "/etc/os-release"), re.MULTILINE)
    return f"{pretty[1] if pretty else 'Linux'}{' in WSL' if wsl else ''}"


def _mac(seen: Seen, draft: _Draft) -> Here:
    """A Mac: its chip, RAM, GPU cores and limit of wired memory."""
    values = dict(_lines(text_of(seen, "sysctl")))
    facts = parse_mac(text_of(seen, "sysctl"), text_of(seen, "system_profiler"))
    name, source = facts.chip, "system_profiler" if text_of(seen, "system_profiler") else "sysctl"
    in_registry = re.search(r'"gpu-core-count" = (\d+)', text_of(seen, "ioreg"))
    cores = facts.gpu_cores or (int(in_registry[1]) if in_registry else 0)
    ram = _number(values.get("hw.memsize", "")) / 2**30
    chip = (named_part(f"{name} {cores}core") if cores else None) or named_part(name)
    if chip is None or chip.kind != "chip":
        return _intel_mac(seen, draft, name, ram)
    draft.words += [chip.name, f"{ram:g}GiB"]
    exact = "" if cores else "number of GPU cores unknown: taken as the variant that is sold with this RAM"
    draft.say("GPU", f"{name}, {cores} GPU cores" if cores else name, source, exact)
    draft.say("CPU", f"{name}, {values.get('hw.physicalcpu', '?')} cores, neon", source)
    draft.say("RAM", f"{ram:g} GiB, shared by CPU and GPU", "sysctl hw.memsize")
    if (free := _free_of_mac(seen)) is not None:
        draft.say("free RAM", f"{free:.1f} GiB now", "vm_stat")
    draft.say(
        "memory", f"{chip.title}'s own, {chip.numbers['bandwidth_gb_s'].value:g} GB/s nominal", "the catalogue of parts"
    )
    wired = (facts.wired_limit_mib or 0) / 1024
    if wired:
        pasted = (
            "the machine as it is written here has macOS's own limit; `sim machine show this --toml` keeps this one"
        )
        draft.say("wired limit", f"{min(wired, ram):.1f} GiB for the GPU", "sysctl iogpu.wired_limit_mb", pasted)
    else:
        draft.say("wired limit", "macOS's own", "sysctl iogpu.wired_limit_mb")
    ssd = chip.numbers["ssd_gb_s"]
    elsewhere = f'taken as {ssd.lo:g} to {ssd.hi:g} GB/s; a model on another drive: give --machine "this + usb-ssd"'
    draft.say("drive", "the Mac's own SSD", "the catalogue of parts", elsewhere)
    draft.say("OS", f"macOS {text_of(seen, 'macos').strip()}".strip(), "the system")
    return _put_together(draft, None, min(wired, ram) if wired else None)


def _intel_mac(seen: Seen, draft: _Draft, name: str, ram: float) -> Here:
    part = reported_part(name, "cpu")
    draft.words += [part.name if part else "other-cpu", f"{ram or 8:g}GiB"]
    draft.say("CPU", name or "a processor without a name", "sysctl", "" if part else "not in `sim machine parts`")
    draft.say("RAM", f"{ram:g} GiB" if ram else "", "sysctl", "" if ram else "size unknown: taken as 8 GiB")
    no_gpu = "a Mac without Apple's chip: its GPU is not modelled; the answer is of the CPU alone"
    draft.say("GPU", "", "", no_gpu, alarm=True)
    draft.say("OS", "macOS", "the system", "on Intel's processors not modelled: the command lines are for Linux")
    return _put_together(draft)


def _free_of_mac(seen: Seen) -> float | None:
    text = text_of(seen, "vm_stat")
    page = re.search(r"page size of (\d+) bytes", text)
    pages = [int(n) for n in re.findall(r"^Pages (?:free|inactive|speculative): +(\d+)", text, re.MULTILINE)]
    return sum(pages) * int(page[1]) / 2**30 if page and pages else None


def _lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, mark, value = line.partition(":")
        if mark:
            yield name.strip(), value.strip()


def _number(text: str) -> int:
    found = re.match(r"\s*(\d+)", text)
    return int(found[1]) if found else 0
