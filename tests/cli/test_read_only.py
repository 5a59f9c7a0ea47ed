"""A file system that cannot be written to: one line, exit code 2, and nothing left behind."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.cli.main import main


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a disk that became read-only; the user who tests may be root, whom permissions do not stop."""
    place = tmp_path / "disk"
    (place / "results").mkdir(parents=True)
    make, opened, open_path, temporary = os.mkdir, os.open, Path.open, tempfile.mkdtemp

    def refuse(path: Any) -> None:
        if Path(os.fsdecode(path)).absolute().is_relative_to(place):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), os.fsdecode(path))

    def mkdir(path: Any, *given: Any, **named: Any) -> None:
        refuse(path)
        make(path, *given, **named)

    def os_open(path: Any, flags: int, *given: Any, **named: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            refuse(path)
        return opened(path, flags, *given, **named)

    def path_open(path: Path, mode: str = "r", *given: Any, **named: Any) -> Any:
        if not set(mode) <= set("rbt"):
            refuse(path)
        return open_path(path, mode, *given, **named)

    def mkdtemp(*given: Any, **named: Any) -> str:
        if named.get("dir"):
            refuse(named["dir"])
        return temporary(*given, **named)

    monkeypatch.setattr(os, "mkdir", mkdir)
    monkeypatch.setattr(os, "open", os_open)
    monkeypatch.setattr(Path, "open", path_open)
    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    monkeypatch.chdir(place)
    return place


ON_GPU = ["deepseek-v2-lite", "--machine", "rtx-3060", "--system", "placed"]


@pytest.mark.parametrize(
    "asked",
    [
        ["sweep", "python-256", "--bank", "16", "--out", "results"],
        ["sweep", "python-256", "--bank", "16", "--out", "new/results"],
        ["recommend", *ON_GPU, "--save", "page.html"],
        ["compare", *ON_GPU, "--out", "rows.csv"],
        ["trace", "convert", "python-256", "a.parquet"],
        ["trace", "profile", "python-256", "a.json"],
        ["machine", "build", "rtx-3060 + 32GiB", "--out", "mine.toml"],
        ["policy", "judge", "python-256", "--bank", "16", "--policy", "fifo", "--out", "judged.pdf"],
        ["notebook", "01_first_sweep", "--dir", "new", "--no-open"],
    ],
    ids=" ".join,
)
def test_a_read_only_file_system_is_one_line(capsys: pytest.CaptureFixture[str], disk: Path, asked: list[str]) -> None:
    assert main(asked) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("sim: bank")]
    assert len(said) == 1
    assert "Read-only file system" in said[0]
    assert [path.name for path in disk.rglob("*")] == ["results"]
