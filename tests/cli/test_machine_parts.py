"""`sim machine parts` and `build`, and parts wherever a machine can be named."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashmoe_sim import api
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.parts import catalogue
from tests.support import document, printed_by, refusal

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
