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


@pytest.mark.parametrize(
    ("word", "lines"),
    [
        ("4090", ["rtx-4090 gpu NVIDIA GeForce RTX 4090 24 1008", "rtx-4090d gpu NVIDIA GeForce RTX 4090 D 24 1008"]),
        ("Ryzen 5 5600G", ["ryzen-5600g cpu AMD Ryzen 5 5600G - 51.2"]),
        ("990-pro", ["990-pro storage Samsung 990 PRO - 7.45"]),
        ("arc-pro-b70", ["arc-pro-b70 gpu Intel Arc Pro B70 32 ~608"]),
    ],
)
def test_parts_with_a_word(capsys: pytest.CaptureFixture[str], word: str, lines: list[str]) -> None:
    out = [" ".join(line.split()) for line in printed_by(capsys, "machine", "parts", word).splitlines()]
    assert set(lines) <= set(out[2 : out.index("")])


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["machine", "parts", "abacus"], "sim: unknown part 'abacus'; `sim machine parts` lists all\n"),
        (["machine", "build", "rtx-3060 + hdd", "--out", "a.toml"], "sim: rtx-3060 + hdd: no size of RAM"),
        (["machine", "build", "m9-48", "--out", "a.toml"], "sim: unknown part 'm9-48'; did you mean 'm4'?"),
        (["machine", "show", "rtx-3060 + rx-6800 + 8GiB"], "sim: rtx-3060 and rx-6800: GPUs of two makers"),
        (["replay", *REPLAY, "--machine", "rtx-309 + 8GiB"], "sim: unknown part 'rtx-309'; did you mean 'rtx-3090'"),
        (["sweep", *REPLAY, "--machine", "m3-max-48, hdd + 8GiB"], "sim: hdd + 8GiB: nothing computes; add a GPU"),
        (["ceilings", *REPLAY, "--machine", "2x m3-max + 8GiB"], "sim: '2x m3-max': several machines need the"),
    ],
)
def test_bad_parts_are_one_line(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal(capsys, *arguments).startswith(message)
    assert not list(tmp_path.iterdir())


def test_parts_from_python() -> None:
    table = api.replay("gpt-oss-120b", bank=16, contract="atomic", machine=PARTS)
    assert table["machine"].to_list() == [load_machine(PARTS).name]
