"""`sim sweep --out`: goes on where it was, whatever stopped it; `--dry-run` says what is left to do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
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


def kept(folder: Path) -> int:
    """Rows of a ledger, while it is written to."""
    path = folder / FILE
    return max(path.read_bytes().count(b"\n") - 1, 0) if path.exists() else 0


@pytest.mark.parametrize(("stop", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_stopped_sweep_keeps_its_rows_and_says_how_to_go_on(
    trace: str, tmp_path: Path, stop: signal.Signals, code: int
) -> None:
    plain, folder = tmp_path / "plain", tmp_path / "stopped"
    assert main(["sweep", trace, *ASKED, "--out", str(plain)]) == 0
    command = [sys.executable, "-c", COMMAND, "sweep", trace, *ASKED, "--out", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        while child.poll() is None and not kept(folder):
            time.sleep(0.002)
        child.send_signal(stop)
        out, err = child.communicate(timeout=60)
    rows = kept(folder)
    if child.returncode != 0:  # not over by then
        assert (child.returncode, out) == (code, "")
        assert "Traceback" not in err
    if child.returncode in (130, 143):
        message = f"{rows} row{'s' * (rows > 1)} of {folder} are kept; the same command goes on from there"
        assert err.splitlines()[-1] == f"sim: interrupted; {message}"
        assert polars.read_parquet(folder / "results.parquet").height == rows
    assert rows
    assert main(["sweep", trace, *ASKED, "--out", str(folder)]) == 0
    for name in ("results.parquet", "results.csv"):
        assert (folder / name).read_bytes() == (plain / name).read_bytes()
    assert kept(folder) == 39


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
    os.truncate(out / FILE, (out / FILE).stat().st_size - 10)
    assert main([*asked, "--bank", "4,8,16"]) == 0
    message = f"sim: {out / FILE}: its last line was torn and is dropped; its row is computed again\n"
    assert message in capsys.readouterr().err
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
