"""The guide to an engine of one's own in CONTRIBUTING.md, followed to the letter in a copy of the bridge."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text().partition("## An engine for the bridge\n")[2].partition("\n## ")[0]
PROGRAM = """#!/bin/sh
echo "model $(basename "$1"), $2 tokens"
echo "prompt 50.5 t/s, text 12.5 t/s"
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the bridge after the guide, and the program `toy`."""
    place = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "native_bridge", place / "native_bridge", ignore=shutil.ignore_patterns("__pycache__"))
    (module,) = re.findall(r"\]\(tests/guide/(native_bridge/[\w/]+\.py)\)", GUIDE)
    (table,) = re.findall(r"`(native_bridge/[\w/]+\.py)`", GUIDE)
    change = re.search(r"```diff\n(.*?)```", GUIDE, re.DOTALL)[1]
    (place / module).parent.mkdir()
    shutil.copy(ROOT / "tests" / "guide" / module, place / module)
    imported, before, entry = (line[1:] for line in change.splitlines())
    text = (place / table).read_text()
    assert before in text.splitlines()
    text = text.replace("\n\nENGINES", f"\n{imported}\n\nENGINES").replace(before, f"{before}\n{entry}")
    (place / table).write_text(text)
    (place / "toy").write_text(PROGRAM)
    (place / "toy").chmod(0o755)
    return place


def sim(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from native_bridge.cli.main import entry; entry()", *arguments]
    environment = {key: value for key, value in os.environ.items() if key != "FLASHMOE_RUNTIME"}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


def test_it_runs_and_its_runs_are_read(project: Path) -> None:
    asked = ("bridge", "run", "--runtime", "./toy", "--mode", "all", "--cache", "as-is", "--out", "runs")
    made = sim(project, *asked, "--tokens", "7")
    assert (made.returncode, made.stderr) == (0, "sim: 1 run of tiny-moe-64x8, page cache as-is: all\n")
    assert made.stdout.splitlines()[-2].split() == ["all", "-", "-", "12.5", "50.5"]
    document = json.loads((project / "runs" / "all" / "run.json").read_text())
    assert (document["engine"], document["rc"], document["mode"]) == ("toy", 0, "all")
    assert document["command"][0] == str(project / "toy")
    assert (project / "runs" / "all" / "log.txt").read_text().startswith("model tiny.gguf, 7 tokens\n")
    again = sim(project, *asked, "--tokens", "7", "--json")
    assert "reusing 1 of 1 runs" in again.stderr
    assert json.loads(again.stdout)["runs"][0]["decode_tok_s"] == 12.5


def test_what_it_cannot_do_is_one_line(project: Path) -> None:
    (project / "toy").write_text(PROGRAM.replace("text", "word"))
    failed = sim(project, "bridge", "run", "--runtime", "./toy", "--mode", "all", "--cache", "as-is", "--out", "failed")
    assert failed.returncode == 1
    last = failed.stderr.splitlines()[-1]
    assert last.endswith("is it of another version of the engine? log.txt: no speeds; run it again")
    refused = sim(project, "bridge", "run", "--runtime", "./toy", "--mode", "slot-bank", "--bank", "8", "--out", "none")
    assert (refused.returncode, refused.stderr) == (2, "sim: unknown mode 'slot-bank'; known: all\n")


def test_the_new_file_is_as_the_linters_want_it(project: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", project)
    (project / "flashmoe_sim").symlink_to(ROOT / "flashmoe_sim")
    for check in (("check",), ("format", "--check")):
        command = [sys.executable, "-m", "ruff", *check, "native_bridge/engines"]
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
