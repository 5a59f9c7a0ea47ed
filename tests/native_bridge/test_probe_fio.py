"""fio: what it prints, and one line for whatever else it does."""

from __future__ import annotations

import json
import shlex
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from flashmoe_sim.io.errors import SimError
from native_bridge.probe import fio
from native_bridge.probe.fio import fio_reads, fio_version, parse_fio

RECORDED = Path(__file__).parent / "recorded" / "fio-3.33.txt"
PRINTED = RECORDED.read_text()

Edit = Callable[[str], str]


def test_a_recorded_report() -> None:
    """Four threads, reads of 1 MiB: 1,760 of them in 1.503 s; four notes stand before the document."""
    found = parse_fio(PRINTED)
    assert found == (1760 * 2**20, 1.503)
    document = json.loads(PRINTED[PRINTED.index("{") :])
    assert found.gb_s == pytest.approx(document["jobs"][0]["read"]["bw_bytes"] / 1e9, rel=1e-6)
    assert parse_fio(PRINTED[PRINTED.index("{") :]) == found


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda text: "", "no JSON"),
        (lambda text: "fio: pid=0, err=22\n", "no JSON"),
        (lambda text: text[: len(text) // 2], "no JSON"),
        (lambda text: "[" * 100_000, "no JSON"),
        (lambda text: "[]", "another form"),
        (lambda text: '{"jobs": []}', "another form"),
        (lambda text: '{"jobs": [3], "fio version": "fio-3"}', "another form"),
        (lambda text: text.replace('"io_bytes" : 1845493760', '"io_bytes" : "many"'), "another form"),
        (lambda text: text.replace('"error" : 0', '"error" : 5'), "error 5"),
        (lambda text: text.replace('"io_bytes" : 1845493760', '"io_bytes" : 0'), "no reads"),
        (lambda text: text.replace('"runtime" : 1503', '"runtime" : 0'), "no reads"),
    ],
)
def test_what_is_no_report_of_reads(edit: Edit, says: str) -> None:
    with pytest.raises(SimError, match=says) as raised:
        parse_fio(edit(PRINTED))
    assert "\n" not in str(raised.value)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A function that puts a script named fio on PATH; its arguments go to a file."""

    def install(script: str) -> Path:
        arguments = tmp_path / "arguments"
        program = tmp_path / "fio"
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{shlex.quote(str(arguments))}\n{script}\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return arguments

    return install


def test_the_command(stand_in: Callable[[str], Path]) -> None:
    arguments = stand_in(f"cat {shlex.quote(str(RECORDED))}")
    found = fio_reads(Path("/a:b/reads"), size_bytes=1 << 20, depth=4, seconds=0.25)
    assert found == parse_fio(PRINTED)
    words = arguments.read_text().splitlines()
    assert {"--readonly", "--allow_file_create=0", "--direct=1", "--output-format=json"} < set(words)
    assert {"--bs=1048576", "--numjobs=4", "--runtime=250ms", r"--filename=/a\:b/reads"} < set(words)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo fio: engine psync not loadable >&2; exit 1", "code 1: fio: engine psync not loadable"),
        ("exit 3", "code 3: nothing"),
        ("echo hello", "no JSON"),
        ("kill -9 $$", "code -9"),
    ],
)
def test_a_fio_that_fails(stand_in: Callable[[str], Path], script: str, says: str) -> None:
    stand_in(script)
    with pytest.raises(SimError, match=says):
        fio_reads(Path("reads"), size_bytes=4096, depth=1, seconds=0.01)


def test_a_fio_that_hangs(stand_in: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fio, "PATIENCE_S", 0.3)
    stand_in("sleep 60")
    with pytest.raises(SimError, match="did not end"):
        fio_reads(Path("reads"), size_bytes=4096, depth=1, seconds=0.01)


def test_version(stand_in: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in("echo fio-3.36-12-gabc")
    assert fio_version() == "3.36-12-gabc"
    stand_in("echo 'flexible'")
    with pytest.raises(SimError, match="flexible"):
        fio_version()
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert fio_version() is None
