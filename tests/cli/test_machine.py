"""`sim machine`: presets and parts in tables, every number of one machine, and parts wherever one can be named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flashmoe_sim import api
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.parts import catalogue
from flashmoe_sim.machines.table import PRESETS
from tests.machines.builders import FULL
from tests.support import document, printed_by, refusal


def test_list_names_every_preset_and_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed_by(capsys, "machine", "list")
    lines = out.splitlines()
    assert [line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in PRESETS] == list(PRESETS)
    assert max(map(len, lines)) <= 80
    assert "…" not in out
    by_name = {line.split()[0]: line.split()[-4:] for line in lines if line}
    assert by_name["rtx-4090"] == ["96", "6.2", "23.9", "~860"]
    assert by_name["phone-ufs4"] == ["10.8", "2.58", "-", "~23"]


def test_list_json(capsys: pytest.CaptureFixture[str]) -> None:
    listed = document(capsys, "machine", "list")["machines"]
    assert [entry["name"] for entry in listed] == list(PRESETS)
    for entry in listed:
        for path, quantity in load_machine(entry["name"]).quantities():
            section, _, key = path.partition(".")
            assert entry[section][key]["value"] == quantity.value
    assert listed[-1]["gpu"] is None


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_as_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(printed_by(capsys, "machine", "show", name, "--toml"))
    assert load_machine(file) == load_machine(name)


@pytest.mark.parametrize("name", PRESETS)
def test_show_says_all(capsys: pytest.CaptureFixture[str], name: str) -> None:
    out = printed_by(capsys, "machine", "show", name)
    assert max(map(len, out.splitlines())) <= 80
    packed = "".join(out.split())  # a long word is broken where the line ends
    machine = load_machine(name)
    for path, quantity in machine.quantities():
        key = path.partition(".")[2]
        assert f"  {key} {'~' if quantity.estimated else ''}{quantity.value:.4g}" in out
        for text in (quantity.source, quantity.condition):
            assert "".join(text.split()) in packed
    for point in machine.storage.measured:
        line = rf"^    {point.size_kib:g} KiB: .*\b{point.lanes}: {point.gb_s:.3g}(,|$)"
        assert re.search(line, out, re.MULTILINE)
    assert ("share the bandwidth of one memory" in out) == machine.unified


def test_show_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(FULL)
    out = printed_by(capsys, "machine", "show", str(path))
    facts = "operating system: linux\nmaker of the GPU: nvidia\ncompute capability: 8.9\n"
    facts += "features of the CPU: avx2, avx512\ncores of the CPU: 16\n"
    assert out.startswith(f"full: A machine with every section\n{facts}\nmemory\n  ram_gib 64\n")
    assert "  reserve_gib ~4  (2.5 to 6.4)\n" in out
    assert "  4096 KiB: 4: 3.5\n" in out
    assert out.endswith("  date: 2026-01-01\n  command: sim machine fit a b\n")
    found = document(capsys, "machine", "show", str(path))
    assert found["storage"]["measured"] == [{"size_kib": 4096, "lanes": 4, "gb_s": 3.5, "source": "fio"}]
    assert found["anchors"]["runs"] == ["a", "b"]
    assert found["cpu"]["weights_gb_s"] is None


PARTS = "rtx-3060 + ryzen-5600 + ddr4-3200x2 + 64GiB + pcie4x16 + nvme-gen4"
REPLAY = ("gpt-oss-120b", "--bank", "16", "--contract", "atomic")


def test_parts_lists_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed_by(capsys, "machine", "parts")
    listed = [line.split()[0] for line in out.splitlines() if line and not line.startswith(" ")]
    assert set(catalogue()) <= set(listed)
    assert max(map(len, out.splitlines())) <= 80
    found = document(capsys, "machine", "parts")["parts"]
    assert [entry["name"] for entry in found] == list(catalogue())
    assert found[0]["numbers"]["memory_gib"]["source"] == "NVIDIA's specification"


def test_parts_of_a_kind(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "machine", "parts", "link")["parts"]
    assert {entry["kind"] for entry in found} == {"link"}
    assert len(found) >= 12


def test_build_writes_a_file_that_is_the_machine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    out = printed_by(capsys, "machine", "build", PARTS, "--out", str(file))
    machine = load_machine(PARTS)
    assert load_machine(file) == machine
    estimated = [path for path, quantity in machine.quantities() if quantity.estimated]
    assert [line.split()[0] for line in out.splitlines() if "~" in line] == estimated
    assert "gpu.weights_gb_s ~291.6 162 to 342" in " ".join(out.split())
    assert "\nnote: rtx-3060 + " in out
    assert "exists" in refusal(capsys, "machine", "build", PARTS, "--out", file)
    found = document(capsys, "machine", "build", PARTS, "--out", str(file), "--force")
    assert found["machine"]["name"] == machine.name
    assert found["notes"] == list(machine.notes)


def test_show_takes_parts(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed_by(capsys, "machine", "show", PARTS)
    assert out.startswith("rtx-3060 + ryzen-5600 + ddr4-3200x2 + pcie4x16 + nvme-gen4 + 64GiB:")
    assert "  weights_gb_s ~291.6  (162 to 342)\n" in out


@pytest.mark.parametrize("parts", [PARTS, "m3-max + 48GiB", "gb10 + 121GiB + nvme-gen4", "ryzen-9950x + 96GiB + t705"])
def test_a_replay_on_parts_has_an_interval(capsys: pytest.CaptureFixture[str], parts: str) -> None:
    timing = document(capsys, "replay", *REPLAY, "--machine", parts)["timing"]
    assert 0 < timing["tok_s_lo"] < timing["tok_s"] < timing["tok_s_hi"]
    assert timing["notes"]


def test_a_list_of_machines_has_presets_and_parts(capsys: pytest.CaptureFixture[str]) -> None:
    rows = document(capsys, "sweep", *REPLAY, "--machine", f"m3-max-48, m3-max + 48GiB,{PARTS}")["rows"]
    assert [row["machine"] for row in rows] == ["m3-max-48", "m3-max + 48GiB", load_machine(PARTS).name]


def test_parts_from_python() -> None:
    table = api.replay("gpt-oss-120b", bank=16, contract="atomic", machine=PARTS)
    assert table["machine"].to_list() == [load_machine(PARTS).name]
