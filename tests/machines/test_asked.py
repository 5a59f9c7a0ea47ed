"""What nobody named or measured is said, and asked for with an example that works."""

from __future__ import annotations

import re

import pytest

from flashmoe_sim.machines import PRESETS, ask, guessed, load_machine, parse_machine
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
    assert bool(ask(load_machine(machine))) == bool(names)


def test_presets_guess_nothing() -> None:
    assert not any(guessed(load_machine(name)) for name in PRESETS)


def test_the_sentence() -> None:
    assert ask(load_machine("rtx-3060 + 64GiB")) == (
        "The CPU, the speed of the RAM and the SSD are guessed: name them, as in "
        '`--machine "rtx-3060 + ryzen-5600 + ddr4-3200x2 + 64GiB + nvme-gen4"`.'
    )
    assert ask(load_machine("rtx-3060 + ryzen-5600 + 64GiB + nvme-gen3")) == (
        "The speed of the RAM is guessed: name it, as in "
        '`--machine "rtx-3060 + ryzen-5600 + ddr4-3200x2 + nvme-gen3 + 64GiB"`.'
    )
    assert ask(load_machine("strix-halo-64")) == (
        'The SSD is guessed: name it, as in `--machine "strix-halo + 64GiB + nvme-gen4"`.'
    )


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
    match = re.search(r'--machine "(.*)"`\.$', ask(load_machine(machine)))
    named = load_machine(match[1])
    assert ask(named) == ""
    assert set(load_machine(machine).name.split(" + ")) < set(match[1].split(" + "))


def test_a_measured_number_is_not_guessed() -> None:
    text = toml(load_machine("rtx-3060 + 64GiB"))
    assert text.count("guessed = true") == 3
    assert guessed(parse_machine(text, where="")) == (CPU, RAM, SSD)
    edited = text.replace("guessed = true\n", "", 1)
    assert guessed(parse_machine(edited, where="")) == (CPU, SSD)
    named = text.replace('name = "rtx-3060 + 64GiB"', 'name = "mine"')
    assert ask(parse_machine(named, where="")) == (
        "The CPU, the speed of the RAM and the SSD are guessed: measure them with `sim machine probe`, or write them "
        "in the machine's file."
    )
