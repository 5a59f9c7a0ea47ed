"""Temporary files: gone afterwards, and one line that is about them if there can be none."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.io.errors import Unusable
from flashmoe_sim.io.whole import NoScratch, atomic_writer, temporary_folder


def test_a_folder_is_gone_afterwards_and_other_errors_pass(tmp_path: Path) -> None:
    with temporary_folder() as folder:
        (folder / "a").touch()
    assert not folder.exists()
    with pytest.raises(FileNotFoundError, match="none"), temporary_folder() as folder:
        (tmp_path / "none").stat()
    assert not folder.exists()
    with pytest.raises(Unusable, match="mine"), temporary_folder():
        raise Unusable("mine: is odd")


def test_a_file_that_cannot_be_written_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    reason = r"^no temporary file can be written \(No such file or directory\); make room"
    with pytest.raises(NoScratch, match=reason), temporary_folder() as folder:
        (folder / "none" / "a").touch()
    monkeypatch.setattr(os, "fsync", full)
    reason = r"written \(a: cannot be written \(No space left on device\)"
    with pytest.raises(NoScratch, match=reason), temporary_folder() as folder, atomic_writer(folder / "a"):
        pass


@pytest.mark.parametrize(
    "asked",
    [
        ["recommend", "deepseek-v2-lite", "--machine", "rtx-3060", "--system", "static-profile"],
        ["compare", "deepseek-v2-lite", "--machine", "rtx-3060", "--system", "hot-cache,placed"],
    ],
)
def test_no_temporary_folder_is_said_and_not_that_no_system_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: list[str]
) -> None:
    (tmp_path / "a-file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "a-file"))
    assert main(asked) == 2
    assert capsys.readouterr().err == (
        "sim: no temporary file can be written (Not a directory); make room, or name another folder with TMPDIR\n"
    )
