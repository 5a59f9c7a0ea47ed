"""Machines as people describe them in public threads are the right parts, or one line asks for what is missing.

described.csv: descriptions with the parts that are meant, each from the public page in its last column; facts only.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, Malformed, OutOfRange, UnknownName
from flashmoe_sim.machines.load import load_machine, machines_in
from flashmoe_sim.machines.parts import Parts, catalogue
from flashmoe_sim.machines.said import as_parts, is_path
from flashmoe_sim.machines.written import parse_parts, plain, system_in
from tests.support import refused

ROWS = list(csv.DictReader(Path(__file__).with_name("described.csv").read_text("utf-8").splitlines()))
RIGHT, ASKED, WRONG = "right", "asked", "wrong"
GPUS = {  # what the column says of cards, where it does not name exactly one part
    "RTX 3070 (16 GB mod)": ["rtx-3070-16gb"],
    "RTX 5090 + RTX 4090 x2 + RTX A6000": ["rtx-5090"] * 4 + ["rtx-4090"] * 2 + ["rtx-a6000"],
    "RTX 5090 + RTX 4090": ["rtx-5090"] * 2 + ["rtx-4090"],
    "RTX 2060": ["rtx-2060-laptop"],  # beside a Core i7-9750H, which only laptops have
    "Apple M3 Ultra 60-core (unified)": ["m3-ultra-60core"],
    "Apple M1 Ultra 64-core (unified)": ["m1-ultra"],
}


def verdict(row: dict[str, str]) -> str:
    """Whether the answer is the right parts, a question, or a machine that is not meant."""
    try:
        machine = load_machine(row["as_written"])
    except BadInput as error:
        return ASKED if "\n" not in str(error) else WRONG
    parts = parse_parts(machine.name.replace("m1-ultra-128", "m1-ultra + 128GiB"))
    return RIGHT if all(checks(row, parts)) else WRONG


def checks(row: dict[str, str], parts: Parts) -> list[bool]:
    """Each field of the row that is given."""
    found = []
    if row["gpu"]:
        count = int(row["gpu_count"] or 1)
        meant = GPUS.get(row["gpu"]) or [parse_parts(row["gpu"]).by_kind["gpu"].name] * count
        named = [card.name for card in parts.cards] or [parts.by_kind["chip"].name]
        found.append(sorted(named) == sorted(meant))
    if row["cpu"] and "Apple" not in row["cpu"]:
        cpu = parts.by_kind.get("cpu")
        found.append(cpu is not None and plain(cpu.name.split("-")[-1]) in plain(row["cpu"]))
    if row["sockets"]:
        found.append(parts.sockets == int(row["sockets"]))
    if row["ram_gib"]:
        found.append(parts.ram_gib == float(row["ram_gib"]))
    if row["os"]:
        found.append(parts.os == system_in(row["os"].split("/")[0]) or parts.by_kind.get("chip") is not None)
    memory, kind = parts.by_kind.get("memory"), row["ram_type"]
    if kind.startswith("DDR"):
        said = plain(kind.split()[0].rstrip(","))
        found.append(said.startswith(parts.generation or plain(memory.name.rpartition("x")[0])) if memory else True)
    if row["drive"]:
        found.append("storage" in parts.by_kind or "chip" in parts.by_kind)
    return found


def test_no_description_is_another_machine() -> None:
    by_verdict: dict[str, list[str]] = {RIGHT: [], ASKED: [], WRONG: []}
    for row in ROWS:
        by_verdict[verdict(row)].append(row["as_written"])
    assert by_verdict[WRONG] == []
    assert len(by_verdict[RIGHT]) >= 25
    assert len(ROWS) == 51


def test_a_question_says_what_to_give() -> None:
    """Asked is what no reader could know: no size of RAM, a family without a number, something that is not modelled."""
    for row in (row for row in ROWS if verdict(row) == ASKED):
        with pytest.raises(BadInput, match=r"add it, such as|Write|write|Name it|give|add a GPU"):
            load_machine(row["as_written"])


@pytest.mark.parametrize(
    ("described", "name"),
    [
        ("2x3090, Ryzen 5950X, 64G RAM", "2x rtx-3090 + ryzen-5950x + 64GiB"),
        ("4x3090 96GB VRAM, 256GB RAM", "4x rtx-3090 + 256GiB"),
        ("RTX 3090 24GB VRAM / 64G RAM", "rtx-3090 + 64GiB"),
        ("GPU: RTX 3060; CPU: Ryzen 5 5600; RAM: 32 GB", "rtx-3060 + ryzen-5600 + 32GiB"),
        ("RTX 3060/Ryzen 5600/64GB", "rtx-3060 + ryzen-5600 + 64GiB"),
        ("I have a RTX 4070 with 32GB of RAM and a Ryzen 7 5700X.", "rtx-4070 + ryzen-5700x + 32GiB"),
        ("RTX 3090, i9-12900K, 64 ГБ DDR5", "rtx-3090 + i9-12900k + 64GiB + ddr5"),
        ("EPYC 7763 + 1,024GB DDR4", "epyc-7763 + 1024GiB + ddr4"),
        ("2x EPYC 9654, RTX 5090, 1.5TB DDR5 RAM", "rtx-5090 + 2x epyc-9654 + 1536GiB + ddr5"),
        ("EPYC 7763 512GB 8ch DDR4-3200 no GPU", "epyc-7763 + ddr4-3200x8 + 512GiB"),
        ("Threadripper 7960X with 4x64GB DDR5 and two 3090s", "2x rtx-3090 + threadripper-7960x + 256GiB + ddr5"),
        ("gaming PC with a 4090, i9-13900K, 64GB DDR5", "rtx-4090 + i9-13900k + 64GiB + ddr5"),
        ("RTX 5090, 2x EPYC 9135, 1152GB DDR5-6400, 24 channels", "rtx-5090 + 2x epyc-9135 + ddr5-6400x12 + 1152GiB"),
        ("EPYC 7302 + 6 channels of DDR4-2666 * 64GB", "epyc-7302 + ddr4-2666x6 + 384GiB"),
        ("RTX 4090, Xeon 8480+, 512GB DDR5-4800/5600", "rtx-4090 + xeon-8480 + ddr5-4800x8 + 512GiB"),
        ("Ryzen 5600 + 990 Pro 2TB + 32GB", "ryzen-5600 + 990-pro + 32GiB"),
        ("rtx-3060 + nvme 512GB + 64GB", "rtx-3060 + nvme + 64GiB"),
        ("MacBook Pro M3 Max 128GB, 1TB SSD", "m3-max + 128GiB"),
        ("Apple M4 Max 40-core, Apple M4 Max 16C, 128 GB", "m4-max + 128GiB"),
        ("Ryzen 7 7840HS w/ Radeon 780M Graphics, 32GB DDR5-5600", "radeon-780m + ryzen-7840hs + ddr5-5600x2 + 32GiB"),
        ("RTX 5090, Intel i9-7980XE @ 4.2 GHz, 256 GB", "rtx-5090 + i9-7980xe + 256GiB"),
        ("5 x 3090, 1 x 4090, 512GB DDR4 3200 EPYC 7443p", "rtx-4090 + 5x rtx-3090 + epyc-7443 + ddr4-3200x8 + 512GiB"),
        ("Epyc 7551p 256gb 8ch ddr4 2400", "epyc-7551 + ddr4-2400x8 + 256GiB"),
        ("8-channel EPYC 7532 w/ 512GB of DDR4-3200", "epyc-7532 + ddr4-3200x8 + 512GiB"),
        ("RTX5090 32G, 13900K,128G DDR5 4800", "rtx-5090 + i9-13900k + ddr5-4800x2 + 128GiB"),
        ("9070 XT 16GB, 9800X3D, 32GB DDR5-6000 CL30", "rx-9070-xt + ryzen-9800x3d + ddr5-6000x2 + 32GiB"),
        ("RTX 3090 eGPU over Thunderbolt 3, 32GB", "rtx-3090 + thunderbolt3 + 32GiB"),
        ("a pair of RTX 3090s, 64GB", "2x rtx-3090 + 64GiB"),
        ("MacBook Air M2 24GB/1TB", "m2 + 24GiB"),
        ("MacBook Pro M3 Max, 14-core, 96GB", "m3-max-30core + 96GiB"),
        ("Strix Halo 64GB (48GB VRAM)", "strix-halo + 64GiB"),
        ("RTX 5090, 9950X3D, 64GB, 1TB M.2 SSD", "rtx-5090 + ryzen-9950x3d + nvme + 64GiB"),
        ("RTX 3090, 64GB, 2TB M.2 Gen4", "rtx-3090 + nvme-gen4 + 64GiB"),
        ("Macbook Pro 16 M1 Pro 32gb", "m1-pro-32"),
        ("MacBook Air 15 M4 24GB", "m4 + 24GiB"),
        ("MacBook Pro 16GB M1", "m1 + 16GiB"),
        ("M1 Ultra 64-core 128GB", "m1-ultra-128"),
        ("Strix Halo 395+ 128GB (Framework Desktop)", "strix-halo + 128GiB"),
        ("RTX 4070 SUPER, 65458 MB", "rtx-4070-super + 64GiB"),
        ("RTX 4080 SUPER 16376MiB, 32,768 MB", "rtx-4080-super + 32GiB"),
        ("RTX 3090, MemTotal: 65758672 kB", "rtx-3090 + 64GiB"),
        ("2080 Ti 11264MiB, 15885MB", "rtx-2080-ti + 16GiB"),
        ("RTX 4090, i9-13900H, 64GB", "rtx-4090-laptop + i9-13900h + 64GiB"),
        ("RTX 4090 24GB, i9-13900H, 64GB", "rtx-4090 + i9-13900h + 64GiB + desktop"),
        ("RTX 4080, Ultra 9 185H, 32GB", "rtx-4080-laptop + ultra-9-185h + 32GiB"),
        ("Dell XPS 15 9530 i7-13700H RTX 4060 32GB", "rtx-4060-laptop + i7-13700h + 32GiB"),
        ("Dell XPS 8960, RTX 4070, i7-13700, 32GB", "rtx-4070 + i7-13700 + 32GiB"),
        ("ROG Strix G16 RTX 4070, 32GB", "rtx-4070-laptop + 32GiB"),
        ("ASUS ROG Strix RTX 4090, 7950X, 64GB", "rtx-4090 + ryzen-7950x + 64GiB"),
        ("Alienware m18, RTX 4080, 13980HX, 64GB", "rtx-4080-laptop + i9-13980hx + 64GiB"),
        ("Minisforum BD790i (7945HX), RTX 4090, 64GB", "rtx-4090 + ryzen-7945hx + 64GiB + desktop"),
        ("Minisforum UM790 Pro (7940HS), RTX 4070 via OCuLink, 64GB", "rtx-4070 + ryzen-7940hs + oculink + 64GiB"),
        (
            "ThinkPad with eGPU RTX 4090 over Thunderbolt 4, i7-1360P, 32GB",
            "rtx-4090 + i7-1360p + thunderbolt4 + 32GiB",
        ),
        ("Hetzner GEX44 (RTX 4000 SFF Ada 20GB, i5-13500, 64GB DDR4)", "rtx-4000-sff-ada + i5-13500 + 64GiB + ddr4"),
        ("Hetzner AX102 (Ryzen 9 7950X3D, 128 GB DDR5)", "ryzen-7950x3d + 128GiB + ddr5"),
        ("vast.ai 4x 3090, EPYC 7532, 256GB", "4x rtx-3090 + epyc-7532 + 256GiB"),
        ("runpod A100 80GB, 117GB RAM", "a100-80gb + 117GiB"),
        ("Colab T4", "t4 + 12.7GiB"),
        ("Standard_ND96asr_v4", "8x a100-sxm-40gb + 900GiB"),
        ("epyc 7302 256gb ddr4 2666 (8x32)", "epyc-7302 + ddr4-2666x8 + 256GiB"),
        ("Xeon Platinum 8480+ (x2), 512GB", "2x xeon-8480 + 512GiB"),
        ("asus tuf a15 ryzen 7 7735hs rtx 4050 16gb ddr5", "rtx-4050-laptop + ryzen-7735hs + 16GiB + ddr5"),
        ("MSI Raider GE78 i9-13950HX RTX 4090 64GB", "rtx-4090-laptop + i9-13950hx + 64GiB"),
        (
            "threadripper 3960X 128GB quad channel 3200MHz 2x3090",
            "2x rtx-3090 + threadripper-3960x + ddr4-3200x4 + 128GiB",
        ),
        ("Xeon E5-2678 v3 64GB DDR3 quad channel, P40", "p40 + xeon-e5-2678-v3 + 64GiB + ddr3"),
        ("EPYC 9354P 12 channels 384GB", "epyc-9354 + 384GiB"),
        ("Lambda Cloud H100 PCIe 225GB RAM", "h100-pcie + 225GiB"),
        ("3090 48gb ram single stick", "rtx-3090 + 48GiB + 1-channel"),
        ("RTX 3090, Ryzen 5 3600, 32GB 2x16 3200", "rtx-3090 + ryzen-3600 + ddr4-3200x2 + 32GiB"),
        ("7950X3D + 4090 + 4x32GB @ 3600MT/s", "rtx-4090 + ryzen-7950x3d + ddr5-3600x2 + 128GiB"),
        ("AM5 7600 3060 64GB", "rtx-3060 + ryzen-7600 + 64GiB"),
        ("Tesla T4 15360MiB, 12978 MB RAM", "t4 + 12.7GiB"),
        ("HP Victus 16 RTX 3060 6GB, i5-12500H, 16GB DDR4-3200", "rtx-3060-laptop + i5-12500h + ddr4-3200x2 + 16GiB"),
        ("RTX 3060, DDR4 quad-channel, 64GB", "rtx-3060 + 64GiB + ddr4 + 4-channel"),
        ("RTX 4090, 7950X, 64GB, 2 channels", "rtx-4090 + ryzen-7950x + 64GiB"),
        ("RTX 4090, 7950X, 32GB single channel", "rtx-4090 + ryzen-7950x + 32GiB + 1-channel"),
        ("RTX 3090 64GB dual-channel", "rtx-3090 + 64GiB + 2-channel"),
        ("RTX 3090, 7700X, 32GB 6000MHz CL30", "rtx-3090 + ryzen-7700x + ddr5-6000x2 + 32GiB"),
        ("RTX 3090, DDR4, 64GB, 3600MHz, 4 channels", "rtx-3090 + ddr4-3600x4 + 64GiB"),
        (
            "i9-13900K, RTX 4090, 64GB DDR5 @ 6400 MHz, Windows 11 Pro",
            "rtx-4090 + i9-13900k + ddr5-6400x2 + 64GiB + windows",
        ),
    ],
)
def test_descriptions(described: str, name: str) -> None:
    assert load_machine(described).name == name
    assert as_parts(as_parts(described)) == as_parts(described)
    assert machines_in(described) == [as_parts(described)] or "," not in described


@pytest.mark.parametrize(
    ("described", "message", "kind"),
    [
        ("2 or 3x RTX 3090 + 64GB", "'2 or 3x RTX 3090': give one number of them", Malformed),
        ("RTX 3060, Xeon E5, 64GB", "'Xeon E5': which Xeon? Write its number, such as", Incomplete),
        ("Threadripper PRO (24 core), 64GB", "'Threadripper PRO': which Threadripper? Write its number", Incomplete),
        ("My Mac only has 64G memory.", "'Mac only has': which Mac? Write its chip and memory, such as m4", Incomplete),
        ("6 gb of vram and 16 gb of ram", "6 GB of VRAM: of which GPU? Name it, such as rtx-3060", Incomplete),
        ("RTX 4070, 16GB VRAM, 32GB RAM", "16 GB of VRAM, but rtx-4070 has 12; give the card that it is", Conflict),
        ("EPYC 9355, 736GiB 23 of 24 channels", "'23 of 24 channels': write the channels of one socket be", Incomplete),
        ("RTX 4090, 7950X, 64GB, 8 channels", "ryzen-7950x and 8 channels: this CPU has the rate of 2; writ", Conflict),
        ("m4-max-128 + 2 channels", "m4-max and 2 channels: a chip has its own memory; leave 2 channels out", Conflict),
        ("RTX 3090, 64GB DDR4-3200x2, 4 channels", "ddr4-3200x2 and 4 channels: two numbers of channels; gi", Conflict),
        ("RTX 3090, 5600X, 64GB 6000MHz", "ryzen-5600x and 6000 MT/s: ddr4 is not sold at this speed", Conflict),
        ("rtx-3090 + ryzen-5600 + ddr5-6000x2 + 64GB", "ryzen-5600 and ddr5-6000x2: this CPU takes ddr4; le", Conflict),
        ("RTX 3090, 64GB 3600", "'64GB 3600': write ryzen-3600, or 3600 MT/s for the speed of the RAM", Malformed),
        ("Ryzen 5600 + 32GB + 6800", "unknown part '6800'; write rx-6800 or 6800 MT/s for the speed of t", UnknownName),
        ("EPYC 9654, 24x DDR5-4800", "'24x DDR5-4800': modules or channels? Write channels of one socket a", Malformed),
        ("RTX 3090 + -64GB", "'-64GB': less than nothing; write 64GB without the sign", OutOfRange),
        ("RTX 3090 eGPU, Ryzen 7 7840HS, 32GB", "'RTX 3090 eGPU': over which cable? Write it as a part, s", Incomplete),
        ("64GB (4x32GB), RTX 3090", "64GiB and 4x32GB: two sizes of RAM; give one", Conflict),
        ("RTX 3090, 0 channels, 64GB", "'0 channels': give 1 to 12 channels, those of one socket", OutOfRange),
        ("RTX 3090, 64GB, 16 channels", "16 channels; give 1 to 12, those of one socket", OutOfRange),
        ("vast.ai RTX 3090 64GB", "'RTX 3090 64GB': rtx-3090 was sold with 24 GB, not 64; RAM is a part o", OutOfRange),
        ("QNAP TS-873A 64GB", "unknown machine 'QNAP TS-873A 64GB': 'QNAP TS-873A' names no part; write ", UnknownName),
        ("RTX 4090/3090 + 64GB", "unknown part 'RTX 4090/3090'", UnknownName),
        ("RTX 3060, 1TB SSD, 32GB", "'1TB SSD': of which kind? Write sata-ssd, nvme-gen3,", Incomplete),
        ("RTX 3060 + 64GB + 2TB", "'2TB': write a drive by its kind, without its size, such as nvme-gen4; ", Malformed),
        ("RTX 3060, NVMe SSD ~1400 MB/s, 32GB", "'NVMe SSD ~1400 MB/s': write a drive by its kind, such a", Incomplete),
    ],
)
def test_questions(described: str, message: str, kind: type[BadInput]) -> None:
    with refused(kind, begins=message):
        load_machine(described)


def test_a_path_is_no_description() -> None:
    for path in ("./rtx-3060", "none/../mine", "my.toml", "C:\\mine", "/tmp/x y", "."):
        assert is_path(path)
        assert as_parts(path) == path
    assert not is_path("RTX 4070, NVMe at 3400 MB/s")
    assert all(as_parts(name) == name for name in catalogue())


def test_the_order_of_parts_does_not_matter() -> None:
    parts = ["RTX 3090", "i9-12900K", "64GB DDR5-4800", "990 PRO", "Ubuntu"]
    names = {load_machine(mark.join(parts[at:] + parts[:at])).name for at in range(5) for mark in (" + ", ", ", " / ")}
    assert names == {"rtx-3090 + i9-12900k + ddr5-4800x2 + 990-pro + 64GiB + linux"}
    with pytest.raises(Incomplete):
        load_machine("RTX 3090 / i9-12900K")


# Machines as people write them, each with the parts that a reader took it for before the program did, as the program
# writes them; none where something has to be asked. origin: where it stands, empty for one made up in the same manner.
PEOPLE = list(csv.DictReader(Path(__file__).with_name("people.csv").read_text("utf-8").splitlines()))


def parts_of(described: str) -> list[str]:
    """The parts that a description is taken for, in alphabetical order; none if something is asked."""
    try:
        names = [load_machine(one).name for one in machines_in(described)]
    except BadInput:
        return []
    return sorted(" && ".join(names).split(" + "))


def meant(parts: str) -> list[list[str]]:
    """The parts of a row, and the preset of the same parts."""
    names = sorted(filter(None, parts.split(" + ")))
    chip = next((name for name in names if not name.endswith("GiB")), "")
    preset = [f"{chip}-{names[0].removesuffix('GiB')}"] if len(names) == 2 and names[0].endswith("GiB") else []
    return [names, preset]


def test_people_are_understood() -> None:
    taken = {row["as_written"]: (parts_of(row["as_written"]), meant(row["parts"])) for row in PEOPLE}
    wrong = [text for text, (parts, asked_for) in taken.items() if parts and parts not in asked_for]
    assert wrong == []
    assert sum(bool(parts) for parts, _ in taken.values()) >= 201
    assert len(PEOPLE) == 240
