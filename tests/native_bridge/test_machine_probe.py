"""`sim machine probe`: a quick one of this machine, and one line for whatever it cannot use."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from flashmoe_sim.geometry import named_model
from flashmoe_sim.machines.load import load_machine
from native_bridge.cli.main import main
from native_bridge.probe.own_reads import open_past_cache
from native_bridge.probe.storage import sizes_of
from tests.support import document, refusal

QUICK = ("--seconds", "2", "--max-bytes", "32MiB", "--no-fio", "--no-gpu")


PROBE = ("machine", "probe", "--folder", "disk", "--out", "mine.toml")


@pytest.fixture(autouse=True)
def disk(own_folder: None) -> None:
    Path("disk").mkdir()


def probe(*arguments: str) -> int:
    return main([*PROBE, *arguments])


def test_a_probe_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    started = time.monotonic()
    assert probe(*QUICK) == 0
    assert time.monotonic() - started < 60  # two seconds, and what a busy machine takes beside it
    out, err = capsys.readouterr()
    assert err == "sim: wrote mine.toml\n"
    assert max(map(len, out.splitlines())) <= 80
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "reads 1 in flight 2 in flight 4 in flight 8 in flight" in lines
    assert {"64.0", "256", "1.00", "4.00"} <= {line.split()[0] for line in lines if line}
    assert any(line.startswith("storage.read_gb_s") for line in lines)
    machine = load_machine("mine.toml")
    assert machine.name == "mine"
    assert machine.storage.read_gb_s.value > 0
    assert machine.storage.read_gb_s.source.endswith("own reads in threads")
    assert {point.lanes for point in machine.storage.measured} == {1, 2, 4, 8}
    assert list(Path("disk").iterdir()) == []
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["disk", "mine.toml"]
    assert main(["replay", "python-256", "--bank", "16", "--machine", "./mine.toml", "--json"]) == 0
    assert main(["ceilings", "python-256", "--bank", "16", "--machine", "./mine.toml"]) == 0


def test_json_and_the_sizes_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, *PROBE, *QUICK, "--model", "qwen3-30b-a3b")
    machine = load_machine("mine.toml")
    assert found["out"] == "mine.toml"
    assert found["machine"]["storage"]["read_gb_s"]["value"] == machine.storage.read_gb_s.value
    points = found["found"]["storage"]["points"]
    assert {point["size_bytes"] for point in points} == set(sizes_of(named_model("qwen3-30b-a3b")))
    assert len(points) == len(machine.storage.measured)
    assert set(points[0]["gb_s"]) == {"value", "lo", "hi", "rounds"}
    assert found["found"]["written_bytes"] <= 32 << 20


def test_what_is_there_is_kept_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The file without --force, and always what a probe left that was killed."""
    Path("mine.toml").write_text("mine")
    Path("disk/.flashmoe-probe-abc").mkdir()
    assert refusal(capsys, *PROBE, *QUICK) == "sim: mine.toml: exists; give --force to overwrite it\n"
    assert Path("mine.toml").read_text() == "mine"
    assert probe(*QUICK, "--force", "--expert-bytes", "64KiB") == 0
    assert load_machine("mine.toml").name == "mine"
    printed = " ".join(capsys.readouterr().out.split())
    assert "note: disk/.flashmoe-probe-abc: from a probe that was killed, or that runs now" in printed
    assert [path.name for path in Path("disk").iterdir()] == [".flashmoe-probe-abc"]


def test_a_file_of_your_own_is_read_and_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    own = Path("disk/model.gguf")
    own.write_bytes(np.random.default_rng(0).bytes(40 << 20))
    before = own.read_bytes(), own.stat().st_mtime_ns
    reading = ("machine", "probe", "--file", str(own), "--out", "mine.toml", "--expert-bytes", "1MiB", *QUICK)
    found = document(capsys, *reading)
    assert (own.read_bytes(), own.stat().st_mtime_ns) == before
    assert list(Path("disk").iterdir()) == [own]
    assert found["found"]["written_bytes"] == 0
    faults = found["found"]["faults_gb_s"]
    assert 0 < faults["lo"] <= faults["value"] <= faults["hi"]
    rate = load_machine("mine.toml").storage.faults_gb_s
    assert rate is None or rate.value > faults["value"]


def test_a_gpu_that_was_asked_for_and_is_not_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("native_bridge.probe.gpu_copies.find_spec", lambda name: None)
    line = refusal(capsys, *PROBE, *QUICK, "--gpu")
    assert "--gpu: no package copies to a CUDA device; where there is one: pip install" in line
    assert list(Path("disk").iterdir()) == []


def test_a_fio_that_prints_nonsense(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with open("fio", "w") as script:
        script.write('#!/bin/sh\n[ "$1" = --version ] && echo fio-3.33 || echo hello\n')
    Path("fio").chmod(0o755)
    monkeypatch.setenv("PATH", f"{Path.cwd()}:/usr/bin:/bin")
    with open("disk/whether", "wb") as file:
        file.write(bytes(4096))
    with open_past_cache(Path("disk/whether")) as reading:
        direct = reading.access != "buffered"
    Path("disk/whether").unlink()
    arguments = ["--seconds", "6", "--max-bytes", "32MiB", "--no-gpu", "--expert-bytes", "4MiB"]
    code = probe(*arguments)
    assert list(Path("disk").iterdir()) == []
    if direct:
        assert code == 1
        assert capsys.readouterr().err == "sim: fio printed no JSON; expected its report; try --no-fio\n"
    else:
        assert code == 0
