"""Asking this computer: in time, whatever the programs do, and without the network."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.here import collect
from flashmoe_sim.machines.here.read import this_machine
from flashmoe_sim.machines.load import load_machine, machines_in, parts_in
from native_bridge.verbs.probe import Probe
from tests.support import document, printed_by, refusal

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the programs are shell scripts, the files Linux's")


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_programs_that_hang_lie_or_flood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "FOLDERS", (str(tmp_path),))
    monkeypatch.setenv("PATH", ".:relative")
    monkeypatch.chdir(tmp_path)
    program(tmp_path, "nvidia-smi", 'trap "" TERM; while :; do :; done')
    program(tmp_path, "lspci", "printf '\\377\\376'; exit 3")
    program(tmp_path, "rocm-smi", "exec /usr/bin/head -c 9000000000 /dev/zero")
    (tmp_path / "dmidecode").write_text("no program")
    (tmp_path / "dmidecode").chmod(0o755)
    began = time.monotonic()
    found = collect.ask_all(collect.LINUX)
    assert time.monotonic() - began < 2
    assert found["nvidia-smi"].problem == found["nvidia-smi -L"].problem == "no answer within 1.3 s"
    assert (found["lspci"].code, found["lspci"].text) == (3, "\ufffd\ufffd")
    assert len(found["rocm-smi"].text) == collect.MOST_BYTES
    assert "cannot be started" in found["dmidecode"].problem


def test_what_a_hanging_program_started_is_ended_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "FOLDERS", (str(tmp_path),))
    program(tmp_path, "nvidia-smi", f"sleep 100 & echo $! >{tmp_path}/child; wait")
    began = time.monotonic()
    assert collect.ask_all({"nvidia-smi": ["nvidia-smi"]})["nvidia-smi"].problem == "no answer within 1.3 s"
    assert time.monotonic() - began < collect.LIMIT_S + 0.2
    stat = Path("/proc") / (tmp_path / "child").read_text().strip() / "stat"
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_no_program_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "nvidia-smi", "touch was-run")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(collect, "FOLDERS", ())
    monkeypatch.setenv("PATH", ".:")
    assert collect.ask_all(collect.LINUX) == {}
    assert not Path("was-run").exists()


def test_this_computer(capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    seen = collect.look()
    assert time.monotonic() - began < 2
    found = this_machine(seen)
    kib = int(Path("/proc/meminfo").read_text().split()[1])
    assert found.machine.memory is not None
    assert found.machine.memory.ram_gib.value <= 1.15 * kib * 1024 / GIB + 4
    assert load_machine("this").name == found.spelling == load_machine(found.spelling).name
    assert machines_in("this") == ["this"]
    parts = parts_in("this + nvme-gen4")
    assert parts is not None
    assert parts.by_kind["storage"].name == "nvme-gen4"
    shown = document(capsys, "machine", "this")
    assert (shown["parts"], shown["machine"]["name"]) == (found.spelling, found.spelling)
    assert {"name", "value", "source", "effect", "alarm"} == set(shown["seen"][0])
    assert found.spelling in printed_by(capsys, "machine", "this")


def test_what_measures_needs_a_folder_and_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(capsys, "machine", "this", "--probe") == (
        "sim: --probe needs --folder, on the disk of the models, and --out, the file to write\n"
    )
    assert refusal(capsys, "machine", "this", "--out", "a.toml").startswith("sim: --out without --probe: nothing is")


def test_it_is_seen_and_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The probe itself has tests of its own; here it only says what it was asked."""
    monkeypatch.setattr(Probe, "run", lambda self: (self.folder, self.out))
    monkeypatch.setattr(Probe, "document", lambda self, found: {"asked": [str(one) for one in found]})
    out = tmp_path / "mine.toml"
    shown = document(capsys, "machine", "this", "--probe", "--folder", tmp_path, "--out", out)
    assert shown["parts"] == load_machine("this").name
    assert shown["probe"] == {"asked": [str(tmp_path), str(out)]}


def test_a_disk_behind_partitions_is_found_or_named() -> None:
    said = collect._drive(Path.home())
    assert said.startswith(("model=", "bus=", "on=", "link=", "rotational="))
