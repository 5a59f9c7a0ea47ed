"""Names as people write them mean the same machine as the names of the catalogue."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, Malformed, OutOfRange, UnknownName, Unsupported
from flashmoe_sim.machines.compose import compose
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.parts import catalogue
from flashmoe_sim.machines.written import chips_as_sold, find_part, parse_parts, reported_part
from tests.support import refused


def test_every_chip_with_every_memory_that_was_sold_is_a_machine() -> None:
    assert len(chips_as_sold()) >= 60
    for name, part in chips_as_sold().items():
        parts = parse_parts(name)
        assert parts.by_kind == {"chip": part}, name
        machine = load_machine(name)
        assert machine.memory.ram_gib.value == pytest.approx(float(name.rpartition("-")[2]), rel=0.06), name


@pytest.mark.parametrize(
    ("written", "preset"),
    [
        ("M5 Max 128GB", "m5-max-128"),
        ("RTX 3060", "rtx-3060"),
        ("GeForce RTX 5090", "rtx-5090"),
        ("Strix Halo 128GB", "strix-halo-128"),
        ("Ryzen AI Max+ 395 128 GB", "strix-halo-128"),
        ("DGX Spark", "gb10-128"),
        ("VM 2core", "vm-2core"),
    ],
)
def test_a_preset_has_the_names_of_what_it_is(written: str, preset: str) -> None:
    assert load_machine(written) == load_machine(preset)


def test_a_preset_may_have_a_system() -> None:
    windows = load_machine("RTX 4090 + Windows 11")
    assert (windows.name, windows.os) == ("rtx-4090 + windows", "windows")
    plain = load_machine("rtx-4090")
    assert windows.title == f"{plain.title}, Windows"
    assert replace(windows, name=plain.name, title=plain.title, os="") == plain
    assert load_machine(windows.name) == windows
    assert load_machine("m1-8 + macos") == load_machine("m1-8")


@pytest.mark.parametrize(
    ("written", "message", "kind"),
    [
        (
            "m2-ultra-100",
            "'m2-ultra-100': m2-ultra was sold with 64, 128 or 192 GB, not 100; for a size that is not sold write "
            "m2-ultra + 100GiB",
            OutOfRange,
        ),
        ("M4 Max 30core + 20GB", "unknown part 'M4 Max 30core'; did you mean 'm4-max' or 'm4-max-32core'", UnknownName),
        ("M4 Pro 9-core + 24GB", "unknown part 'M4 Pro 9-core'; did you mean 'm4-pro' or", UnknownName),
        ("m4-max-32core-64", "'m4-max-32core-64': m4-max-32core was sold with 36 GB, not 64; for a size t", OutOfRange),
        ("M2 Ultra", "m2-ultra: no size of RAM; it is sold as m2-ultra-64, m2-ultra-128, m2-ultra-192", Incomplete),
        ("RTX 3060 16GB + 64GB", "'RTX 3060 16GB': rtx-3060 was sold with 8 or 12 GB, not 16; RAM is a pa", OutOfRange),
        ("RTX 4090 64GB", "'RTX 4090 64GB': rtx-4090 was sold with 24 or 48 GB, not 64; RAM is a part", OutOfRange),
        ("H200 PCIe + 256GB", "unknown part 'H200 PCIe'; did you mean 'h100-pcie'", UnknownName),
        ("RTX 4070 Ti Super", "rtx-4070-ti-super: no size of RAM; add it, such as 'rtx-4070-ti-super + 32", Incomplete),
        ("rtx-3060 + SSD + 64GB", "'SSD': of which kind? Write sata-ssd, nvme-gen3, nvme-gen4 or nvme-gen", Incomplete),
        ("RTX 4060 Laptop, 16GB RAM, 512GB SSD", "'512GB SSD': of which kind? Write sata-ssd, nvme-gen3,", Incomplete),
        ("RTX 4090, 7950X, 64GB DDR5-6000, Win 7", "unknown part 'Win 7'", UnknownName),
        ("i7-12700, RTX 3060 Tie, 64GB", "unknown part 'RTX 3060 Tie'; did you mean 'rtx-3060-ti'", UnknownName),
        ("2x ryzen-5600 + 64GB", "'2x ryzen-5600': AMD Ryzen 5 5600 is not known to stand two on a board; g", Conflict),
        ("3x epyc-7763 + 512GB", "'3x epyc-7763': 3 sockets are not modelled; give 2x epyc-7763", Unsupported),
        ("quad Xeon Gold 6252 + 1TiB", "'quad Xeon Gold 6252': 4 sockets are not modelled; give 2x xeon-", Unsupported),
        ("2x m4-max", "'2x m4-max': several machines need the network between them; write 2x m4-max over 10", Conflict),
        ("2x epyc-7763 512GB", "'2x epyc-7763 512GB': RAM of one socket or of all? Write all of it as a pa", Malformed),
        ("epyc-9354 + ddr5-4800x24 + 768GB", "unknown part 'ddr5-4800x24'; so many channels have two soc", UnknownName),
        ("rtx-3060 + 0x32GB", "'0x32GB': 0 cards; give 1 to 16", OutOfRange),
        ("rtx-3060 + 64GB DDR4 + ddr5-6000", "ddr5-6000x2 and ddr4: two kinds of memory; give one", Conflict),
        ("rtx-3060 + 64GB DDR4 + DDR5", "ddr4 and ddr5: two kinds of memory; give one", Conflict),
        ("m2-ultra-192 + DDR4", "m2-ultra and ddr4: a chip has its own memory; leave ddr4 out", Conflict),
        ("epyc-9355 + 512GB DDR4", "epyc-9355 and ddr4: this CPU takes ddr5; leave ddr4 out", Conflict),
        ("ryzen-5600 + 64GB DDR5", "ryzen-5600 and ddr5: this CPU takes ddr4; leave ddr5 out", Conflict),
        ("rtx-4090 + macos", "rtx-4090 + macos: only Apple's chips run macos; give linux or windows, or le", Conflict),
        ("m5-max-128 + windows", "m5-max-128 + windows: this chip runs macos; leave windows out", Conflict),
        ("m2-ulta-192", "unknown machine 'm2-ulta-192'; did you mean 'm2-ultra-192' or 'm2-ultra-128' or", UnknownName),
        ("RTX 4091 + 64GB", "unknown part 'RTX 4091'; did you mean 'rtx-4090' or", UnknownName),
        ("rtx-4090 + 64GB + dos", "unknown part 'dos'; `sim machine parts` lists all", UnknownName),
    ],
)
def test_what_cannot_be_meant_is_one_line(written: str, message: str, kind: type[BadInput]) -> None:
    with refused(kind, begins=message):
        load_machine(written)


def test_a_name_wins_over_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m2-ultra-192").write_text("")
    assert load_machine("m2-ultra-192").name == "m2-ultra + 192GiB"
    with pytest.raises(Malformed, match=r"m2-ultra-192: \[storage\] is missing"):
        load_machine("./m2-ultra-192")


def test_a_drive_of_unknown_generation_is_a_guess_no_surer_than_a_known_one() -> None:
    said, unsaid, slow, fast = (
        compose(f"rtx-3090 + ryzen-7700 + 64GiB{drive}").storage.read_gb_s
        for drive in (" + nvme", "", " + nvme-gen3", " + nvme-gen5")
    )
    assert said.guessed
    assert unsaid.value < said.value
    assert (said.lo, said.hi) == (slow.lo, fast.hi)
    assert slow.value < said.value < fast.value
    assert compose("rtx-3090 + i7-6700 + 64GiB + nvme").storage.read_gb_s.guessed


def test_every_part_is_found_without_its_maker() -> None:
    for part in catalogue().values():
        maker, _, rest = part.title.partition(" ")
        if part.kind in ("gpu", "cpu", "chip") and rest:
            assert find_part(rest) == part == find_part(part.name if maker == "Other" else f"{maker} {part.name}")


def test_memory_of_either_generation_in_an_intel_desktop() -> None:
    ddr4, ddr5 = compose("i5-12400 + 64GB DDR4"), compose("i5-12400 + 64GB DDR5")
    assert ddr5.memory is not None
    assert ddr4.memory.bandwidth_gb_s.value == 38.91  # 76% of 51.2
    assert ddr5.memory.bandwidth_gb_s.value == compose("i5-12400 + 64GB").memory.bandwidth_gb_s.value


@pytest.mark.parametrize(
    ("name", "kind", "memory_gib", "part"),
    [
        ("NVIDIA GeForce RTX 3060", "gpu", 11.76, "rtx-3060"),
        ("NVIDIA GeForce RTX 3060", "gpu", 8, "rtx-3060-8gb"),
        ("NVIDIA H100 80GB HBM3", "gpu", 79.1, "h100"),
        ("NVIDIA A100-SXM4-80GB", "gpu", 79.3, "a100-sxm-80gb"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "gpu", 95, "rtx-pro-6000"),
        ("Tesla P40", "gpu", 22.5, "p40"),
        ("AMD Ryzen 5 5600 6-Core Processor", "cpu", None, "ryzen-5600"),
        ("12th Gen Intel(R) Core(TM) i5-12600K", "cpu", None, "i5-12600k"),
        ("Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz", "cpu", None, "xeon-e5-2680-v4"),
        ("AMD EPYC 7402 24-Core Processor", "cpu", None, "epyc-7402"),
        ("Intel(R) Xeon(R) Processor", "cpu", None, None),
        ("AMD Ryzen 5 5600 6-Core Processor", "gpu", 8, None),
        ("NVIDIA GeForce RTX 4090", "gpu", 47.4, "rtx-4090-48gb"),
        ("NVIDIA GeForce RTX 3080 Ti Laptop GPU", "gpu", 15.7, "rtx-3080-ti-laptop"),
        ("Tesla V100-SXM2-32GB", "gpu", 31.7, "v100-sxm2-32gb"),
        ("NVIDIA RTX 2000 Ada Generation Laptop GPU", "gpu", 7.6, "rtx-2000-ada-laptop"),
        ("AMD Ryzen Threadripper PRO 3995WX 64-Cores", "cpu", None, "threadripper-3995wx"),
        ("Intel(R) Xeon(R) Silver 4310 CPU @ 2.10GHz", "cpu", None, "xeon-4310"),
        ("AMD EPYC 9V45 96-Core Processor", "cpu", None, "epyc-9v45"),
    ],
)
def test_names_as_systems_and_drivers_report_them(
    name: str, kind: str, memory_gib: float | None, part: str | None
) -> None:
    found = reported_part(name, kind, memory_gib=memory_gib)
    assert (None if found is None else found.name) == part
