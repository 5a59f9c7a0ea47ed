"""Locks as Windows has them: bytes behind the content, in place of `flock` and of folders that can be opened."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flashmoe_sim.sweep.ledger import FILE, Ledger
from tests.windows import HIDDEN, ROOT, run, sim_each

LEDGER = """
import sys, time
from pathlib import Path
from flashmoe_sim.schema import RESULT_COLUMNS
from flashmoe_sim.sweep.ledger import Ledger
VALUES = {"str": "a", "int": 1, "float": 0.5}
ROW = {column.name: VALUES[column.dtype] for column in RESULT_COLUMNS}
def row(number):
    return ROW | {"id": f"{number:016x}", "hits": number}
"""
WRITER = f"""{LEDGER}
ledger = Ledger(Path("out"))
ledger.begin()
print("ready", flush=True)
for number in range(int(sys.argv[1]), 10**9):
    ledger.append([row(number)])
    print(number, flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder


def test_the_api_is_imported(folder: Path) -> None:
    done = run("import flashmoe_sim.api", folder=folder)
    assert (done.returncode, done.stderr) == (0, b"")


def test_what_only_posix_has_is_refused_in_a_line(folder: Path) -> None:
    ((code, _, error),) = sim_each([["machine", "probe", "--folder", ".", "--out", "m.toml"]], folder)
    assert (code, error) == (2, "sim: measuring a machine: needs Linux or macOS; on Windows, run it in WSL\n")
    assert not list(folder.iterdir())


def test_a_page_is_written_and_replaced_and_old_parts_are_removed(folder: Path) -> None:
    code = """
import sys
from pathlib import Path
from flashmoe_sim.io.whole import atomic_writer
with atomic_writer(Path("page"), force=True) as out:
    out.write(sys.argv[1].encode())
"""
    new, old = folder / ".page.0123456789abcdef.part", folder / ".page.0123456789abcdee.part"
    for text in ("one", "two"):
        for part in (new, old):
            part.touch()
        os.utime(old, (time.time() - 100,) * 2)
        done = run(code, text, folder=folder)
        assert (done.returncode, done.stderr) == (0, b"")
        assert (folder / "page").read_text() == text
        assert sorted(path.name for path in folder.iterdir()) == [new.name, "page"]


@pytest.mark.parametrize("hidden", [True, False])
def test_two_writers_that_are_killed_lose_no_row(folder: Path, *, hidden: bool) -> None:
    """Whatever a writer said was kept is there, and nothing is torn, at a random moment."""
    here = folder.parent / "as_on_windows"
    here.mkdir()
    (here / "sitecustomize.py").write_text(HIDDEN if hidden else "", encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": f"{here}:{ROOT}"}
    children = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(first)], stdout=-1, text=True, cwd=folder, env=environment)
        for first in (0, 10**6)
    ]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    refused = run(f"{LEDGER}\nLedger(Path('out'), force=True).begin()", folder=folder, hidden=hidden)
    assert b"another sweep is writing to it" in refused.stderr
    for child in children:
        child.kill()
    printed = "".join(child.communicate()[0].rpartition("\n")[0] + "\n" for child in children)
    kept = [int(line) for line in printed.split()]
    with Ledger(folder / "out") as ledger:
        found = [one["hits"] for one in ledger.rows()]
    assert kept
    assert set(kept) <= set(found)
    assert len(found) == len(set(found)) <= len(kept) + len(children)
    empty = f"{LEDGER}\nwith Ledger(Path('out'), force=True) as ledger:\n    ledger.begin()"
    again = run(empty, folder=folder, hidden=hidden)
    assert (again.returncode, again.stderr) == (0, b"")
    assert len((folder / "out" / FILE).read_bytes().splitlines()) == 1
