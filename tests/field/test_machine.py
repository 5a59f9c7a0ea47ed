"""The machine of a row has the parts that it names and the numbers that it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashmoe_sim.field.machine import built_of, machine_of, part_in
from flashmoe_sim.field.rows import read_rows
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.compose import compose
from tests.field.builders import row
from tests.field.test_rows import TABLE
from tests.support import refused


def numbers(folder: Path, **cells: str) -> dict[str, float]:
    return {path: quantity.value for path, quantity in machine_of(row(folder, **cells)).quantities()}


def test_nearly_every_published_row_has_a_machine() -> None:
    refused = []
    for one in read_rows(TABLE):
        try:
            for path, quantity in machine_of(one).quantities():
                assert 0 < quantity.lo <= quantity.value <= quantity.hi, (one.id, path)
        except BadInput as error:
            refused.append((str(error), one.where))
    assert len(refused) == 10
    assert all(message.startswith(f"{where}: ") for message, where in refused)


def test_parts_that_a_row_names_make_the_machine(tmp_path: Path) -> None:
    machine = machine_of(row(tmp_path))
    assert machine == compose("rtx-3090 + ryzen-5950x + 64GiB")


@pytest.mark.parametrize(
    ("date", "engine", "model", "more_us"),
    [
        ("2026-03-06", "Ollama 0.15", "Qwen3-Coder-Next", 1500),
        ("2026-03-07", "Ollama 0.15", "Qwen3-Coder-Next", 0),
        ("2026", "llama.cpp", "Qwen3-Coder-Next", 0),
        ("2026-03-06", "ik_llama.cpp", "Qwen3-Coder-Next", 0),
        ("2026-03-06", "llama.cpp", "Qwen3-30B-A3B", 0),
    ],
)
def test_old_builds_take_longer_for_gated_delta_nets(
    tmp_path: Path, date: str, engine: str, model: str, more_us: float
) -> None:
    cells = {"strategy": "cpu_only", "gpu": "", "date": date, "engine": engine, "model": model}
    alone = numbers(tmp_path, strategy="cpu_only", gpu="")
    assert numbers(tmp_path, **cells)["cpu.layer_us"] == alone["cpu.layer_us"] + more_us


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("RTX 5060 Ti 16GB", "gpu", "rtx-5060-ti-16gb"),
        ("1x RTX 5090 (32 GB)", "gpu", "rtx-5090"),
        ("AMD Instinct MI350P", "gpu", "mi350p"),
        ("Threadripper PRO 7965WX 24C", "cpu", "threadripper-7965wx"),
        ("Intel Core Ultra 9 285K", "cpu", "ultra-9-285k"),
        ("Xeon E5-2690 v4 (56 threads, 8 used)", "cpu", "xeon-e5-2690-v4"),
        ("Apple M5 Max 18C", "chip", "m5-max"),
        ("Apple M1 Max 32-core", "chip", "m1-max"),
        ("NVIDIA GB10 Grace", "chip", "gb10"),
        ("M2 Ultra Studio 76C", "chip", "m2-ultra"),
        ("M2 Studio", "chip", None),
        ("Jetson AGX Thor 14C", "chip", "jetson-agx-thor"),
        ("GTX 1050 Ti Mobile", "gpu", "gtx-1050-ti-laptop"),
        ("Radeon PRO W6800X", "gpu", "w6800x"),
        ("1x RTX 4090 (48 GB)", "gpu", "rtx-4090-48gb"),
        ("EPYC 9V45 64C 2 NUMA", "cpu", "epyc-9v45"),
        ("Ryzen 7 PRO 8700GE 8C", "cpu", "ryzen-8700ge"),
        ("Raspberry Pi CM5 (PCIe 2.0 x1)", "cpu", "pi-5"),
        ("(64 threads; not stated)", "cpu", None),
    ],
)
def test_parts_in_a_text(text: str, kind: str, name: str | None) -> None:
    part = part_in(text, (kind,))
    assert (None if part is None else part.name) == name


def test_equal_cards(tmp_path: Path) -> None:
    for text in ("2x RTX 3090", "2\u00d7RTX 3090", "dual NVIDIA RTX 3090 24GB", "Dual RTX 3090"):
        assert machine_of(row(tmp_path, gpu=text)) == compose("2x rtx-3090 + ryzen-5950x + 64GiB")
    two = numbers(tmp_path, gpu="2x RTX 3090", gpu_vram_gib="40")
    assert two["gpu.memory_gib"] == pytest.approx(38.4)


def test_two_different_cards_are_both_in_the_machine(tmp_path: Path) -> None:
    cells = {"gpu": "Quadro RTX 4000 + RTX 3070", "cpu": "Ryzen 9 5950X", "ram_gib": "64"}
    assert machine_of(row(tmp_path, **cells)) == compose("rtx-3070 + quadro-rtx-4000 + ryzen-5950x + 64GiB")


def test_a_gpu_inside_the_processor_computes_beside_no_card(tmp_path: Path) -> None:
    cells = {"cpu": "Ryzen 7 8845HS", "ram_gib": "64"}
    assert machine_of(row(tmp_path, gpu="Radeon 780M", **cells)).unified
    both = machine_of(row(tmp_path, gpu="RTX 4070 Laptop + Radeon 780M", **cells))
    assert both == compose("rtx-4070-laptop + ryzen-8845hs + 64GiB")


@pytest.mark.parametrize(("column", "text"), [("gpu", "2x GB10"), ("cpu", "4\u00d7 Raspberry Pi 5"), ("cpu", "2x M2")])
def test_several_machines_are_no_machine(tmp_path: Path, column: str, text: str) -> None:
    with pytest.raises(BadInput, match=f"{column} '{text}': several machines"):
        built_of(row(tmp_path, **{"strategy": "cpu_only", "gpu": "", "cpu": "", column: text}))


def test_a_card_that_is_not_known_is_not_left_out(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="gpu 'RTX 9999': no part is named so"):
        built_of(row(tmp_path, gpu="RTX 9999"))
    assert machine_of(row(tmp_path, gpu="GeForce 210", strategy="cpu_only")).gpu is None


def test_a_card_beside_another_must_be_known(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="gpu 'Quadro M9999': no part is named so"):
        built_of(row(tmp_path, gpu="RTX 2060 12GB + Quadro M9999"))


@pytest.mark.parametrize(("cpu", "generation"), [("(AM5, 16 threads)", "ddr5"), ("(AM4)", "ddr4"), ("8 cores", "")])
def test_a_socket_tells_the_generation_of_ram(tmp_path: Path, cpu: str, generation: str) -> None:
    known = "" if not generation else f" {generation}"
    assert machine_of(row(tmp_path, cpu=cpu)).memory == compose(f"rtx-3090 + 64GiB{known}").memory


def test_numbers_that_the_row_says(tmp_path: Path) -> None:
    given = numbers(tmp_path, gpu_mem_gb_s="500", ssd_gb_s="3.3", pcie="Gen3 x8 6.5 GB/s measured")
    assert (given["gpu.weights_gb_s"], given["storage.read_gb_s"], given["link.pinned_gb_s"]) == (405, 3.3, 6.5)
    nominal = numbers(tmp_path, ram_gb_s="51.2", ram_gb_s_basis="inferred (DDR4-3200 2 ch)")
    assert nominal["memory.bandwidth_gb_s"] == pytest.approx(38.91)
    assert numbers(tmp_path, ram_gb_s="30", ram_gb_s_basis="told (measured)")["memory.bandwidth_gb_s"] == 30
    two = {"gpu": "", "strategy": "cpu_only", "cpu": "2x EPYC 7763", "ram_gib": "512", "ram_gb_s_basis": "measured"}
    assert numbers(tmp_path, ram_gb_s="300", **two)["memory.bandwidth_gb_s"] == 150  # of each socket


@pytest.mark.parametrize(
    ("pcie", "link"),
    [
        ("5.0", "pcie5x16"),
        ("PCIe 3.0", "pcie3x16"),
        ("Gen4 x8 each", "pcie4x8"),
        ("NVMe PCIe 3.0 x4; GPU link PCIe 4.0 x8", "pcie4x8"),
    ],
)
def test_links_as_people_write_them(tmp_path: Path, pcie: str, link: str) -> None:
    cells = {"gpu": "RTX 5090", "cpu": "Ryzen 9 9950X", "pcie": pcie}
    assert machine_of(row(tmp_path, **cells)).link == compose(f"rtx-5090 + ryzen-9950x + 64GiB + {link}").link


def test_a_chip_has_the_speeds_of_its_preset(tmp_path: Path) -> None:
    cells = {"gpu": "Apple M5 Pro", "cpu": "Apple M5 Pro 15C"}
    same, other = (machine_of(row(tmp_path, **cells, ram_gib=size)) for size in ("48", "24"))
    assert same.gpu.weights_gb_s == other.gpu.weights_gb_s
    assert (same.gpu.memory_gib.value, other.gpu.memory_gib.value) == (37.4, 16)


def test_a_size_of_ram_that_is_not_told_holds_the_run(tmp_path: Path) -> None:
    built = built_of(row(tmp_path, model="gpt-oss-120b", quant="MXFP4", ram_gib=""))
    assert built.notes == ("RAM is not told: 96 GiB assumed, half to twice as much",)
    size = built.machine.memory.ram_gib
    assert (size.lo, size.value, size.hi, size.estimated) == (48, 96, 192, True)


def test_a_chip_that_is_sold_with_one_size_of_ram_has_it(tmp_path: Path) -> None:
    built = built_of(row(tmp_path, gpu="GB10", cpu="", ram_gib=""))
    assert built.notes == ()
    assert built.machine == machine_of(row(tmp_path, gpu="GB10", cpu="", ram_gib="128"))


def test_a_cpu_that_is_not_told(tmp_path: Path) -> None:
    desktop, server = (built_of(row(tmp_path, cpu="", ram_gib=size)) for size in ("64", "512"))
    assert desktop.notes == ("neither CPU nor RAM speed is known: two channels are assumed",)
    assert server.notes == ("no CPU is known, but 512 GiB: memory of a server is assumed",)
    assert desktop.machine.memory.bandwidth_gb_s.hi > 5 * desktop.machine.memory.bandwidth_gb_s.lo
    two = built_of(row(tmp_path, cpu="2x EPYC 7763", ram_gib="512"))
    assert two.notes == ("two sockets, threads on both sockets, memory interleaved between them",)


def test_a_drive_in_the_notes(tmp_path: Path) -> None:
    named = numbers(tmp_path, notes="Samsung 990 PRO, ext4; 66 % disk / 34 % nvme")
    assert named["storage.read_gb_s"] == 6.2
    assert numbers(tmp_path, notes="Samsung 990 PRO", ssd_gb_s="5")["storage.read_gb_s"] == 5


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"gpu": "", "cpu": ""}, "names no GPU, CPU or chip that is known; `sim machine parts` lists all"),
        ({"gpu": "", "cpu": "Apple silicon (model not stated)"}, "names no GPU, CPU or chip that is known"),
        ({"gpu": "Abacus 9000", "cpu": ""}, "gpu 'Abacus 9000': no part is named so; `sim machine parts` lists all"),
        ({"gpu": "2x GB10 (pair)", "cpu": ""}, "gpu '2x GB10 (pair)': several machines, which are not modelled"),
    ],
)
def test_a_row_that_names_nothing_that_computes(tmp_path: Path, cells: dict[str, str], message: str) -> None:
    with refused(BadInput, begins=f"{tmp_path / 'rows.csv'}: line 2: {message}"):
        machine_of(row(tmp_path, **cells))
