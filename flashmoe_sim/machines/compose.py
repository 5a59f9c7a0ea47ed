"""A machine from parts: their nominal numbers, the share of them that decoding reaches, and estimates of the rest."""

from __future__ import annotations

import re
from dataclasses import replace

from flashmoe_sim.io.errors import Conflict, Incomplete
from flashmoe_sim.machines.attention_rates import with_attention
from flashmoe_sim.machines.cards import by_memory, factors
from flashmoe_sim.machines.estimates import Estimated, estimate, estimates
from flashmoe_sim.machines.machine import WEIGHT_BYTES, Card, Compute, Host, Link, Machine, Memory, Quantity, Storage
from flashmoe_sim.machines.parts import Part, Parts, catalogue, integrated
from flashmoe_sim.machines.sockets import link_between
from flashmoe_sim.machines.unnamed_memory import check_memory, ram_by_size, with_generation
from flashmoe_sim.machines.written import chips_as_sold, parse_parts, with_cards

TENSOR_CORES = 7.0  # compute capability
WITHOUT_TENSOR_CORES = re.compile(r"\bGTX\b|\bT\d{3,4}\b")  # of Turing: GTX 16, T400 to T2000
DATA_CENTERS = ("8.0", "9.0", "10.0", "10.3")  # A100, H100, H200, B200, B300
_PCIE = re.compile(r"pcie(\d)x(\d+)")


def compose(text: str) -> Machine:
    """The machine made of these parts, such as `rtx-3060 + ryzen-5600 + ddr4-3200x2 + 64GiB + nvme-gen4`.

    Raises BadInput for parts that are unknown, contradict each other or do not say enough.
    """
    return compose_parts(parse_parts(text))


def compose_parts(parts: Parts) -> Machine:
    """The machine made of these parts, which come from the catalogue or are copies with other numbers.

    Raises BadInput for parts that contradict each other or do not say enough.
    """
    kinds, names = parts.by_kind, " + ".join(parts.names)
    chip, gpu, cpu = kinds.get("chip"), kinds.get("gpu"), kinds.get("cpu")
    if chip is not None:
        for kind in ("gpu", "link") if integrated(chip) else ("gpu", "cpu", "memory", "link"):
            if kind in kinds:
                raise Conflict(
                    f"{chip.name} and {kinds[kind].name}: a chip with unified memory takes only RAM and "
                    "storage; leave one of the two out"
                )
    elif gpu is None and cpu is None:
        raise Incomplete(f"{names}: nothing computes; add a GPU, a CPU or a chip, such as ryzen-5600")
    elif gpu is None and "link" in kinds:
        raise Incomplete(f"{kinds['link'].name}: a link needs a GPU; add one, or leave the link out")
    if parts.ram_gib is None:
        if chip is not None:
            sold = [name for name, part in chips_as_sold().items() if part == chip]
            raise Incomplete(f"{names}: no size of RAM; it is sold as {', '.join(sold)}")
        raise Incomplete(f"{names}: no size of RAM; add it, such as '{names} + 32GiB'")
    ram_gib = _exactly(parts.ram_gib, "the size that was given", "as given", estimated=False)
    machine = _discrete(parts, ram_gib) if chip is None else _unified(chip, parts, ram_gib)
    machine = replace(
        machine, os=system_of(names, chip.os if chip else "", parts.os), name=names, title=", ".join(parts.titles)
    )
    if (computes := cpu or chip) is not None:
        machine = replace(machine, cpu_features=computes.features, cpu_cores=computes.cores)
    if (graphics := chip or gpu) is not None:
        machine = replace(machine, gpu_maker=graphics.maker, gpu_compute=graphics.compute, api=graphics.api)
    if parts.sockets > 1:
        machine = _with_sockets(machine, parts)
    if parts.unlike:
        machine = _with_unlike(machine, parts)
    return with_attention(replace(machine, gpus=len(parts.cards) or 1))


def _with_sockets(machine: Machine, parts: Parts) -> Machine:
    """The machine with all its sockets instead of one, which its RAM is already of."""
    cpu, memory = parts.by_kind["cpu"], machine.memory
    assert memory is not None
    if (nominal := link_between(cpu)) is None:
        raise Conflict(f"{parts.sockets}x {cpu.name}: {cpu.title} is not known to stand two on a board; give one")
    link = _scaled(nominal, estimate("sockets.link"))
    return replace(machine, sockets=parts.sockets, memory=replace(memory, socket_link_gb_s=link))


def _with_unlike(machine: Machine, parts: Parts) -> Machine:
    """The machine with all its cards instead of the first: their memory together, and their mean rates."""
    cards = tuple(_card(compose_parts(with_cards(parts, [card]))) for card in parts.cards)
    names, shares = ", ".join(card.name for card in cards), by_memory(cards)
    quantities = dict(machine.quantities())
    for path, factor in factors(cards, read=shares, attended=shares, copied=shares).items():
        if (first := quantities.get(path)) is not None:
            lo, value, hi = (_rounded(factor * end) for end in (first.lo, first.value, first.hi))
            source = f"mean of {names} by their memory; of the first: {first.source}"
            machine = machine.with_quantity(path, replace(first, lo=lo, value=value, hi=hi, source=source))
    memory = _exactly(
        _rounded(sum(card.memory_gib for card in cards)),
        f"{names}: each has {estimate('gpu.driver_gib').value} GiB less for the driver",
        "no display; each layer is on one card",
    )
    oldest = min((card.compute for card in parts.cards), key=lambda compute: float(compute or 0))
    return replace(machine.with_quantity("gpu.memory_gib", memory), cards=cards, gpu_compute=oldest)


def _card(alone: Machine) -> Card:
    """The card of a machine that has no other."""
    gpu, link = alone.gpu, alone.link
    assert gpu is not None
    assert gpu.memory_gib is not None
    assert gpu.weights_gb_s is not None
    assert link is not None
    memory_gib, rate = gpu.memory_gib.value, gpu.weights_gb_s.value
    return Card(alone.name.partition(" + ")[0], memory_gib, rate, gpu.knee_tokens.value, link.pinned_gb_s.value)


def system_of(name: str, only: str, given: str) -> str:
    """The operating system that was given, or the only one that there is. name: of the machine, for messages.

    Raises BadInput if this machine does not run what was given.
    """
    if not only and given == "macos":
        raise Conflict(f"{name}: only Apple's chips run macos; give linux or windows, or leave it out")
    if only and given not in ("", only):
        raise Conflict(f"{name}: this chip runs {only}; leave {given} out")
    return only or given


def _unified(chip: Part, parts: Parts, ram_gib: Quantity) -> Machine:
    numbers = chip.numbers
    nominal = parts.by_kind.get("memory", chip).numbers["bandwidth_gb_s"]
    if parts.channels and "memory" not in parts.by_kind:
        lo, value, hi = (end * parts.channels / 2 for end in (nominal.lo, nominal.value, nominal.hi))
        nominal = replace(nominal, lo=lo, value=value, hi=hi)  # of two channels
    if chip.system == "macos":
        fixed_gib, one_in = estimate("unified.mac_reserve.fixed_gib"), estimate("unified.mac_reserve.ram_gib_for_one")
        taken = fixed_gib.value + ram_gib.value / one_in.value
        reserve = _in_a_machine(estimate("unified.mac_reserve.times"), taken)
        gpu_share, gpu_source = 2 / 3 if ram_gib.value <= 32 else 3 / 4, "presets of Macs"
    else:
        reserve = _in_a_machine(estimate("unified.reserve_gib"))
        share = estimate("unified.gpu_memory_share")
        gpu_share, gpu_source = share.value, share.source
    gpu_source = f"{100 * gpu_share:.0f}% of RAM ({gpu_source})"
    if (lent := numbers.get("gpu_share")) is not None:
        gpu_share, gpu_source = lent.value, lent.source
    return Machine(
        name="",
        title="",
        unified=True,
        memory=Memory(
            ram_gib=ram_gib,
            bandwidth_gb_s=_scaled(nominal, estimate("unified.ram_share")),
            copy_gb_s=_scaled(nominal, estimate("unified.copy_share")),
            reserve_gib=_reserve(reserve, ram_gib),
        ),
        storage=_storage(parts),
        gpu=Compute(
            memory_gib=_exactly(_rounded(ram_gib.value * gpu_share), gpu_source, "unified memory"),
            weights_gb_s=_scaled(nominal, estimate("gpu.weights_share", chip.maker)),
            layer_us=numbers.get("layer_us") or _in_a_machine(estimate("unified.gpu_layer_us")),
            knee_tokens=numbers.get("knee_tokens") or _in_a_machine(estimate("unified.gpu_knee_tokens")),
        ),
        cpu=Compute(
            weights_gb_s=numbers.get("cpu_gb_s") or _scaled(nominal, estimate("unified.cpu_share")),
            layer_us=_in_a_machine(estimate("unified.cpu_layer_us")),
            knee_tokens=_in_a_machine(estimate("unified.cpu_knee_tokens")),
        ),
        host=Host(
            call_us=numbers.get("call_us") or _in_a_machine(estimate("unified.call_us")),
            install_us=_in_a_machine(estimate("unified.install_us")),
        ),
    )


def _discrete(parts: Parts, ram_gib: Quantity) -> Machine:
    """A machine whose CPU and GPU, if there is one, have separate memories."""
    gpu, cpu = parts.by_kind.get("gpu"), parts.by_kind.get("cpu")
    nominal = nominal_ram(parts)
    delivered = _scaled(nominal, estimate("desktop.ram_share"))
    weights = _scaled(nominal, estimate("desktop.cpu_share"))
    soldered = cpu is not None and cpu.memory.startswith("lpddr")
    unnamed = not soldered and "memory" not in parts.by_kind and not parts.generation
    memory = Memory(
        ram_gib=ram_gib,
        bandwidth_gb_s=replace(delivered, guessed=unnamed),
        copy_gb_s=_scaled(delivered, estimate("desktop.copy_share")),
        reserve_gib=_reserve(_in_a_machine(estimate("desktop.reserve_gib")), ram_gib),
    )
    of_host = estimates("desktop.without_gpu" if gpu is None else "desktop.with_gpu")
    return Machine(
        name="",
        title="",
        unified=False,
        memory=memory,
        storage=_storage(parts),
        link=None if gpu is None else _link(parts, delivered),
        gpu=None if gpu is None else _gpu(gpu, parts.n_gpus),
        cpu=Compute(
            weights_gb_s=replace(weights, guessed=cpu is None),
            layer_us=_in_a_machine(of_host["cpu_layer_us"]),
            knee_tokens=_in_a_machine(estimate("desktop.cpu_knee_tokens")),
        ),
        host=Host(_in_a_machine(of_host["call_us"]), _in_a_machine(of_host["install_us"])),
    )


def _gpu(gpu: Part, cards: int) -> Compute:
    """All cards as one: they hold consecutive layers, so one card computes at a time."""
    size, nominal = gpu.numbers["memory_gib"], gpu.numbers["bandwidth_gb_s"]
    share, driver_gib = estimate("gpu.weights_share", gpu.maker), estimate("gpu.driver_gib").value
    of_a_card = f"{size.value:g} ({size.source}) less {driver_gib} for the driver"
    return Compute(
        memory_gib=_exactly(
            _rounded(cards * (size.value - driver_gib)),
            of_a_card if cards == 1 else f"{cards} cards: each {of_a_card}",
            "no display" if cards == 1 else "no display; the layers are split evenly",
        ),
        weights_gb_s=_scaled(nominal, share),
        layer_us=_in_a_machine(estimate("gpu.layer_us", gpu.maker)),
        knee_tokens=_knee(gpu, share.value),
    )


def _knee(gpu: Part, reached: float) -> Quantity:
    """From which batch on arithmetic takes longer than reading weights, by the card's FP32 rate if it is known.

    reached: of the nominal bandwidth, what reading weights reaches.
    """
    nominal = gpu.numbers["bandwidth_gb_s"].value
    if (rate := gpu.numbers.get("fp32_tflops")) is None:
        return _in_a_machine(estimate("gpu.knee_tokens"))
    kind = "other"
    if gpu.compute:
        tensor = "data_center" if gpu.compute in DATA_CENTERS else "tensor"
        kind = tensor if float(gpu.compute) >= TENSOR_CORES and not WITHOUT_TENSOR_CORES.search(gpu.title) else "cuda"
    share = estimate("gpu.operations", kind)
    lo, value, hi = (end * rate.value * 1e3 * WEIGHT_BYTES / 2 / (reached * nominal) for end in share.ends)
    source = f"{share.value:g} times {rate.value:g} TFLOPS ({share.source}); {rate.source}"
    return _estimate((lo, value, hi), source, share.condition)


def nominal_ram(parts: Parts) -> Quantity:
    """The rate of RAM by its data sheet, of one socket, in GB/s: of the memory that is named, or a guess."""
    memory, cpu = parts.by_kind.get("memory"), parts.by_kind.get("cpu")
    if memory is not None:
        if cpu is not None and cpu.memory:
            check_memory(cpu, memory)
        return memory.numbers["bandwidth_gb_s"]
    if cpu is not None and cpu.memory:
        best = with_generation(cpu, parts.generation, parts.channels)
        return replace(
            best.numbers["bandwidth_gb_s"],
            lo=estimate("ram.least_share").value * best.numbers["bandwidth_gb_s"].value,
            source=f"no memory given: {best.name}, the fastest of {cpu.name} ({cpu.source}), or slower",
        )
    size_gib = parts.before_gib or parts.ram_gib or 0
    return ram_by_size(size_gib, parts.generation, parts.by_kind.get("gpu"), parts.channels)


def link_of(parts: Parts) -> Part:
    """The link common to the card and the given link, else the CPU's."""
    gpu, given, cpu = (parts.by_kind.get(kind) for kind in ("gpu", "link", "cpu"))
    assert gpu is not None
    link = catalogue()[gpu.pcie]
    if given is not None:
        return _narrower(link, given)
    return _narrower(link, catalogue()[cpu.pcie]) if cpu is not None and cpu.pcie else link


def _link(parts: Parts, delivered: Quantity) -> Link:
    """RAM limits the link's rate."""
    link, given = link_of(parts), parts.by_kind.get("link")
    pinned = link.numbers.get("pinned_gb_s") or _scaled(link.numbers["gb_s"], estimate("desktop.link_share"))
    if given is None:
        source = f"no link given: {link.name}, the best that the other parts have; {pinned.source}"
        least_gb_s = _rounded(estimate("desktop.least_link_share").value * pinned.value)
        pinned = replace(pinned, lo=least_gb_s, source=source, estimated=True)
    pinned = _slower(pinned, delivered)
    staged = _scaled(delivered, estimate("desktop.pageable_share"))
    return Link(
        pinned_gb_s=pinned,
        # The driver copies one piece to a pinned buffer, in one thread, while the link sends the piece before.
        pageable_gb_s=_slower(pinned, _slower(staged, _in_a_machine(estimate("desktop.staged_gb_s")))),
        request_us=_in_a_machine(estimate("desktop.link_request_us")),
    )


def _narrower(one: Part, other: Part) -> Part:
    """The link common to both ends: for PCIe the older generation and the fewer lanes, else the slower one."""
    first, second = _PCIE.fullmatch(one.name), _PCIE.fullmatch(other.name)
    if first and second:
        generation, lanes = (min(int(first[group]), int(second[group])) for group in (1, 2))
        return catalogue()[f"pcie{generation}x{lanes}"]
    return min(one, other, key=lambda part: part.numbers["gb_s"].value)


def _storage(parts: Parts) -> Storage:
    chip, drive = parts.by_kind.get("chip"), parts.by_kind.get("storage")
    class_ = "nvme" if drive is None else drive.class_
    if drive is not None:
        sold = _scaled(drive.numbers["read_gb_s"], estimate("storage.read_share"))
        read = drive.numbers.get("delivered_gb_s", replace(sold, guessed=drive.numbers["read_gb_s"].guessed))
        cpu = parts.by_kind.get("cpu")
        if class_ == "nvme" and cpu is not None and (pcie := _PCIE.fullmatch(cpu.pcie)):
            lanes = catalogue()[f"pcie{pcie[1]}x4"]
            of_lanes = replace(estimate("storage.lanes_share"), cases=f"{lanes.title} of {cpu.name}")
            read = replace(_slower(read, _scaled(lanes.numbers["gb_s"], of_lanes)), guessed=read.guessed)
    elif chip is not None and "ssd_gb_s" in chip.numbers:
        read, class_ = chip.numbers["ssd_gb_s"], "apple"
    else:
        read = replace(_in_a_machine(estimate("storage.unknown_read_gb_s")), guessed=True)
    in_flight = estimate("storage.lanes", class_)
    return Storage(
        read_gb_s=read,
        request_us=_in_a_machine(estimate("storage.request_us", class_)),
        lanes=_exactly(in_flight.value, in_flight.source, in_flight.condition, estimated=False),
    )


def _reserve(reserve: Quantity, ram_gib: Quantity) -> Quantity:
    """The reserve, at most half of RAM: small machines run small systems."""
    return _slower(reserve, _exactly(ram_gib.value / 2, f"{reserve.source}; at most half of RAM", reserve.condition))


def _in_a_machine(found: Estimated, times: float = 1) -> Quantity:
    """A number of the table, as a machine has it, so many times."""
    lo, value, hi = (times * end for end in found.ends)
    return _estimate((lo, value, hi), found.cases or found.source, found.condition)


def _estimate(ends: tuple[float, float, float], source: str, condition: str) -> Quantity:
    lo, value, hi = map(_rounded, ends)
    return Quantity(value, lo, hi, source, condition, True)


def _exactly(value: float, source: str, condition: str, *, estimated: bool = True) -> Quantity:
    return Quantity(value, value, value, source, condition, estimated)


def _scaled(quantity: Quantity, share: Estimated) -> Quantity:
    """A share of a quantity; both intervals are combined."""
    source = f"{100 * share.value:.3g}% of {quantity.value:.4g} ({share.cases or share.source}); {quantity.source}"
    ends = quantity.lo * share.lo, quantity.value * share.value, quantity.hi * share.hi
    return _estimate(ends, source, share.condition)


def _slower(one: Quantity, other: Quantity) -> Quantity:
    """The quantity with the lower value, with an interval no higher than the other's."""
    least, most = sorted((one, other), key=lambda quantity: quantity.value)
    return replace(least, lo=min(least.lo, most.lo), hi=max(least.value, min(least.hi, most.hi)))


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
