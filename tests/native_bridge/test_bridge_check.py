"""`sim bridge check`: the table, the page, the exit code, and one line for whatever cannot be used."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from native_bridge.cli.main import main
from tests.native_bridge.recorded_runs import RUNS, copies, edit_log, edit_record
from tests.report.parsed import Page
from tests.support import document

pytestmark = pytest.mark.usefixtures("own_folder")
TIMED = str(RUNS / "runs-timed")


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bridge", "check", TIMED]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "run mode bank slots counts tok/s measured error"
    assert "warm-bank24 slot-bank 24 16,544 exact 14.91 15 -0.6%" in lines
    assert "warm-stock stock - - - 24.34 24.3 +0.2%" in lines
    assert "warm-bank64 x2 slot-bank 64 33,088 exact 24.16 24 +0.6%" in lines  # a run and its repeat
    assert "9 of 9 runs with slots exact: 111,968 slots of 13,996 routed calls and 707" in lines
    assert "seconds from cold-bank12, cold-allhit: cold-bank48" in lines


def test_every_recorded_run_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bridge", "check", *(str(RUNS / name) for name in ("runs", "runs-256", "runs-timed"))]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "42 of 42 runs with slots exact: 923,508 slots of 110,925 routed calls and 3,250" in out
    assert "runs/prose-bank16" in out  # there are two of that name
    assert "prose-bank16 x2" not in out  # of two models


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "bridge", "check", f"{TIMED}/warm-bank24")
    (run,) = found["runs"]
    assert (found["passed"], run["verdict"], run["slots"], run["calls"]) == (True, "exact", 16544, 2068)
    assert (run["aliased_refs"], run["differences"], run["not_compared"]) == (602, [], None)
    assert run["anchors"] == ["warm-bank12", "warm-allhit", "warm-bank64"]
    assert run["ms_per_token"] == pytest.approx(1e3 / run["tok_s"])
    assert run["within_interval"] is True


def test_a_difference_is_named_and_exits_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = copies(tmp_path, "prose-bank24", "prose-bank32", "prose-allhit")
    edit_record(place / "prose-bank24", 100, slots=lambda slots: [(slots[0] + 1) % 24, *slots[1:]])
    edit_log(place / "prose-allhit", "installs=491", "installs=492")
    shutil.copy(place / "prose-bank24" / "trace.jsonl.gz", place / "prose-bank32")
    assert main(["bridge", "check", "runs"]) == 1
    printed = capsys.readouterr()
    assert printed.err == (
        "sim: 3 of 3 runs differ or could not be compared: prose-allhit, prose-bank24, prose-bank32\n"
    )
    output = " ".join(printed.out.split())
    assert "prose-bank24: runs/prose-bank24/trace.jsonl.gz, line 100 (layer " in output
    assert "line `oracle-all-hit prime`, installs: the runtime printed 492, the simulator counts 491" in output
    assert re.search(
        r"prose-bank32: runs/prose-bank32/trace.jsonl.gz, line \d+ .*; \d+ more \(--json has all\)", output
    )
    assert document(capsys, "bridge", "check", "runs", code=1)["passed"] is False


def test_seconds_alone_fail_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = copies(tmp_path, "warm-bank12", "warm-bank48", "warm-allhit", "warm-bank64-rep2", of="runs-timed")
    edit_log(place / "warm-bank48", "Generation: 19.7 t/s", "Generation: 1.9 t/s")
    assert main(["bridge", "check", "runs-timed/warm-bank48"]) == 0
    assert "+915" in capsys.readouterr().out


def test_page(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/")  # the runs may be below it, and a page shows that as ~
    assert main(["bridge", "check", TIMED, "--out", "check.html"]) == 0
    assert capsys.readouterr().err == "sim: wrote check.html\n"
    page = Page(Path("check.html").read_text())
    for text in (
        "all counts equal",
        "warm-bank24 slot-bank 24 1 16,544 79 602 exact",
        "warm-bank24 14.91 9.105 to 18.21 15 -0.6% yes 4.61 4.71 -2.3% 16.1 GiB",
        "storage.read_gb_s 3.893 2.761 to 6.173 warm-bank24, warm-bank48, warm-stock",
        "no all-hit or stock run of this machine beside the run itself",
        "not told 2 none that the log names not told mid 12 of 64 experts cold",
        f"sim bridge check {TIMED} --out check.html",
    ):
        assert text in page.text
    first = Path("check.html").read_bytes()
    assert main(["bridge", "check", TIMED, "--out", "check.html", "--force"]) == 0
    assert Path("check.html").read_bytes() == first


def test_page_of_runs_that_differ(tmp_path: Path) -> None:
    place = copies(tmp_path, "prose-bank24", "prose-allhit")
    edit_log(place / "prose-bank24", "calls=3374", "calls=<b>3375")
    (place / "prose-bank24").rename(place / "<i>bank24")
    edit_log(place / "prose-allhit", "uniq=26992", "uniq=26991")
    assert main(["bridge", "check", "runs", "--out", "check.html"]) == 1
    page = Page(Path("check.html").read_text())
    assert "2 of 2 runs differ or could not be compared" in page.text
    assert "<i>bank24" in page.text
    assert "replays prose-bank24, which is neither beside it nor given" in page.text


@pytest.mark.usefixtures("stand_in")
def test_runs_that_are_made_first(capsys: pytest.CaptureFixture[str]) -> None:
    """The stand-in replays recorded runs; its oracle-all-hit is of another trace than it is given, which is found."""
    assert main(["bridge", "check", "--runs", "made", "--json"]) == 1
    printed = capsys.readouterr()
    runs = {run["run"]: run for run in json.loads(printed.out)["runs"]}
    verdicts = dict.fromkeys(("slot-bank12", "slot-bank24", "slot-bank64", "resident-slot-bank24"), "exact")
    verdicts |= {"stock": "text", "resident-bank": "text", "oracle-prefetch-bank24": "exact"}
    verdicts |= {"slot-bank24-temporal": "exact", "slot-bank24-predict-prev": "exact", "oracle-all-hit": "differ"}
    assert {name: run["verdict"] for name, run in runs.items()} == verdicts
    (difference,) = runs["oracle-all-hit"]["differences"]
    assert difference["where"] == "made/oracle-all-hit/log.txt, line `oracle-all-hit prime`, installs"
    assert difference["runtime"] == "printed 491"
    assert printed.err.splitlines() == [
        "sim: 10 runs of tiny-moe-64x8, kept in made",
        "sim: 1 of 10 runs differ or could not be compared: oracle-all-hit",
    ]
    assert Path("made/slot-bank12/trace.jsonl.gz").exists()
    before = Path("made/slot-bank12/log.txt").stat().st_mtime_ns
    assert main(["bridge", "check", "--runs", "made", "--gpu-layers", "3"]) == 2
    assert "made/slot-bank12: exists; give --force to overwrite it" in capsys.readouterr().err
    assert main(["bridge", "check", "--runs", "made"]) == 1
    assert Path("made/slot-bank12/log.txt").stat().st_mtime_ns == before
    assert main(["bridge", "check", "made"]) == 1


@pytest.mark.usefixtures("stand_in")
def test_a_run_that_fails_while_they_are_made(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_DOES", "crash")
    assert main(["bridge", "check", "--runs", "made"]) == 1
    assert "made/slot-bank12: slot-bank: " in capsys.readouterr().err
