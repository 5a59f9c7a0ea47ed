"""The command line with what Windows has: each verb answers as it does here."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import polars
import pytest

from tests.windows import run, sim_each

TRACE = "C:/my traces/back\\slash.jsonl"
LINES = [
    ["machine", "this", "--json"],
    ["machine", "build", "rtx-3060 + 32GiB", "--out", "m.toml"],
    ["machine", "show", "m.toml"],
    ["trace", "convert", "gpt-oss-120b", TRACE],
    ["trace", "import", TRACE, "--out", "t.parquet"],
    ["trace", "lint", TRACE],
    ["trace", "profile", TRACE, "profile.csv"],
    ["replay", TRACE, "--model", "gpt-oss-120b", "--bank", "16", "--json"],
    ["replay", "t.parquet", "--bank", "16", "--json"],
    ["sweep", TRACE, "--model", "gpt-oss-120b", "--bank", "8", "--out", "out"],
    ["sweep", TRACE, "--model", "gpt-oss-120b", "--bank", "8..16", "--out", "out"],
    ["recommend", "gpt-oss-20b", "--machine", "m.toml", "--system", "placed", "--save", "page.html"],
    ["recommend", "gpt-oss-20b", "--machine", "m.toml", "--system", "placed", "--save", "page.html", "--force"],
    ["report", "out", "--out", "sweep.html", "--figures", "figures"],
    ["notebook", "--no-open"],
]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any], Path, list[Any]]:
    """The folders in which all lines ran, and what each line printed: as here, and as on Windows."""
    found: list[Any] = []
    for hidden in (False, True):
        folder = tmp_path_factory.mktemp("run") / "folder"
        (folder / TRACE).parent.mkdir(parents=True)
        found += [folder, sim_each(LINES, folder, hidden=hidden)]
    return tuple(found)


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def without_time(text: str) -> str:
    return re.sub(r'"time":"[^"]+"', "", text)


def test_every_verb_answers_alike(both: tuple[Path, list[Any], Path, list[Any]]) -> None:
    _, here, _, there = both
    for words, ours, theirs in zip(LINES, here, there, strict=True):
        assert theirs[0] == 0, (words, theirs[2])
        if words[:2] != ["machine", "this"]:  # which is told less there
            assert without_time(theirs[1]) == without_time(ours[1]), words
            assert theirs[2] == ours[2], words


def test_the_same_files_are_written(both: tuple[Path, list[Any], Path, list[Any]]) -> None:
    here, _, there, _ = both
    assert files(there) == files(here)
    for name in files(here):
        if name.endswith(".parquet"):
            assert polars.read_parquet(there / name).equals(polars.read_parquet(here / name))
        else:
            assert (there / name).read_bytes() == (here / name).read_bytes(), name


def test_names_that_windows_has_for_something_else(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    names = ["aux.toml", "NUL", "com1", "a:b.toml", "what?.toml", "end.", "CON .toml"]
    lines = [["machine", "build", "rtx-3060 + 32GiB", "--out", name] for name in names]
    lines += [["sweep", "gpt-oss-120b", "--bank", "8", "--out", name.removesuffix(".toml")] for name in names]
    for line, (code, _, error) in zip(lines, sim_each(lines, folder), strict=True):
        assert code == 2, line
        assert "cannot be the name of a file on Windows; give another name" in error, line
    assert not list(folder.iterdir())


def test_a_trace_on_stdin(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    sim_each([["trace", "convert", "gpt-oss-120b", "t.jsonl"]], folder)
    code = "import sys\nfrom native_bridge.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    crlf = (folder / "t.jsonl").read_bytes().replace(b"\n", b"\r\n")
    piped = run(code, "trace", "inspect", "-", "--json", folder=folder, stdin=crlf)
    named = run(code, "trace", "inspect", "t.jsonl", "--json", folder=folder)
    assert piped.returncode == named.returncode == 0, piped.stderr
    assert piped.stdout.replace(b"stdin", b"t") == named.stdout


ENTRY = "import sys\nsys.argv[0] = 'sim'\nfrom native_bridge.entry import entry\nentry()"


@pytest.mark.parametrize("encoding", ["cp1252", "cp437"])
def test_a_narrow_code_page(tmp_path: Path, encoding: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()

    def printed(*words: str) -> subprocess.CompletedProcess[bytes]:
        done = run(ENTRY, *words, folder=folder, PYTHONIOENCODING=encoding)
        assert (done.returncode, b"error" in done.stderr) == (0, False), done.stderr
        return done

    assert "32" in printed("sweep", "gpt-oss-120b", "--bank", "8..32").stdout.decode(encoding)
    (folder / "é─.jsonl").write_bytes(b"")
    failed = run(ENTRY, "replay", "é─.jsonl", "--bank", "8", folder=folder, PYTHONIOENCODING=encoding)
    assert failed.returncode == 2
    assert failed.stderr.decode(encoding).count("\n") == 1
