"""`sim notebook`: copies notebooks, keeps existing ones, and opens the copies."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.io.provenance import version
from tests.notebooks import ROOT, SOURCES
from tests.support import document, printed_by

NAMES = [path.stem for path in SOURCES]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What would have been started; JupyterLab is there."""
    commands: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, check: commands.append(command))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    return commands


def test_each_notebook_begins_with_its_question(capsys: pytest.CaptureFixture[str]) -> None:
    listed = document(capsys, "notebook", "--list")["notebooks"]
    assert [one["name"] for one in listed] == NAMES
    assert all(one["question"].endswith("?") for one in listed)
    assert listed[0]["question"] in " ".join(printed_by(capsys, "notebook", "--list").split())


def test_what_is_there_is_kept(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "notebooks" / f"{NAMES[1]}.ipynb"
    mine.parent.mkdir()
    mine.write_text("mine")
    lines = printed_by(capsys, "notebook", "--no-open").splitlines()
    assert lines[-1] == f"kept notebooks/{mine.name}: it was there already; --force copies it again"
    assert len(lines) == len(NAMES)
    assert mine.read_text() == "mine"
    assert sorted(path.stem for path in mine.parent.iterdir()) == NAMES
    assert document(capsys, "notebook", NAMES[1], "--force") == {
        "copied": [f"notebooks/{mine.name}"],
        "kept": [],
        "version": version(),
    }
    assert mine.read_bytes() == (ROOT / "notebooks" / mine.name).read_bytes()
    assert started == []


def test_jupyterlab_opens_the_copy(tmp_path: Path, started: list[list[str]]) -> None:
    place = tmp_path / "study"
    assert main(["notebook", NAMES[2][:2], "--dir", str(place)]) == 0
    assert [path.stem for path in place.iterdir()] == [NAMES[2]]
    assert main(["notebook", "--dir", str(place)]) == 0
    assert [command[1:] for command in started] == [
        ["-m", "jupyterlab", str(place / f"{NAMES[2]}.ipynb")],
        ["-m", "jupyterlab", str(place)],
    ]


def test_without_jupyterlab(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[Any]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["notebook", NAMES[0], "--dir", str(tmp_path)]) == 0
    assert "pip install '.[notebook]'" in capsys.readouterr().err
    assert started == []
