"""`sim bridge calibrate`: which runs it would make, which it chooses among recorded ones, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.io.errors import Conflict
from flashmoe_sim.machines.load import load_machine
from native_bridge.check.anchors import anchors_among
from native_bridge.cli.main import main
from native_bridge.engines.flashmoe.modes import MODES
from native_bridge.engines.table import ENGINES
from native_bridge.repeats import run_name
from tests.native_bridge.conftest import STAND_IN
from tests.native_bridge.recorded_runs import RUNS, TIMED, copies, edit_flags, edit_log
from tests.support import document, refusal

pytestmark = pytest.mark.usefixtures("own_folder")


def test_a_stock_run_from_a_cold_page_cache_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLASHMOE_RUNTIME", str(STAND_IN))
    given = ("--out", "m.toml", "--cache", "cold", "--parameter", "weights_gb_s")
    assert "makes a run of stock, whose experts are read while" in refusal(capsys, "bridge", "calibrate", *given)
    assert not list(tmp_path.iterdir())


def names(*parameters: str, bank: int | None = None) -> list[str]:
    model = load_model(TIMED / "manifest.json")
    requests = ENGINES["flashmoe"].calibration(model, prompt="x", bank=bank, parameters=parameters)
    return [run_name(one, MODES[one.mode]) for one in requests]


def test_the_runs_that_are_made() -> None:
    usual = ["slot-bank12", "slot-bank64", "oracle-all-hit"]
    assert names() == usual
    assert names(bank=20) == ["slot-bank20", *usual[1:]]
    assert names(bank=64) == usual[1:]
    assert names("request_us") == [*usual, "slot-bank12-split1"]
    assert names("weights_gb_s") == [*usual, "stock-topk4"]


@pytest.mark.parametrize(
    ("cache", "names"),
    [("warm", ["bank12", "allhit", "bank64", "bank64-rep2"]), ("cold", ["bank12", "allhit"])],
)
def test_the_same_machine_as_from_hand_picked_anchors(
    capsys: pytest.CaptureFixture[str], cache: str, names: list[str]
) -> None:
    asked = ("--from", TIMED, "--cache", cache, "--out", "mine.toml")
    anchors = [str(TIMED / f"{cache}-{name}") for name in names]
    assert document(capsys, "bridge", "calibrate", *asked)["runs"] == anchors
    assert main(["machine", "fit", *anchors, "--out", "fit.toml"]) == 0
    mine, fit = load_machine("mine.toml"), load_machine("fit.toml")
    assert mine.quantities() == fit.quantities()
    assert mine.anchors.command == f"sim machine fit {' '.join(anchors)} --out mine.toml"


def test_what_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(TIMED / name) for name in ("warm-stock", "warm-bank24", "warm-bank12")]
    assert main(["bridge", "calibrate", "--from", *runs, "--out", "mine.toml"]) == 0
    printed = capsys.readouterr()
    lines = [" ".join(line.split()) for line in printed.out.splitlines()]
    assert max(map(len, printed.out.splitlines())) <= 80
    assert any(line.startswith("storage.read_gb_s 3.829") for line in lines)
    assert f"fitted on {runs[2]}, {runs[0]}" in " ".join(printed.out.split()).replace("- ", "-")
    assert printed.err == "sim: wrote mine.toml\n"


def test_repeats_are_anchors_too(tmp_path: Path) -> None:
    place = copies(tmp_path, "warm-bank12", "warm-bank48", "warm-allhit", "warm-bank64-rep2", of="runs-timed")
    for name in ("warm-bank12", "warm-allhit"):
        shutil.copytree(place / name, place / f"{name}-rep2")
    found = anchors_among([place], model=None, cache=None)
    assert [one.name for one in found] == [
        "warm-bank12",
        "warm-bank12-rep2",
        "warm-allhit",
        "warm-allhit-rep2",
        "warm-bank64-rep2",
    ]


def test_runs_of_a_page_cache_left_as_it_is(tmp_path: Path) -> None:
    place = copies(tmp_path, "warm-bank12", "warm-allhit", "cold-bank12", "cold-allhit", of="runs-timed")
    for name in ("cold-bank12", "cold-allhit"):
        edit_flags(place / name, cache={"state": "as-is"})
        (place / name).rename(place / f"my-{name}")
    edit_flags(place / "my-cold-allhit", replay_of="warm-bank12")
    with pytest.raises(
        Conflict, match="runs with the page cache as-is and warm are of two machines; give --cache as-is"
    ):
        anchors_among([place], model=None, cache=None)
    found = anchors_among([place], model=None, cache="as-is")
    assert [one.name for one in found] == ["my-cold-bank12", "my-cold-allhit"]


@pytest.mark.usefixtures("stand_in")
def test_runs_are_made_with_the_page_cache_as_it_is() -> None:
    assert main(["bridge", "calibrate", "--out", "mine.toml", "--repeat", "1", "--cache", "as-is"]) == 0
    assert json.loads(Path("mine-runs/slot-bank12/run.json").read_text())["cache"] == {"state": "as-is"}


def test_another_io_split_tells_a_request(tmp_path: Path) -> None:
    """A streamed run with another io-split is chosen beside the first; whether the fit finds anything is the fit's."""
    place = copies(tmp_path, "warm-bank12", "warm-bank24", "warm-allhit", "warm-bank64-rep2", of="runs-timed")
    edit_log(place / "warm-bank24", "cache-io-split   = 4", "cache-io-split   = 1")
    edit_log(place / "warm-bank24", "iosplit=4", "iosplit=1")
    found = anchors_among([place], model=None, cache=None, parameters=["request_us"])
    assert [one.name for one in found] == ["warm-bank12", "warm-allhit", "warm-bank64-rep2", "warm-bank24"]


@pytest.mark.usefixtures("stand_in")
def test_runs_that_are_made_first(capsys: pytest.CaptureFixture[str]) -> None:
    """The stand-in replays recorded runs, so that the machine is that of these."""
    assert main(["bridge", "calibrate", "--out", "mine.toml", "--repeat", "2", "--json"]) == 0
    printed = capsys.readouterr()
    names = ["slot-bank12", "slot-bank64", "oracle-all-hit"]
    runs = [f"mine-runs/{name}-rep{number}" for number in (1, 2) for name in names]
    assert json.loads(printed.out)["runs"] == runs
    assert printed.err == (
        "sim: 6 runs of tiny-moe-64x8 in mine-runs, page cache warm: slot-bank12, slot-bank64, oracle-all-hit, 2 times "
        "in turns\n"
    )
    mine = load_machine("mine.toml")
    assert mine.anchors.runs == tuple(runs)
    assert "--model" in mine.anchors.command
    recorded = [str(RUNS / "runs" / name) for name in ("prose-bank12", "prose-bank64", "prose-allhit")]
    assert main(["machine", "fit", *recorded, "--out", "fit.toml"]) == 0
    cpu = load_machine("fit.toml").cpu
    assert mine.cpu.layer_us.value == pytest.approx(cpu.layer_us.value, rel=0.01)


@pytest.mark.usefixtures("stand_in")
def test_a_model_that_does_not_fit_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("native_bridge.host.free_ram_bytes", lambda: 1 << 20)
    line = refusal(capsys, "bridge", "calibrate", "--out", "mine.toml")
    assert "for the run whose experts are all resident, and 1.00 MiB of memory are free" in line
    assert not list(Path().iterdir())


def busy(tmp_path: Path, tok_s: dict[str, float]) -> Path:
    """Anchors and their repeats, some of which ran while other programs did."""
    place = copies(tmp_path, "warm-bank12", "warm-allhit", of="runs-timed")
    for name, speed in tok_s.items():
        source = place / name.removesuffix("-rep2")
        shutil.copytree(source, place / name)
        printed = (place / name / "log.txt").read_text(errors="replace").rpartition("Generation: ")[2].partition(" ")[0]
        edit_log(place / name, f"Generation: {printed} ", f"Generation: {speed} ")
    return place


def test_a_busy_machine_is_told_from_a_cold_page_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The repeats say it; what was recorded fits without those that other programs slowed down."""
    place = busy(tmp_path, {"warm-bank12-rep2": 4.0, "warm-allhit-rep2": 9.0})
    line = refusal(capsys, "bridge", "calibrate", "--from", place, "--out", "mine.toml")
    assert line == (
        "sim: the machine was busy: repeats of warm-bank12 ran at 4 to 14 tok/s and repeats of warm-allhit ran at 9 to "
        "23.7 tok/s; stop other programs and record them again; or fit the fastest of each: sim bridge calibrate "
        f"--from {place / 'warm-bank12'} {place / 'warm-allhit'} --out mine.toml\n"
    )
    assert main(line.partition(": sim ")[2].split()) == 0


def test_repeats_that_differ_less_are_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = busy(tmp_path, {"warm-bank12-rep2": 10.5, "warm-allhit-rep2": 23.0})
    notes = document(capsys, "bridge", "calibrate", "--from", place, "--out", "mine.toml")["notes"]
    assert notes[-1] == "the machine was busy: repeats of warm-bank12 ran at 10.5 to 14 tok/s"


@pytest.mark.usefixtures("stand_in")
def test_a_contradiction_that_no_repeat_explains_names_a_way_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flashmoe_sim.machines.fitting.CONTRADICTS", 1.001)
    assert main(["bridge", "calibrate", "--out", "mine.toml", "--repeat", "1"]) == 2
    assert capsys.readouterr().err.endswith("one kind, or give the same command with --force on a quiet machine\n")
