"""`sim sweep --out`: goes on where it was, whatever stopped it; `--dry-run` says what is left to do."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.sweep.ledger import FILE, Ledger
from flashmoe_sim.sweep.store import FILES
from flashmoe_sim.trace.store import write_store
from tests.support import document
from tests.trace.strategies import trace_of

COMMAND = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
COMMAND += "from flashmoe_sim.cli.main import entry; entry()"
ASKED = ("--bank", "4..28", "--bank-step", "2", "--policy", "lru,random,lfu", "--contract", "atomic", "--threads", "2")


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """6,000 steps of 4 layers: a sweep of about a second."""
    rng = np.random.default_rng(1)
    path = tmp_path / "trace.parquet"
    experts = rng.choice(32, (6000, 4, 2), p=np.arange(1, 33) / 528)
    write_store(
        trace_of(*((layer, [a, (a + 1 + b) % 32]) for step in experts for layer, (a, b) in enumerate(step))), path
    )
    return str(path)


@pytest.fixture
def plain(trace: str, tmp_path: Path) -> dict[str, bytes]:
    """The tables of the sweep that nothing stopped."""
    folder = tmp_path / "plain"
    assert main(["sweep", trace, *ASKED, "--out", str(folder)]) == 0
    return tables(folder)


def tables(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("results.parquet", "results.csv")}


def kept(folder: Path) -> int:
    """Rows of a ledger, while it is written to."""
    path = folder / FILE
    return max(path.read_bytes().count(b"\n") - 1, 0) if path.exists() else 0


@contextmanager
def running(trace: str, folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A sweep, at the time when it has a row."""
    command = [sys.executable, "-c", COMMAND, "sweep", trace, *ASKED, "--out", str(folder), *options]
    before = kept(folder)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            while child.poll() is None and kept(folder) <= before:
                time.sleep(0.002)
            yield child
        finally:
            child.kill()


def test_a_sweep_that_is_killed_again_and_again_ends_like_one_that_is_not(
    trace: str, plain: dict[str, bytes], tmp_path: Path
) -> None:
    rng, folder, rows = random.Random(3), tmp_path / "killed", 0
    for _ in range(3):
        with running(trace, folder) as child:
            time.sleep(rng.random() / 10)
            child.send_signal(signal.SIGKILL)
        assert kept(folder) >= rows
        rows = kept(folder)
    assert rows
    assert main(["sweep", trace, *ASKED, "--out", str(folder)]) == 0
    assert tables(folder) == plain
    assert kept(folder) == 39


@pytest.mark.parametrize(("stop", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_sweep_keeps_its_rows_and_says_how_to_go_on(
    trace: str, plain: dict[str, bytes], tmp_path: Path, stop: signal.Signals, code: int
) -> None:
    folder = tmp_path / "stopped"
    with running(trace, folder) as child:
        child.send_signal(stop)
        out, err = child.communicate(timeout=60)
    if child.returncode != 0:  # not over by then
        assert (child.returncode, out) == (code, "")
        assert "Traceback" not in err
        rows = kept(folder)
        message = f"{rows} row{'s' * (rows > 1)} of {folder} are kept; the same command goes on from there"
        assert err.splitlines()[-1] == f"sim: interrupted; {message if rows else 'nothing was left half-written'}"
        assert not rows or polars.read_parquet(folder / "results.parquet").height == rows
    assert main(["sweep", trace, *ASKED, "--out", str(folder)]) == 0
    assert tables(folder) == plain


def test_two_sweeps_into_one_folder(trace: str, plain: dict[str, bytes], tmp_path: Path) -> None:
    folder = tmp_path / "both"
    command = [sys.executable, "-c", COMMAND, "sweep", trace, *ASKED, "--out", str(folder)]
    children = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(2)]
    assert [child.communicate()[1] and child.returncode for child in children] == [0, 0]
    assert tables(folder) == plain
    assert kept(folder) == 39


def test_force_while_another_sweep_runs_is_refused(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "o"
    with running(trace, folder, "--bank-step", "1") as child:
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)  # the signal is on its way until then
        rows = kept(folder)
        code = main(["sweep", trace, *ASKED, "--out", str(folder), "--force"])
        assert kept(folder) == rows
        child.send_signal(signal.SIGCONT)
    message = f"sim: {folder}: another sweep is writing to it; wait for its end, or give another folder\n"
    assert (code, capsys.readouterr().err) == (2, message)


def test_going_on_and_starting_again(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "o"
    asked = ["sweep", trace, "--contract", "atomic", "--out", str(out)]
    assert main([*asked, "--bank", "4,8"]) == 0
    assert "going on" not in capsys.readouterr().err
    assert main([*asked, "--bank", "8,16", "--json"]) == 0
    printed = capsys.readouterr()
    assert [row["bank"] for row in json.loads(printed.out)["rows"]] == ["8", "16"]
    assert f"sim: going on with the 2 rows of {out}; --force starts again\n" in printed.err
    table = polars.read_parquet(out / "results.parquet")
    assert table["bank"].to_list() == ["8", "16", "4"]
    (out / "results.csv").unlink()
    assert main([*asked, "--bank", "4,8,16"]) == 0
    assert polars.read_csv(out / "results.csv", schema=table.schema).sort("bank_slots").equals(table.sort("bank_slots"))
    assert main([*asked, "--bank", "16", "--force"]) == 0
    assert polars.read_parquet(out / "results.parquet")["bank"].to_list() == ["16"]
    assert kept(out) == 1


def test_a_folder_that_is_renamed_meanwhile_is_an_error(
    trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No tables are written beside a ledger that is elsewhere; under the new name the sweep goes on."""
    out, moved = tmp_path / "o", tmp_path / "moved"
    append = Ledger.append

    def then_rename(ledger: Ledger, rows: Sequence[dict[str, Any]]) -> None:
        append(ledger, rows)
        if rows and out.exists():
            out.rename(moved)

    asked = ["sweep", trace, "--bank", "4", "--policy", "min", "--contract", "atomic", "--out"]
    monkeypatch.setattr(Ledger, "append", then_rename)
    assert main([*asked, str(out)]) == 1
    assert f"{out / FILE}: was moved or removed while the sweep ran; run the same" in capsys.readouterr().err
    monkeypatch.undo()
    assert not out.exists()
    assert main([*asked, str(moved)]) == 0
    assert sorted(path.name for path in moved.iterdir()) == sorted([FILE, *FILES])
    assert "going on with the 1 row of" in capsys.readouterr().err


def test_results_without_a_ledger_are_not_overwritten(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results.csv").write_text("of an older version")
    asked = ["sweep", trace, "--bank", "4", "--contract", "atomic", "--out", str(tmp_path)]
    assert main(asked) == 2
    message = "has results.csv already; give another folder, or --force to overwrite\n"
    assert capsys.readouterr().err == f"sim: {tmp_path}: {message}"
    assert not (tmp_path / FILE).exists()
    assert main([*asked, "--force"]) == 0
    assert main(asked) == 0


def test_a_torn_ledger_is_repaired_and_said(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "o"
    asked = ["sweep", trace, "--bank", "4,8", "--contract", "atomic", "--out", str(out)]
    assert main(asked) == 0
    before = tables(out)
    for left in ((out / FILE).stat().st_size - 10, 10):  # of a row, of the header
        os.truncate(out / FILE, left)
        capsys.readouterr()
        assert main(asked) == 0
        message = f"sim: {out / FILE}: its last line was torn and is dropped; its row is computed again\n"
        assert message in capsys.readouterr().err
        assert tables(out) == before


def test_a_trace_that_is_replaced_has_rows_of_its_own(trace: str, tmp_path: Path) -> None:
    out = tmp_path / "o"
    asked = ["sweep", trace, "--bank", "4", "--contract", "atomic", "--out", str(out)]
    assert main(asked) == 0
    write_store(trace_of((0, [1, 2]), (0, [2, 3])), Path(trace), force=True)
    assert main(asked) == 0
    assert polars.read_parquet(out / "results.parquet")["refs"].to_list() == [4, 48000]


def test_a_policy_without_an_id_is_computed_every_time(
    trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("flashmoe_sim.sweep.task._id_of", lambda *_: None)
    out = tmp_path / "o"
    for _ in range(2):
        assert main(["sweep", trace, "--bank", "4,8", "--contract", "atomic", "--out", str(out)]) == 0
        assert "sim: 2 rows from code of your own that cannot be identified by its" in capsys.readouterr().err
        assert polars.read_parquet(out / "results.parquet")["bank"].to_list() == ["4", "8"]
        assert kept(out) == 0


def test_dry_run_says_what_is_left(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "o"
    asked = ["sweep", trace, "--contract", "atomic", "--policy", "lru,random", "--out", str(out)]

    def planned(*options: str) -> dict[str, Any]:
        capsys.readouterr()
        found: dict[str, Any] = document(capsys, *asked, *options, "--dry-run")
        return found

    plan = planned("--bank", "4,8,64", "--threads", "3")
    assert [plan[name] for name in ("tasks", "in_ledger", "to_compute")] == [4, 0, 4]
    assert plan["passes"] == {"stack": 4, "walk": 8}
    assert {one["bank"] for one in plan["left_out"]} == {"64"}
    assert plan["estimate"]["threads"] == 3
    assert not out.exists()
    assert main([*asked, "--bank", "4,8"]) == 0
    files = {name: (out / name).stat().st_mtime_ns for name in (*FILES, FILE)}
    plan = planned("--bank", "4,8,16")
    assert [plan[name] for name in ("tasks", "in_ledger", "to_compute")] == [6, 4, 2]
    plan = planned("--bank", "4,8")
    assert (plan["to_compute"], plan["passes"]) == (0, {})
    longer = planned("--bank", "4..28", "--bank-step", "1")["estimate"]
    assert longer["seconds"] > plan["estimate"]["seconds"] == 0
    assert main([*asked, "--bank", "4,16", "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("4 tasks: 2 in the ledger, 2 to compute\n")
    output = " ".join(printed.out.split())
    assert "Rough estimate for an idle machine, within a factor of about 3: less than a second on " in output
    assert "Start (seconds) and compiling (up to minutes, once) come on top" in output
    assert files == {name: (out / name).stat().st_mtime_ns for name in (*FILES, FILE)}
