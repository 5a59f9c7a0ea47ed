"""The folder that is measured in is left as it was found, whatever happens."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import pytest

from flashmoe_sim.io.errors import BadInput, OutOfRange, TooLarge, Unusable
from native_bridge.probe import scratch as module
from native_bridge.probe.scratch import file_bytes, leftovers, scratch, write_file

MIB = 1 << 20
ROOT = Path(__file__).parents[2]


def test_nothing_is_left(tmp_path: Path) -> None:
    with scratch(tmp_path) as place:
        (place / "reads").write_bytes(b"x")
        assert leftovers(tmp_path) == [place]

    def interrupted() -> None:
        with scratch(tmp_path) as place:
            (place / "reads").write_bytes(b"x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("stage", ["writing", "reading"])
def test_signals(tmp_path: Path, number: int, code: int, stage: str) -> None:
    folder, out = tmp_path / "disk", tmp_path / "mine.toml"
    folder.mkdir()
    size = "8GiB" if stage == "writing" else "32MiB"
    words = [
        "machine",
        "probe",
        "--folder",
        str(folder),
        "--out",
        str(out),
        "--max-bytes",
        size,
        "--no-fio",
        "--no-gpu",
    ]
    program = "import sys; from native_bridge.cli.main import entry; entry()"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    child = subprocess.Popen(
        [sys.executable, "-c", program, *words], stderr=subprocess.PIPE, env=environment, text=True
    )
    try:
        deadline = time.monotonic() + 60
        least = 4 * MIB if stage == "writing" else 32 * MIB
        while sum(path.stat().st_size for path in folder.glob(".*/reads")) < least:
            assert child.poll() is None, child.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.3 if stage == "reading" else 0)
        child.send_signal(number)
        _, stderr = child.communicate(timeout=30)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == code
    assert len(stderr.splitlines()) == 1
    assert "left" in stderr
    assert list(folder.iterdir()) == []
    assert not out.exists()


def test_folders_that_do_not_do(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for folder, says in (
        (tmp_path / "none", "no such folder"),
        (file, "is not a folder"),
        (Path("/proc"), "written in"),
    ):
        with pytest.raises(BadInput, match=says), scratch(folder):
            pass


def test_how_large_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(0, 0, 100 * MIB))
    assert file_bytes(tmp_path, least_bytes=8 * MIB, most_bytes=20 * MIB) == 16 * MIB
    assert file_bytes(tmp_path, least_bytes=8 * MIB, most_bytes=1 << 40) == 48 * MIB
    with pytest.raises(OutOfRange, match=r"--max-bytes 4.00 MiB: too few; these reads need a file of 8.00 MiB"):
        file_bytes(tmp_path, least_bytes=8 * MIB, most_bytes=4 * MIB)
    with pytest.raises(TooLarge, match="100 MiB free, of which a probe takes half at most"):
        file_bytes(tmp_path, least_bytes=64 * MIB, most_bytes=1 << 40)


def test_the_file_is_as_large_as_asked_and_cannot_be_compressed(tmp_path: Path) -> None:
    path = tmp_path / "place" / "reads"
    path.parent.mkdir()
    until = time.monotonic() + 60
    written, bytes_s = write_file(path, size_bytes=5 * MIB, least_bytes=MIB, until=until, latest=until, tell=str)
    assert written == path.stat().st_size == 5 * MIB
    assert bytes_s > 0
    content = path.read_bytes()
    assert len({content[start : start + 4096] for start in range(0, 5 * MIB, 4096)}) == 5 * MIB // 4096


def test_writing_ends_in_time(tmp_path: Path) -> None:
    path = tmp_path / "place" / "reads"
    path.parent.mkdir()
    now = time.monotonic()
    written, _ = write_file(path, size_bytes=1 << 40, least_bytes=6 * MIB, until=now, latest=now + 60, tell=str)
    assert written == 8 * MIB
    with pytest.raises(OutOfRange, match=r"only 0 B could be written in time.* 6.00 MiB"):
        write_file(path, size_bytes=1 << 40, least_bytes=6 * MIB, until=now, latest=now, tell=str)


def test_a_disk_that_becomes_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(Unusable, match=r"No space left on device after 4.00 MiB") as raised, scratch(tmp_path) as place:
        write_file(
            place / "reads", size_bytes=5 * MIB, least_bytes=MIB, until=0, latest=time.monotonic() + 60, tell=str
        )
    assert str(raised.value).startswith(f"{tmp_path}: ")
    assert list(tmp_path.iterdir()) == []
