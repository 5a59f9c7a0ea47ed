"""Windows lacks the module fcntl and calls of POSIX: what needs neither works there, the rest is refused in a line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What Python lacks on Windows, as far as it can be taken away here.
WITHOUT = """
import os, sys
sys.modules["fcntl"] = sys.modules["resource"] = sys.modules["pwd"] = None
for name in ("fchmod", "pread", "preadv", "posix_fadvise", "fork", "killpg", "sched_getaffinity", "O_DIRECT"):
    if hasattr(os, name):
        delattr(os, name)
opened = os.open
def refuse_folders(path, flags, *more, **named):
    if isinstance(path, (str, os.PathLike)) and os.path.isdir(path):
        raise PermissionError(13, "Permission denied", os.fspath(path))
    return opened(path, flags, *more, **named)
os.open = refuse_folders
"""


def without_posix(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT + code]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=300)


def sim(*words: str) -> subprocess.CompletedProcess[str]:
    return without_posix(f"sys.argv = {['sim', *words]!r}\nfrom native_bridge.entry import entry\nentry()")


def test_the_api_is_imported() -> None:
    done = without_posix("import flashmoe_sim.api")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["recommend", "gpt-oss-20b", "--machine", "rtx-3060", "--system", "placed"],
        ["sweep", "gpt-oss-120b", "--bank", "8"],
        ["machine", "show", "rtx-3060"],
        ["machine", "this"],
    ],
)
def test_what_needs_no_locks_runs(words: list[str]) -> None:
    done = sim(*words)
    assert (done.returncode, done.stderr.count("error")) == (0, 0)
    assert done.stdout


def test_a_page_is_written_and_replaced(tmp_path: Path) -> None:
    page = tmp_path / "machine.toml"
    code = f"from flashmoe_sim.io.whole import atomic_writer\nfrom pathlib import Path\npath = Path({str(page)!r})\n"
    for text, force in (("one", False), ("two", True)):
        done = without_posix(f"{code}with atomic_writer(path, force={force}) as out:\n    out.write({text.encode()!r})")
        assert (done.returncode, done.stderr) == (0, "")
        assert page.read_text() == text
    assert [entry.name for entry in tmp_path.iterdir()] == ["machine.toml"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["sweep", "gpt-oss-120b", "--bank", "8", "--out", "OUT"], "OUT: a folder of results: needs Linux or macOS"),
        (["machine", "probe", "--folder", ".", "--out", "OUT"], "measuring a machine: needs Linux or macOS"),
    ],
)
def test_what_needs_them_is_refused_in_a_line(tmp_path: Path, words: list[str], what: str) -> None:
    out = str(tmp_path / "results.toml")
    done = sim(*(out if word == "OUT" else word for word in words))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"sim: {what.replace('OUT', out)}; on Windows, run it in WSL"
    assert not list(tmp_path.iterdir())
