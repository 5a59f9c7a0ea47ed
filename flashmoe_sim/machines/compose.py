"""A machine from parts: their nominal numbers, the share of them that decoding reaches, and estimates of the rest.

Shares and times are medians of the presets, and their intervals include almost all of them.
"""

from __future__ import annotations

import re
from dataclasses import replace

from flashmoe_sim.io.errors import Conflict, Incomplete
from flashmoe_sim.machines.attention import with_attention
from flashmoe_sim.machines.cards import by_memory, factors
from flashmoe_sim.machines.guesses import ram_by_size, with_generation
from flashmoe_sim.machines.machine import WEIGHT_BYTES, Card, Compute, Host, Link, Machine, Memory, Quantity, Storage
from flashmoe_sim.machines.parts import Part, Parts, catalogue
from flashmoe_sim.machines.written import chips_as_sold, parse_parts, with_cards

Range = tuple[float, float, float]  # lo, value, hi

MEASURED = "published speeds, see reports/field"
DESKTOPS, UNIFIED, CPUS = "presets of desktops", "presets with unified memory", "presets whose CPU computes"
GPU_SHARE: Range = (0.45, 0.81, 0.95)
RAM_SHARE: Range = (0.6, 0.76, 0.95)
UNIFIED_RAM_SHARE: Range = (0.75, 1, 1)
CPU_SHARE: Range = (0.3, 0.54, 0.75)
UNIFIED_CPU_SHARE: Range = (0.2, 0.43, 0.8)
COPY_SHARE: Range = (0.12, 0.22, 0.35)
UNIFIED_COPY_SHARE: Range = (0.03, 0.13, 0.3)
LINK_SHARE: Range = (0.6, 0.77, 0.9)
PAGEABLE_RAM_SHARE: Range = (0.14, 0.27, 0.35)
STAGED_GB_S: Range = (6, 18.4, 25)
READ_SHARE: Range = (0.4, 0.71, 0.95)
GPU_LAYER_US: Range = (20, 100, 200)
# Of Intel's cards, with Vulkan as with SYCL: 31 ms for a token of Qwen3.6-35B-A3B Q6_K on an Arc Pro B70, 26 for one of
# IQ4_XS on two, 50 to 55 for one of Qwen3.5-35B-A3B Q8_0 on three A770, see reports/field.
INTEL_GPU_SHARE: Range = (0.12, 0.25, 0.6)
INTEL_LAYER_US: Range = (100, 350, 800)
M2_SHARE: Range = (0.8, 0.9, 0.95)  # specified for the fastest drives, of four lanes
KNEE: Range = (8, 45, 96)
# Arithmetic of a prompt over the specified FP32 rate: dense 4-bit models of 7 and 8 billion weights in llama.cpp.
TENSOR_CORES = 7.0  # compute capability
DATA_CENTERS = ("8.0", "9.0", "10.0", "10.3")  # A100, H100, H200, B200, B300
OPERATIONS: dict[str, tuple[Range, str]] = {
    "tensor": ((1.2, 2.2, 3), "presets rtx-3090 and rtx-4090: 2.7 and 2"),
    "data center": (
        (0.8, 1.6, 5),
        "gpt-oss-120b on an H200: 2,610 tok/s in micro-batches of 512, 6,340 of 2,048",
    ),
    "cuda": ((0.6, 1, 1.3), "ggml-org/llama.cpp, pull request 4766: 935 tok/s on a P40, 7B Q4_0"),
    "other": ((0.5, 0.9, 1.3), "ggml-org/llama.cpp, issue 20934: 4000 to 4400 tok/s on an RX 7900 XTX, 7B Q4_0"),
}

UNKNOWN_READ_GB_S: Range = (0.5, 3, 7)
DRIVER_GIB = 0.8
CLASSES: dict[str, tuple[Range, int]] = {  # microseconds per read, and the reads in flight
    "nvme": ((40, 100, 250), 8),
    "apple": ((50, 150, 400), 8),
    "sata": ((60, 150, 400), 4),
    "usb": ((80, 250, 600), 4),
    "phone": ((150, 580, 700), 4),
    "hdd": ((4000, 12000, 20000), 1),
}
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
        for kind in ("gpu", "cpu", "memory", "link"):
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
        raise Incomplete(f"{names}: no size of RAM for bank and page cache; add it, such as 64GiB")
    ram_gib = _exactly(parts.ram_gib, "the size that was given", "as given", estimated=False)
    machine = _discrete(parts, ram_gib) if chip is None else _unified(chip, parts, ram_gib)
    machine = replace(
        machine, os=system_of(names, chip.os if chip else "", parts.os), name=names, title=", ".join(parts.titles)
    )
    if (computes := chip or cpu) is not None:
        machine = replace(machine, cpu_features=computes.features, cpu_cores=computes.cores)
    if (graphics := chip or gpu) is not None:
        machine = replace(machine, gpu_maker=graphics.maker, gpu_compute=graphics.compute, api=graphics.api)
    if parts.unlike:
        machine = _with_unlike(machine, parts)
    return with_attention(replace(machine, gpus=len(parts.cards) or 1))


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
        f"{names}: each has {DRIVER_GIB} GiB less for the driver",
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
    nominal, macs, numbers = chip.numbers["bandwidth_gb_s"], "presets of Macs", chip.numbers
    if chip.system == "macos":
        taken = 4 + ram_gib.value / 20
        reserve = _estimate((taken / 2, taken, 1.6 * taken), f"{macs}: 4 GiB and a twentieth of RAM", "desktop in use")
        gpu_share = 2 / 3 if ram_gib.value <= 32 else 3 / 4
        gpu_source = f"{100 * gpu_share:.0f}% of RAM ({macs})"
    else:
        reserve = _estimate((3, 6, 10), "presets strix-halo-128 and gb10-128", "Linux")
        gpu_share = 0.93
        gpu_source = "93% of RAM (presets strix-halo-128 and gb10-128)"
    layer = _estimate((90, 200, 450), f"median of the {macs}", "mixture-of-experts layers, all resident")
    knee = _estimate((5, 11, 20), f"median of the {macs} before M5", "prompt speed over decode speed")
    of_cpu = _scaled(nominal, UNIFIED_CPU_SHARE, UNIFIED, "4-bit weights, all cores")
    call = _estimate((100, 190, 310), macs, "the GPU waits for the host at every routed call")
    return Machine(
        name="",
        title="",
        unified=True,
        memory=Memory(
            ram_gib=ram_gib,
            bandwidth_gb_s=_scaled(nominal, UNIFIED_RAM_SHARE, UNIFIED, "nominal; sustained reads reach 75 to 95%"),
            copy_gb_s=_scaled(nominal, UNIFIED_COPY_SHARE, UNIFIED, "page cache to buffer"),
            reserve_gib=_reserve(reserve, ram_gib),
        ),
        storage=_storage(parts),
        gpu=Compute(
            memory_gib=_exactly(_rounded(ram_gib.value * gpu_share), gpu_source, "unified memory"),
            weights_gb_s=_scaled(nominal, GPU_SHARE, "presets with a GPU", "4-bit weights, one token at a time"),
            layer_us=numbers.get("layer_us", layer),
            knee_tokens=numbers.get("knee_tokens", knee),
        ),
        cpu=Compute(
            weights_gb_s=numbers.get("cpu_gb_s", of_cpu),
            layer_us=_estimate((30, 60, 150), UNIFIED, "llama.cpp on the CPU"),
            knee_tokens=_estimate((2.5, 6, 10), UNIFIED, "4-bit weights"),
        ),
        host=Host(
            call_us=numbers.get("call_us", call),
            install_us=_estimate((0.5, 1, 4), UNIFIED, "patched runtime"),
        ),
    )


def _discrete(parts: Parts, ram_gib: Quantity) -> Machine:
    """A machine whose CPU and GPU, if there is one, have separate memories."""
    gpu, cpu = parts.by_kind.get("gpu"), parts.by_kind.get("cpu")
    nominal = _nominal_ram(parts)
    delivered = _scaled(nominal, RAM_SHARE, DESKTOPS, "read by all cores")
    weights = _scaled(nominal, CPU_SHARE, DESKTOPS, "4-bit weights, as many threads as cores")
    soldered = cpu is not None and not cpu.memory.startswith("ddr")
    unnamed = not soldered and "memory" not in parts.by_kind and not parts.generation
    memory = Memory(
        ram_gib=ram_gib,
        bandwidth_gb_s=replace(delivered, guessed=unnamed),
        copy_gb_s=_scaled(delivered, COPY_SHARE, DESKTOPS, "page cache to buffer, 8 threads"),
        reserve_gib=_reserve(_estimate((3, 5, 8), DESKTOPS, "desktop in use"), ram_gib),
    )
    if gpu is None:
        layer = _estimate((50, 250, 1300), f"between the {DESKTOPS}, 80, and laptop-ddr4, 600", "llama.cpp on the CPU")
        host = Host(_estimate((2, 20, 40), CPUS, "one routed call"), _estimate((1, 20, 48), CPUS, "one expert"))
    else:
        layer = _estimate((30, 80, 250), DESKTOPS, "llama.cpp on the CPU")
        host = Host(_estimate((35, 65, 130), DESKTOPS, "CUDA hot cache"), _estimate((1, 2, 4), DESKTOPS, "one expert"))
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
            layer_us=layer,
            knee_tokens=_estimate((2, 4, 10), DESKTOPS, "4-bit weights"),
        ),
        host=host,
    )


def _gpu(gpu: Part, cards: int) -> Compute:
    """All cards as one: they hold consecutive layers, so one card computes at a time."""
    size, nominal = gpu.numbers["memory_gib"], gpu.numbers["bandwidth_gb_s"]
    of_a_card = f"{size.value:g} ({size.source}) less {DRIVER_GIB} for the driver"
    share, share_of = (INTEL_GPU_SHARE, MEASURED) if gpu.maker == "intel" else (GPU_SHARE, "presets with a GPU")
    layer_us = INTEL_LAYER_US if gpu.maker == "intel" else GPU_LAYER_US
    return Compute(
        memory_gib=_exactly(
            _rounded(cards * (size.value - DRIVER_GIB)),
            of_a_card if cards == 1 else f"{cards} cards: each {of_a_card}",
            "no display" if cards == 1 else "no display; the layers are split evenly",
        ),
        weights_gb_s=_scaled(nominal, share, share_of, "4-bit weights, one token at a time"),
        layer_us=_estimate(layer_us, MEASURED, "mixture-of-experts layers"),
        knee_tokens=_knee(gpu, share[1]),
    )


def _knee(gpu: Part, reached: float) -> Quantity:
    """From which batch on arithmetic takes longer than reading weights, by the card's FP32 rate if it is known.

    reached: of the nominal bandwidth, what reading weights reaches.
    """
    condition, nominal = "prompt speed over decode speed of a dense 4-bit model", gpu.numbers["bandwidth_gb_s"].value
    if (rate := gpu.numbers.get("fp32_tflops")) is None:
        return _estimate(KNEE, f"median of the {DESKTOPS}", condition)
    kind = "other"
    if gpu.compute:
        tensor = "data center" if gpu.compute in DATA_CENTERS else "tensor"
        kind = tensor if float(gpu.compute) >= TENSOR_CORES and "GTX" not in gpu.title else "cuda"
    shares, cases = OPERATIONS[kind]
    lo, value, hi = (share * rate.value * 1e3 * WEIGHT_BYTES / 2 / (reached * nominal) for share in shares)
    return _estimate((lo, value, hi), f"{shares[1]:g} times {rate.value:g} TFLOPS ({cases}); {rate.source}", condition)


def _nominal_ram(parts: Parts) -> Quantity:
    memory, cpu = parts.by_kind.get("memory"), parts.by_kind.get("cpu")
    if memory is not None:
        return memory.numbers["bandwidth_gb_s"]
    if cpu is not None:
        best = with_generation(cpu, parts.generation)
        return replace(
            best.numbers["bandwidth_gb_s"],
            lo=0.6 * best.numbers["bandwidth_gb_s"].value,
            source=f"no memory given: {best.name}, the fastest of {cpu.name} ({cpu.source}), or slower",
        )
    return ram_by_size(parts.ram_gib or 0, parts.generation, parts.by_kind.get("gpu"))


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
    pinned = link.numbers.get("pinned_gb_s") or _scaled(link.numbers["gb_s"], LINK_SHARE, DESKTOPS, "pinned RAM")
    if given is None:
        source = f"no link given: {link.name}, the best that the other parts have; {pinned.source}"
        pinned = replace(pinned, lo=_rounded(0.45 * pinned.value), source=source, estimated=True)
    pinned = _slower(pinned, delivered)
    staged = _scaled(delivered, PAGEABLE_RAM_SHARE, DESKTOPS, "RAM not pinned")
    return Link(
        pinned_gb_s=pinned,
        # The driver copies one piece to a pinned buffer, in one thread, while the link sends the piece before.
        pageable_gb_s=_slower(pinned, _slower(staged, _estimate(STAGED_GB_S, "preset rtx-4090 at most", "one thread"))),
        request_us=_estimate((3, 10, 30), DESKTOPS, "a copy of one expert"),
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
        sold = _scaled(drive.numbers["read_gb_s"], READ_SHARE, "drives that were measured", "reads of megabytes")
        read = drive.numbers.get("delivered_gb_s", sold)
        cpu = parts.by_kind.get("cpu")
        if class_ == "nvme" and cpu is not None and (pcie := _PCIE.fullmatch(cpu.pcie)):
            lanes = catalogue()[f"pcie{pcie[1]}x4"]
            most = _scaled(lanes.numbers["gb_s"], M2_SHARE, f"{lanes.title} of {cpu.name}", "reads of megabytes")
            read = _slower(read, most)
    elif chip is not None and "ssd_gb_s" in chip.numbers:
        read, class_ = chip.numbers["ssd_gb_s"], "apple"
    else:
        read = _estimate(UNKNOWN_READ_GB_S, "no storage given: any SSD from SATA to PCIe 4.0", "not known")
        read = replace(read, guessed=True)
    request_us, in_flight = CLASSES[class_]
    return Storage(
        read_gb_s=read,
        request_us=_estimate(request_us, f"what storage of the class {class_} takes", "reads of megabytes"),
        lanes=_exactly(
            in_flight, f"a choice for storage of the class {class_}", "reads of whole experts", estimated=False
        ),
    )


def _reserve(reserve: Quantity, ram_gib: Quantity) -> Quantity:
    """The reserve, at most half of RAM: small machines run small systems."""
    return _slower(reserve, _exactly(ram_gib.value / 2, f"{reserve.source}; at most half of RAM", reserve.condition))


def _estimate(range_: Range, source: str, condition: str) -> Quantity:
    lo, value, hi = map(_rounded, range_)
    return Quantity(value, lo, hi, source, condition, True)


def _exactly(value: float, source: str, condition: str, *, estimated: bool = True) -> Quantity:
    return Quantity(value, value, value, source, condition, estimated)


def _scaled(quantity: Quantity, share: Range, rule: str, condition: str) -> Quantity:
    """A share of a quantity; both intervals are combined. rule: the cases of which the share is the median."""
    lo, value, hi = share
    source = f"{100 * value:.3g}% of {quantity.value:.4g} ({rule}); {quantity.source}"
    return _estimate((quantity.lo * lo, quantity.value * value, quantity.hi * hi), source, condition)


def _slower(one: Quantity, other: Quantity) -> Quantity:
    """The quantity with the lower value, with an interval no higher than the other's."""
    least, most = sorted((one, other), key=lambda quantity: quantity.value)
    return replace(least, lo=min(least.lo, most.lo), hi=max(least.value, min(least.hi, most.hi)))


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
