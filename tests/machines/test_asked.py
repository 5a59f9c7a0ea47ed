"""What nobody named or measured is said, and asked for with an example that works."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from flashmoe_sim.field.machine import part_in
from flashmoe_sim.field.rows import read_rows
from flashmoe_sim.machines.basis import basis, guessed, heading, notes
from flashmoe_sim.machines.compose import compose
from flashmoe_sim.machines.estimates import estimate, estimates
from flashmoe_sim.machines.load import load_machine, parse_machine
from flashmoe_sim.machines.parts import catalogue
from flashmoe_sim.machines.table import PRESETS
from flashmoe_sim.machines.unnamed_memory import ram_by_size
from flashmoe_sim.machines.write import toml

CPU, RAM, SSD = "the CPU", "the speed of the RAM", "the SSD"


@pytest.mark.parametrize(
    ("machine", "names"),
    [
        ("rtx-3060 + 64GiB", (CPU, RAM, SSD)),
        ("rtx-3060 + 64GiB + nvme-gen4", (CPU, RAM)),
        ("rtx-3060 + 64GB DDR4", (CPU, SSD)),
        ("rtx-3060 + ddr4-3200 + 64GiB + nvme-gen4", (CPU,)),
        ("rtx-3060 + ryzen-5600 + 64GiB", (RAM, SSD)),
        ("rtx-3060 + ryzen-5600 + 64GiB + nvme-gen4", (RAM,)),
        ("rtx-3060 + ryzen-5600 + ddr4-3200x2 + 64GiB + nvme-gen4", ()),
        ("ryzen-5600 + 64GB DDR4", (SSD,)),
        ("strix-halo-64", (SSD,)),
        ("m2-ultra-192", ()),
    ],
)
def test_what_is_guessed(machine: str, names: tuple[str, ...]) -> None:
    assert guessed(load_machine(machine)) == names
    assert ("guessed: " in basis(load_machine(machine))) == bool(names)


def test_presets_guess_nothing() -> None:
    assert not any(guessed(load_machine(name)) for name in PRESETS)


RANGES = "the CPU (7.5 to 90 GB/s), the speed of the RAM (15 to 114 GB/s) and the SSD (0.5 to 7 GB/s)"


@pytest.mark.parametrize(
    ("machine", "sentence"),
    [
        (
            "rtx-3060",
            "From the preset rtx-3060: 32 GiB of RAM at 45 GB/s, a CPU at 33 GB/s, a link of 20 GB/s and storage",
        ),
        (
            "m3-max-48",
            "From the preset m3-max-48: 48 GiB of RAM at 410 GB/s, a CPU at 125 GB/s and storage of 5.5 GB/s;",
        ),
        (
            "rtx-3060 + 32GiB",
            f"Given: rtx-3060 and 32GiB; assumed: a pcie4x16 link; guessed: {RANGES}; name them, as in ",
        ),
        (
            "rtx-3060 + 32GiB + ddr4-3200x2",
            "guessed: the CPU (15.4 to 38.4 GB/s) and the SSD (0.5 to 7 GB/s); name the",
        ),
        (
            "rtx-3060 + ryzen-5600 + 64GB DDR4 + nvme-gen3",
            "Given: rtx-3060, ryzen-5600, nvme-gen3, 64GiB and ddr4; assumed: RAM at 38.9 GB/s and a pcie4x16 link.",
        ),
        ("rtx-3060 + ryzen-5600 + ddr4-3200x2 + 32GiB + nvme-gen4 + pcie3x8", ""),
        ("strix-halo-64", "Given: strix-halo and 64GiB; guessed: the SSD (0.5 to 7 GB/s); name it, as in "),
        ("m2-ultra-192", "Given: m2-ultra and 192GiB; assumed: storage of 6.9 GB/s."),
    ],
)
def test_what_was_given_brought_assumed_and_guessed(machine: str, sentence: str) -> None:
    said = basis(load_machine(machine))
    assert sentence in said
    assert bool(said) == bool(sentence)


@pytest.mark.parametrize(
    ("machine", "begins"),
    [
        (
            "rtx-3060",
            "rtx-3060, 32 GiB of DDR4 assumed (give rtx-3060 + 64GiB for another size): Desktop with RTX 3060",
        ),
        (
            "RTX 5090 + Windows",
            "rtx-5090 + windows, 96 GiB of DDR5 assumed (give rtx-5090 + 64GiB + windows for another",
        ),
        ("rtx-3060 + 32GiB", "NVIDIA GeForce RTX 3060 12 GB, 32 GiB"),
        ("m3-max-48", load_machine("m3-max-48").title),
        ("laptop-ddr4", load_machine("laptop-ddr4").title),
    ],
)
def test_ram_that_nobody_named_is_in_the_first_line(machine: str, begins: str) -> None:
    assert heading(load_machine(machine)).startswith(begins)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_says_what_it_brings_unless_its_file_was_edited(name: str) -> None:
    machine = load_machine(name)
    assert basis(parse_machine(toml(machine), where="")).startswith(f"From the preset {name}: ")
    assert basis(machine.scaled({"storage.read_gb_s": 0.5})) == ""
    assert basis(machine.scaled({"memory.reserve_gib": 0.5})) == basis(machine)


@pytest.mark.parametrize("machine", ["rtx-3060 + 64GiB", "strix-halo-64", "ryzen-5600 + 64GiB"])
def test_what_is_guessed_is_said_once(machine: str) -> None:
    said = notes(load_machine(machine))
    assert "guessed: " in said[0]
    assert not any("is a guess" in note for note in said)
    assert any("is a guess" in note for note in load_machine(machine).notes)


@pytest.mark.parametrize(
    "machine",
    [
        "rtx-3060 + 64GiB",
        "2x rtx-3090 + 192GiB + linux",
        "rtx-4090 + 512GiB",
        "rtx-4060-laptop + 32GiB",
        "rtx-3060 + 64GB DDR5",
        "rtx-3060 + 512GB DDR5",
        "rtx-3060 + ddr5-6000 + 64GiB",
        "rtx-3060 + ddr3-1600 + 16GiB",
        "strix-halo-64",
        "ryzen-5600 + 64GiB",
        "rtx-3090 + epyc-7763 + 512GiB + nvme-gen4",
    ],
)
def test_following_the_example_leaves_nothing_open(machine: str) -> None:
    match = re.search(r'--machine "(.*)"`\.$', basis(load_machine(machine)))
    named = load_machine(match[1])
    assert guessed(named) == ()
    assert set(load_machine(machine).name.split(" + ")) < set(match[1].split(" + "))


def test_a_measured_number_is_not_guessed() -> None:
    text = toml(load_machine("rtx-3060 + 64GiB"))
    assert text.count("guessed = true") == 3
    assert guessed(parse_machine(text, where="")) == (CPU, RAM, SSD)
    edited = text.replace("guessed = true\n", "", 1)
    assert guessed(parse_machine(edited, where="")) == (CPU, SSD)
    named = text.replace('name = "rtx-3060 + 64GiB"', 'name = "mine"')
    assert basis(parse_machine(named, where="")).startswith("Guessed: the CPU (10.2 to 86.2 GB/s), the speed of the RA")


def test_the_table_is_in_order_and_wide() -> None:
    table = estimates("ram.gb_s_by_size")
    assert all(float(one) < float(next_) for one, next_ in pairwise(table))
    for found in table.values():
        assert found.lo < found.value < found.hi
        assert found.hi > 2.5 * found.lo


@pytest.mark.parametrize(
    ("ram_gib", "within", "outside"),
    [
        (32, ("ddr4-3200x1", "ddr4-3200x2", "ddr5-6000x2", "lpddr5x-7500x2"), ("ddr4-3200x8",)),
        (64, ("ddr4-2400x2", "ddr4-3600x2", "ddr5-6400x2"), ("ddr4-3200x1", "ddr4-3200x8")),
        (96, ("ddr5-5200x2", "ddr5-6400x2"), ("ddr5-4800x8",)),
        (192, ("ddr5-5200x2", "ddr5-6000x2", "ddr4-2933x6"), ("ddr4-3200x2", "ddr5-4800x8")),
        (512, ("ddr4-2400x4", "ddr4-3200x8", "ddr5-4800x8", "ddr5-4800x12"), ("ddr4-3200x2", "ddr5-4800x1")),
    ],
)
def test_memory_that_such_machines_have_is_within(
    ram_gib: float, within: tuple[str, ...], outside: tuple[str, ...]
) -> None:
    guess = ram_by_size(ram_gib, "")
    for name in within:
        assert guess.lo <= catalogue()[name].numbers["bandwidth_gb_s"].value <= guess.hi, name
    for name in outside:
        assert not guess.lo <= catalogue()[name].numbers["bandwidth_gb_s"].value <= guess.hi, name


def test_a_server_is_not_two_channels() -> None:
    sizes = {ram: compose(f"rtx-4090 + {ram}GiB").memory for ram in (64, 192, 512)}
    found = {ram: memory.bandwidth_gb_s for ram, memory in sizes.items() if memory is not None}
    assert found[64].value < found[192].value < found[512].value
    assert found[512].lo > 40
    assert found[512].value == 155.8  # 76% of eight channels of DDR4-3200
    assert "eight of DDR4-3200" in found[512].source


def test_a_new_card_is_mostly_beside_ddr5() -> None:
    new, old = (compose(f"{card} + 64GiB").memory.bandwidth_gb_s for card in ("rtx-4060-ti-16gb", "rtx-3060"))
    assert new.value == pytest.approx(83 / 64 * old.value, rel=0.01)
    assert new.lo < catalogue()["ddr4-3200x2"].numbers["bandwidth_gb_s"].value < new.hi
    named = compose("rtx-5070 + ryzen-5600 + 64GiB").memory.bandwidth_gb_s
    assert named.value < new.value
    assert ram_by_size(192, "", catalogue()["rtx-5090"]) == ram_by_size(192, "")


def test_published_desktops_with_a_new_card_have_ddr5() -> None:
    takes, new = {}, estimate("ram.ddr5_card").value
    for row in read_rows(Path("data/published/field.csv")):
        gpu, cpu = part_in(row.gpu, ("gpu",)), part_in(row.cpu, ("cpu",))
        if gpu is None or cpu is None or float(gpu.compute or 0) < new or not cpu.memory.endswith("x2"):
            continue
        either = cpu.title.startswith("Intel Core i") and cpu.memory.startswith("ddr5")
        takes[row.machine_id] = "either" if either else cpu.memory[:4]
    assert sorted(takes.values()).count("ddr5") >= 4 * sorted(takes.values()).count("ddr4") > 0
    assert len(takes) >= 12


def test_a_generation_narrows_the_guess() -> None:
    either, ddr4, ddr5 = (ram_by_size(64, kind) for kind in ("", "ddr4", "ddr5"))
    assert ddr4.value == 51.2
    assert ddr4.hi < ddr5.value
    assert either.hi - either.lo > max(one.hi - one.lo for one in (ddr4, ddr5))
    assert ram_by_size(512, "ddr5").value == 8 * 44.8
    assert ram_by_size(16, "ddr4").lo == 8 * 2.133  # a single module
