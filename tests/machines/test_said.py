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
    ("described", "message", "kind"),
    [
        ("2 or 3x RTX 3090 + 64GB", "'2 or 3x RTX 3090': give one number of them", Malformed),
        ("RTX 3060, Xeon E5, 64GB", "'Xeon E5': which Xeon? Write its number, such as", Incomplete),
        ("Threadripper PRO (24 core), 64GB", "'Threadripper PRO': which Threadripper? Write its number", Incomplete),
        ("M2 Studio 192GB", "'M2 Studio': which chip? A Studio has a Max or an Ultra, such as m2-max-64", Incomplete),
        (
            "RTX 4090 @ x16, RTX 3090 @ x4, 64GB",
            "'pcie': which PCIe? Write its generation and lanes, such as",
            Incomplete,
        ),
        ("My Mac only has 64G memory.", "'Mac only has': which Mac? Write its chip and memory, such as m4", Incomplete),
        ("6 gb of vram and 16 gb of ram", "6 GB of VRAM: of which GPU? Name it, such as rtx-3060", Incomplete),
        ("RTX 4070, 16GB VRAM, 32GB RAM", "16 GB of VRAM, but rtx-4070 has 12; give the card that it is", Conflict),
        ("EPYC 9355, 736GiB 23 of 24 channels", "'23 of 24 channels': write the channels of one socket be", Incomplete),
        ("RTX 4090, 7950X, 64GB, 8 channels", "ryzen-7950x and 8 channels: this CPU has the rate of 2; writ", Conflict),
        (
            "Ryzen 9 7950X quad channel DDR5-5200 128GB",
            "ryzen-7950x and 4 channels: this CPU has the rate of 2",
            Conflict,
        ),
        (
            "1*3090 + 256G RAM(8通道 DDR4 2666),E5 2630v4",
            "xeon-e5-2630-v4 and 8 channels: this CPU has the ra",
            Conflict,
        ),
        (
            "Strix Halo 128GB - CPU only",
            "'CPU only': a GPU is named beside it; leave out the one that does",
            Incomplete,
        ),
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
        ("EPYC 9654, 768GB, 460GB/s", "'460GB/s': write a drive by its kind, such as nvme-gen3, and RAM", Incomplete),
        ("2x 2080ti 22g 128g", "'2x rtx-2080-ti 22GB': each or together? Write 2x rtx-2080-ti-22gb, or 2x", Malformed),
        (
            "RTX 5090 24GB, 64GB",
            "'RTX 5090 24GB': rtx-5090 was sold with 32 GB, not 24, which rtx-5090-laptop",
            OutOfRange,
        ),
        ("RTX 4090, 32GB, 64GB", "32GiB and 64GB: two sizes of RAM; give one", Conflict),
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
    names = {
        load_machine(mark.join(parts[at:] + parts[:at])).name for at in range(5) for mark in (" + ", ", ", " / ", "\n")
    }
    assert names == {"rtx-3090 + i9-12900k + ddr5-4800x2 + 990-pro + 64GiB + linux"}
    with pytest.raises(Incomplete):
        load_machine("RTX 3090 / i9-12900K")


# What was once taken for another machine, or for none: each way to write one, and the machine's name.
WRITTEN = list(csv.reader(Path(__file__).with_name("written.csv").read_text("utf-8").splitlines()))[1:]


@pytest.mark.parametrize(("described", "name"), WRITTEN, ids=[described for described, _ in WRITTEN])
def test_descriptions(described: str, name: str) -> None:
    machine = load_machine(described)
    assert machine.name == name
    assert load_machine(name) == machine
    assert as_parts(as_parts(described)) == as_parts(described)
    assert machines_in(described) == [as_parts(described)] or "," not in described


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
    assert sum(bool(parts) for parts, _ in taken.values()) >= 222
    assert len(PEOPLE) == 246
