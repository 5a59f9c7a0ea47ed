"""Every part says where its numbers are from; parts make a machine, or one line says why not."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from flashmoe_sim.io.errors import (
    BadInput,
    Conflict,
    Incomplete,
    Malformed,
    Missing,
    OutOfRange,
    UnknownName,
    Unsupported,
)
from flashmoe_sim.machines.compose import compose
from flashmoe_sim.machines.estimates import estimates
from flashmoe_sim.machines.keys import SECTIONS
from flashmoe_sim.machines.load import load_machine, parse_machine
from flashmoe_sim.machines.machine import FEATURES
from flashmoe_sim.machines.parts import KINDS, Part, catalogue
from flashmoe_sim.machines.write import toml, write_machine
from flashmoe_sim.machines.written import find_part, parse_parts
from tests.support import refused

EXAMPLE = "rtx-3060 + ryzen-5600 + ddr4-3200x2 + 64GiB + pcie4x16 + nvme-gen4"
PARTS = catalogue().values()
NUMBERS = {
    "gpu": {"memory_gib", "bandwidth_gb_s"},
    "chip": {"bandwidth_gb_s"},
    "cpu": set(),
    "memory": {"bandwidth_gb_s"},
    "link": {"gb_s"},
    "storage": {"read_gb_s"},
}
OPTIONAL = {
    "gpu": {"fp32_tflops"},
    "chip": {"ssd_gb_s", "layer_us", "knee_tokens", "call_us", "cpu_gb_s", "gpu_share"},
    "link": {"pinned_gb_s"},
    "storage": {"delivered_gb_s"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_number_says_where_it_is_from(kind: str) -> None:
    for part in (part for part in PARTS if part.kind == kind):
        assert part.title
        assert len(part.source) >= 8, part.name
        assert len(part.condition) >= 5, part.name
        assert NUMBERS[kind] <= set(part.numbers) <= NUMBERS[kind] | OPTIONAL.get(kind, set()), part.name
        for key, quantity in part.numbers.items():
            assert 0 < quantity.lo <= quantity.value <= quantity.hi, (part.name, key)
            assert len(quantity.source) >= 8, (part.name, key)
            assert len(quantity.condition) >= 5, (part.name, key)
            assert not quantity.estimated or quantity.lo < quantity.hi, (part.name, key)


def test_each_part_names_parts_that_there_are() -> None:
    for part in PARTS:
        assert (part.kind == "cpu" and part.name != "other-cpu") == bool(part.memory)
        assert not part.memory or catalogue()[part.memory].kind == "memory"
        assert part.kind != "gpu" or part.pcie
        assert not part.pcie or catalogue()[part.pcie].kind == "link"
        assert (part.class_ in estimates("storage.lanes")) == (part.kind == "storage")
        assert (part.system in ("macos", "linux")) == (part.kind == "chip")


def test_no_name_means_two_parts() -> None:
    seen: dict[str, str] = {}
    for part in PARTS:
        for way in (part.name, *part.aliases, part.title):
            key = re.sub("[^a-z0-9]", "", way.lower())
            assert seen.setdefault(key, part.name) == part.name
            assert find_part(way) == part


def test_memory_delivers_what_its_name_says() -> None:
    for part in (part for part in PARTS if part.kind == "memory"):
        transfers, channels = part.name.rpartition("-")[2].split("x")
        assert part.numbers["bandwidth_gb_s"].value == pytest.approx(
            int(transfers) * 8 * int(channels) / 1000, rel=1e-3
        )


def test_links_are_as_fast_as_their_lanes() -> None:
    for part in (part for part in PARTS if part.name.startswith("pcie")):
        generation, lanes = map(int, part.name.removeprefix("pcie").split("x"))
        nominal = (
            2 ** (generation - 3) * (128 / 130 if generation > 2 else 1) * lanes
        )  # PCIe 2.0 has 5 GT/s, 8 of 10 bits
        assert part.numbers["gb_s"].value == pytest.approx(nominal, rel=1e-3)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("RTX 3090", "rtx-3090"),
        ("GeForce RTX 3060 12 GB", "rtx-3060"),
        ("3060", "rtx-3060"),
        ("Ryzen 9 7950X", "ryzen-7950x"),
        ("9800x3d", "ryzen-9800x3d"),
        ("i9-14900K", "i9-14900k"),
        ("Ryzen AI Max+ 395", "strix-halo"),
        ("DGX Spark", "gb10"),
        ("Apple M4 Pro", "m4-pro"),
        ("m3_max", "m3-max"),
        ("DDR5-6000", "ddr5-6000x2"),
        ("PCIe 4.0 x16", "pcie4x16"),
        ("Samsung 990 PRO", "990-pro"),
        ("nvme", "nvme"),
    ],
)
def test_people_write_parts_otherwise(written: str, name: str) -> None:
    assert find_part(written).name == name


def test_what_can_be_installed_follows_from_the_parts() -> None:
    for part in PARTS:
        assert bool(part.maker) == (part.kind in ("gpu", "chip") or part.title.startswith(("AMD", "Intel"))), part.name
        assert bool(part.compute) == (part.kind in ("gpu", "chip") and part.maker == "nvidia"), part.name
        assert (part.features is not None) == (part.kind in ("cpu", "chip") and part.name != "other-cpu"), part.name
        assert set(part.features or ()) <= set(FEATURES), part.name
        assert part.cores == 0 or (2 <= part.cores <= 192 and part.kind in ("cpu", "chip")), part.name
    assert sum(part.cores > 0 for part in PARTS) > 700
    one = compose("rtx-4090 + ryzen-7950x + 64GiB")
    assert (one.gpu_maker, one.gpu_compute, one.cpu_features) == ("nvidia", "8.9", ("avx2", "avx512"))
    assert (one.os, compose("rx-7900-xtx + 64GiB").gpu_maker, compose("arc-b580 + 64GiB").gpu_maker) == (
        "",
        "amd",
        "intel",
    )
    alone = compose("xeon-8480 + 256GiB")
    assert (alone.gpu_maker, alone.gpu_compute, alone.cpu_features) == ("", "", ("avx2", "avx512", "amx"))
    assert compose("rtx-4090 + 64GiB").cpu_features is None
    assert [compose(name).cpu_cores for name in ("ryzen-5600 + 64GiB", "m4 + 16GiB", "rtx-4090 + 64GiB")] == [6, 4, 0]
    spark = compose("dgx-spark + 128GiB")
    assert (spark.gpu_maker, spark.gpu_compute, spark.os, spark.cpu_features) == ("nvidia", "12.1", "linux", ("neon",))
    assert (compose("m4 + 16GiB").os, compose("m4 + 16GiB").gpu_maker) == ("macos", "apple")


@pytest.mark.parametrize(
    ("written", "system"), [("windows", "windows"), ("Windows 11", "windows"), ("Ubuntu", "linux"), ("linux", "linux")]
)
def test_an_operating_system_is_one_of_the_parts(written: str, system: str) -> None:
    machine, plain = compose(f"rtx-3060 + {written} + 64GiB"), compose("rtx-3060 + 64GiB")
    assert (machine.os, machine.name) == (system, f"rtx-3060 + 64GiB + {system}")
    assert machine.title == f"{plain.title}, {system.capitalize()}"
    assert compose(machine.name) == machine
    assert replace(machine, os="", name=plain.name, title=plain.title) == plain


def test_parts_come_in_any_order() -> None:
    one = parse_parts("64GB+nvme-gen4+rtx-3060")
    assert one.names == ("rtx-3060", "nvme-gen4", "64GiB")
    assert compose("64GB+nvme-gen4+rtx-3060") == compose("RTX 3060 + 64 GiB RAM + gen4")


def test_the_example_composes(tmp_path: Path) -> None:
    machine = load_machine(EXAMPLE)
    assert machine.name == "rtx-3060 + ryzen-5600 + ddr4-3200x2 + pcie4x16 + nvme-gen4 + 64GiB"
    found = {path: (quantity.value, quantity.estimated) for path, quantity in machine.quantities()}
    assert found["memory.ram_gib"] == (64, False)
    assert found["link.pinned_gb_s"] == (23.9, False)
    assert found["gpu.weights_gb_s"] == (291.6, True)  # 81% of 360
    assert found["memory.bandwidth_gb_s"] == (38.91, True)  # 76% of 51.2
    assert found["storage.read_gb_s"] == (4.97, True)  # 71% of 7
    assert found["gpu.memory_gib"] == (11.2, True)
    write_machine(machine, tmp_path / "mine.toml")
    assert load_machine(tmp_path / "mine.toml") == machine


def _with_what_it_needs(part: Part) -> str:
    if part.kind == "chip":
        return f"{part.name} + 16GiB"
    return f"rtx-3060 + {part.name} + 16GiB" if part.kind in ("memory", "link", "storage") else f"{part.name} + 16GiB"


@pytest.mark.parametrize("kind", KINDS)
def test_every_part_makes_a_machine_that_a_file_can_hold(kind: str, tmp_path: Path) -> None:
    for part in (part for part in PARTS if part.kind == kind):
        machine = compose(_with_what_it_needs(part))
        keys = {f"{section}.{key.name}": key for section, keys in SECTIONS.items() for key in keys}
        for path, quantity in machine.quantities():
            key = keys[path]
            assert key.least <= quantity.lo <= quantity.value <= quantity.hi <= key.most, (part.name, path)
        assert machine.memory.copy_gb_s.value < machine.memory.bandwidth_gb_s.value
        assert (machine.link is None) == (machine.gpu is None or machine.unified)
        if machine.link is not None:
            assert machine.link.pageable_gb_s.value <= machine.link.pinned_gb_s.value
            assert machine.link.pinned_gb_s.value <= machine.memory.bandwidth_gb_s.value
        write_machine(machine, tmp_path / "mine.toml", force=True)
        assert load_machine(tmp_path / "mine.toml") == machine


@pytest.mark.parametrize(
    ("preset", "parts"),
    [
        ("rtx-3060", "rtx-3060 + ryzen-5600 + ddr4-3200x2 + 32GiB + pcie4x16 + nvme-gen3"),
        ("rtx-3090", "rtx-3090 + ryzen-5950x + ddr4-3200x2 + 64GiB + pcie4x16 + nvme-gen4"),
        ("rtx-4090", "rtx-4090 + ryzen-7950x + ddr5-5200x2 + 96GiB + pcie4x16 + 990-pro"),
        ("rtx-5090", "rtx-5090 + ryzen-9950x + ddr5-6000x2 + 96GiB + pcie5x16 + 9100-pro"),
        ("laptop-ddr4", "ryzen-5800h + ddr4-3200x2 + 14.8GiB + nvme-gen3"),
        ("strix-halo-128", "strix-halo + 128GiB + nvme-gen4"),
        ("gb10-128", "gb10 + 121GiB + nvme-gen4"),
        ("m1-8", "m1 + 8GiB"),
        ("m1-pro-32", "m1-pro + 32GiB"),
        ("m1-ultra-128", "m1-ultra + 128GiB"),
        ("m2-16", "m2 + 16GiB"),
        ("m3-16", "m3 + 16GiB"),
        ("m3-pro-36", "m3-pro + 36GiB"),
        ("m3-max-48", "m3-max + 48GiB"),
        ("m4-32", "m4 + 32GiB"),
        ("m4-pro-48", "m4-pro + 48GiB"),
        ("m4-max-128", "m4-max + 128GiB"),
        ("m5-32", "m5 + 32GiB"),
        ("m5-pro-48", "m5-pro + 48GiB"),
        ("m5-max-128", "m5-max + 128GiB"),
    ],
)
def test_presets_are_within_the_intervals_of_their_parts(preset: str, parts: str) -> None:
    """The lanes of presets are what one engine keeps, and a GPU's memory has no interval: what the system allows."""
    composed = dict(compose(parts).quantities())
    known = dict(load_machine(preset).quantities())
    assert set(composed) == set(known)
    for path, quantity in known.items():
        if path == "gpu.memory_gib":
            assert composed[path].value == pytest.approx(quantity.value, rel=0.11)
        elif path != "storage.lanes":
            assert composed[path].lo <= quantity.value <= composed[path].hi, path


def test_what_no_part_says_is_estimated_and_noted() -> None:
    machine = compose("rtx-3060 + 64GiB")
    assert [note.partition(": ")[2] for note in machine.notes] == [
        "gpu.weights_gb_s, the speed of computing, is only an estimate: 291.6 GB/s (162 to 342)",
        "memory.bandwidth_gb_s is a guess: 48.64 GB/s (20.4 to 109.2)",
        "storage.read_gb_s is a guess: 3 GB/s (0.5 to 7)",
    ]
    assert machine.link.pinned_gb_s.estimated
    assert machine.link.pinned_gb_s.source.startswith("no link given: pcie4x16, the best that the other parts have")


@pytest.mark.parametrize(
    ("parts", "pinned"),
    [
        ("rtx-5090 + ryzen-5600", "pcie4x16"),
        ("rtx-5060 + ryzen-5600", "pcie4x8"),
        ("rtx-5090 + ryzen-5600g", "pcie3x16"),
        ("rtx-3060 + ryzen-9950x", "pcie4x16"),
    ],
)
def test_a_link_is_what_card_and_cpu_have_in_common(parts: str, pinned: str) -> None:
    link = compose(f"{parts} + 64GiB").link
    assert f"no link given: {pinned}," in link.pinned_gb_s.source


@pytest.mark.parametrize(
    ("parts", "read_gb_s"),
    [
        ("ryzen-9950x + 9100-pro", 10.5),
        ("ryzen-5600 + 9100-pro", 7.089),  # 90% of PCIe 4.0 x4
        ("i9-9900k + 990-pro", 3.544),
        ("i9-9900k + nvme-gen3", 2.414),  # 71% of 3.4
        ("i9-9900k + sata-ssd", 0.3905),
    ],
)
def test_a_drive_is_no_faster_than_four_lanes_of_the_cpu(parts: str, read_gb_s: float) -> None:
    assert compose(f"{parts} + 64GiB").storage.read_gb_s.value == read_gb_s


def test_a_given_link_is_no_faster_than_the_card() -> None:
    fast, card = (
        compose("rtx-3060 + ddr5-8000x2 + 64GiB + pcie5x16"),
        compose("rtx-3060 + ddr5-8000x2 + 64GiB + pcie4x16"),
    )
    assert fast.link == card.link


ONE_OF_TWO = [
    ("m3-max + m4-max + 64GiB", "m3-max and m4-max: two parts of one kind, chip"),
    ("rtx-3060 + 32GiB + 64GB", "32GiB and 64GB: two sizes of RAM"),
    ("rtx-3060 + 64GiB + linux + windows", "linux and windows: two operating systems"),
]
LISTS = "`sim machine parts` lists all"


@pytest.mark.parametrize(
    ("parts", "message", "kind"),
    [
        *((parts, f"{message}; give one", Conflict) for parts, message in ONE_OF_TWO),
        ("rtx-3060 + 1TB", "'1TB': write a drive by its kind, without its size, such as nvme-gen4; RAM as ", Malformed),
        ("rtx-3060 + 64GiB + 2 TB", "'2 TB': write a drive by its kind, without its size, such as nvme-gen", Malformed),
        ("m3-max + 48GiB + windows", "m3-max + 48GiB + windows: this chip runs macos; leave windows out", Conflict),
        ("gb10 + 128GiB + windows", "gb10 + 128GiB + windows: this chip runs linux; leave windows out", Conflict),
        ("rtx-3060 + 64GiB + macos", "rtx-3060 + 64GiB + macos: only Apple's chips run macos; give linux or", Conflict),
        ("rtx-3060 + 0GiB", "0GiB: no RAM; give its size, such as 64GiB", OutOfRange),
        ("rtx-3060 + rx-7900-xtx + 64GiB", "rtx-3060 and rx-7900-xtx: GPUs of two makers together are no", Unsupported),
        ("9x rtx-3060 + 8x RTX 3090 + 64GiB", "17 cards; give at most 16", OutOfRange),
        ("rtx-3090 + rtx-3090 + 64GiB", "rtx-3090 twice; write several cards as 2x rtx-3090", Conflict),
        ("0x rtx-3090 + 64GiB", "'0x rtx-3090': 0 cards; give 1 to 16", OutOfRange),
        ("17 x rtx-3090 + 64GiB", "'17 x rtx-3090': 17 cards; give 1 to 16", OutOfRange),
        ("rtx-3090 + 2x threadripper-7995wx + 64GiB", "'2x threadripper-7995wx': AMD Threadripper PRO 7995W", Conflict),
        ("2x abacus + 64GiB", f"unknown part 'abacus'; {LISTS}", UnknownName),
        ("rtx-3060 + RAM", "RAM without its size; write it, such as 64GiB", Malformed),
        ("rtx-3060 + ", "an empty part; write parts with one + between two, such as rtx-3060 + 64GiB", Malformed),
        ("rtx-3061 + 64GiB", "unknown part 'rtx-3061'; did you mean 'rtx-3060' or 'rtx-3060-laptop' or '", UnknownName),
        ("rtx-3060 + 64", "unknown part '64'; RAM has a unit: write 64GiB", UnknownName),
        ("m3-max + rtx-3060 + 64GiB", "m3-max and rtx-3060: a chip with unified memory takes only RAM and s", Conflict),
        ("nvme-gen4 + 64GiB", "nvme-gen4 + 64GiB: nothing computes; add a GPU, a CPU or a chip, such as r", Incomplete),
        ("ryzen-5600 + pcie4x16 + 64GiB", "pcie4x16: a link needs a GPU; add one, or leave the link out", Incomplete),
        ("rtx-3060 + nvme-gen4", "rtx-3060 + nvme-gen4: no size of RAM; add it, such as 'rtx-3060 + nvme-", Incomplete),
    ],
)
def test_parts_that_make_no_machine(parts: str, message: str, kind: type[BadInput]) -> None:
    with refused(kind, begins=message):
        load_machine(parts)


def test_a_gpu_inside_a_processor_is_lent_half_of_the_ram() -> None:
    machine = compose("Radeon 780M + 64GiB + windows")
    assert machine.unified
    assert (machine.gpu_maker, machine.api, machine.os) == ("amd", "vulkan", "windows")
    found = {path: (quantity.lo, quantity.value, quantity.hi) for path, quantity in machine.quantities()}
    assert found["gpu.memory_gib"][1] == 32
    assert found["memory.bandwidth_gb_s"] == (57.6, 89.6, 120)
    assert compose("Arc 140V + 32GiB").gpu.weights_gb_s.value == 34.12  # 25% of 136.5, as Intel's cards


def test_turings_chips_without_tensor_cores_compute_as_older_ones() -> None:
    """A Quadro T1000 and a T4 are of one generation; only the T4 has tensor cores."""
    small, large = compose("t1000 + 32GiB").gpu, compose("t4 + 32GiB").gpu
    assert small is not None
    assert large is not None
    assert small.knee_tokens.source.startswith("1 times 2.5 TFLOPS")
    assert large.knee_tokens.source.startswith("2.2 times 8.1 TFLOPS")


@pytest.mark.parametrize("written", ["2x rtx-3090", "2 x RTX 3090", "2*3090", "2X3090", "2 \u00d7 rtx-3090"])
def test_equal_cards_are_one_gpu_with_the_memory_of_all(written: str) -> None:
    others = "ryzen-5950x + ddr4-3200x2 + 64GiB + nvme-gen4"
    one, two = compose(f"rtx-3090 + {others}"), compose(f"{written} + {others}")
    assert two.name == "2x rtx-3090 + ryzen-5950x + ddr4-3200x2 + nvme-gen4 + 64GiB"
    assert two.title.startswith("2x NVIDIA GeForce RTX 3090, ")
    assert (one.gpu.memory_gib.value, two.gpu.memory_gib.value) == (23.2, 46.4)  # type: ignore[union-attr]
    assert replace(two.gpu, memory_gib=one.gpu.memory_gib) == one.gpu
    assert replace(two, name="", title="", gpu=None, gpus=1) == replace(one, name="", title="", gpu=None)
    assert (one.gpus, two.gpus) == (1, 2)
    assert compose(two.name) == two


def test_several_cards_are_in_a_written_file() -> None:
    two = compose("2x rtx-3090 + 64GiB")
    assert parse_machine(toml(two), where="") == two
    assert "gpus" not in toml(compose("rtx-3090 + 64GiB"))


def test_unlike_cards_are_in_a_written_file() -> None:
    three = compose("rtx-3060 + 2x rtx-3090 + 64GiB")
    assert three.name == "2x rtx-3090 + rtx-3060 + 64GiB"
    assert parse_machine(toml(three), where="") == three
    assert compose(three.name) == three
    assert "0 rtx-3090, 1 rtx-3090, 2 rtx-3060" in three.notes[0]


@pytest.mark.parametrize(
    ("before", "after", "message", "kind"),
    [
        ("gpus = 2", "gpus = 3", "mine: 2 cards, but gpus is 3; expected a table for each of two or more", Malformed),
        ('name = "rtx-3060"', "", "mine: cards 2: name is missing; expected name, memory_gib, ", Malformed),
        ("memory_gib = 11.2\n", "memory_gib = 23\n", "mine: cards have 23.2 + 23 GiB, but gpu.memory_gib i", Malformed),
        ("pinned_gb_s = 23.9", "pinned_gb_s = -1", "mine: cards 1: pinned_gb_s is -1; expected a number a", OutOfRange),
    ],
)
def test_cards_that_a_file_describes_wrongly(before: str, after: str, message: str, kind: type[BadInput]) -> None:
    text = toml(compose("rtx-3090 + rtx-3060 + ryzen-5600 + 64GiB"))
    assert before in text
    with refused(kind, begins=message):
        parse_machine(text.replace(before, after, 1), where="mine")


def test_a_path_with_a_plus_is_a_path(tmp_path: Path) -> None:
    path = tmp_path / "a+b.toml"
    write_machine(compose(EXAMPLE), path)
    assert load_machine(str(path)) == compose(EXAMPLE)
    with pytest.raises(Missing, match=r"no\+such\.toml: no such file"):
        load_machine("no+such.toml")
