"""Files that appear whole: two writers, killed writers, links and permissions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flashmoe_sim.io import whole
from flashmoe_sim.io.errors import Exists, Unusable
from flashmoe_sim.io.whole import atomic_writer

WRITER = """
import sys, time
from pathlib import Path
from flashmoe_sim.io.whole import atomic_writer
with atomic_writer(Path(sys.argv[1])) as stream:
    stream.write(b"half")
    stream.flush()
    print("writing", flush=True)
    time.sleep(60)
"""


def parts(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(".part"))


def write(path: Path, content: bytes, *, force: bool = False) -> None:
    with atomic_writer(path, force=force) as stream:
        stream.write(content)


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "o.bin"
    killed = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
    killed.stdout.readline()
    (left,) = parts(tmp_path)
    other = tmp_path / ".other.bin.0123456789abcdef.part"
    other.touch()
    write(path, b"meanwhile")  # whose process lives, and whose part is another file's, stay
    assert parts(tmp_path) == sorted([left, other.name])
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    killed.stdout.close()
    assert path.read_bytes() == b"meanwhile"
    write(path, b"whole", force=True)
    assert parts(tmp_path) == [other.name]
    assert path.read_bytes() == b"whole"


def test_a_file_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "o.bin"

    def overtaken() -> None:
        with atomic_writer(path) as stream:
            path.write_bytes(b"theirs")
            stream.write(b"ours")

    with pytest.raises(Exists, match=r"o\.bin: exists by now: another process wrote it"):
        overtaken()
    assert path.read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == ["o.bin"]


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    write(tmp_path / "o.bin", b"ours")
    assert (tmp_path / "o.bin").read_bytes() == b"ours"
    assert os.listdir(tmp_path) == ["o.bin"]
    with pytest.raises(FileExistsError):
        whole.rename_new(tmp_path / "o.bin", tmp_path / "o.bin")


def test_many_writers_without_force_write_once(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from flashmoe_sim.io.whole import atomic_writer\n"
        "time.sleep(max(0, float(sys.argv[2]) - time.time()))\n"
        "with atomic_writer(Path(sys.argv[1])) as stream: stream.write(sys.argv[3].encode()); time.sleep(0.2)\n"
    )
    path = tmp_path / "o.bin"
    begin = str(time.time() + 3)
    running = [
        subprocess.Popen([sys.executable, "-c", script, str(path), begin, str(number)], stderr=subprocess.DEVNULL)
        for number in range(4)
    ]
    codes = [one.wait() for one in running]
    assert codes.count(0) == 1
    assert path.read_text() == str(codes.index(0))
    assert os.listdir(tmp_path) == ["o.bin"]


def test_a_link_put_where_the_part_will_be_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim, path = tmp_path / "victim", tmp_path / "o.bin"
    victim.write_bytes(b"precious")
    monkeypatch.setattr("secrets.token_hex", lambda _: "0123456789abcdef")
    (tmp_path / ".o.bin.0123456789abcdef.part").symlink_to(victim)
    with pytest.raises(Exists, match=r"o\.bin: exists by now"):
        write(path, b"ours")
    assert victim.read_bytes() == b"precious"


def test_a_replaced_file_hands_on_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "o.bin"
    write(path, b"1")
    usual = path.stat().st_mode
    path.chmod(0o600)
    write(path, b"2", force=True)
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    write(path, b"3", force=True)
    assert path.stat().st_mode == usual


def test_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(Unusable, match=r"o\.bin: cannot be written \(No such file or directory\)"):
        write(Path("o.bin"), b"1")


@pytest.mark.parametrize("force", [False, True])
def test_paths_that_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    with pytest.raises(Unusable, match=r"loop: cannot be written \(Too many levels of symbolic links\)"):
        write(Path("loop"), b"1", force=force)
    with pytest.raises(Unusable, match=r"none/../o.bin: cannot be written \(No such file or directory\)"):
        write(Path("none/../o.bin"), b"1", force=force)
    assert os.listdir() == ["loop"]
    Path("link").symlink_to("o.bin")
    write(Path("link"), b"1", force=force)
    assert Path("o.bin").read_bytes() == b"1"
