"""The five steps of CONTRIBUTING.md to a policy of one's own, followed to the letter in a copy of the project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STEPS = (ROOT / "CONTRIBUTING.md").read_text().partition("## Add a policy, in five steps\n")[2].partition("\n## ")[0]

Run = Callable[..., str]


def written(text: str) -> dict[str, str]:
    """Each file that a step writes whole: the last path named before its block of Python."""
    blocks = re.finditer(r"```python\n(.*?)```", text, re.DOTALL)
    return {re.findall(r"`([\w/]+\.py)`", text[: block.start()])[-1]: block[1] for block in blocks}


def added(text: str) -> dict[str, str]:
    """Each file that a step adds lines to, and those lines, with the one that they come after."""
    blocks = re.finditer(r"```diff\n(.*?)```", text, re.DOTALL)
    return {re.findall(r"`([\w/]+\.py)`", text[: block.start()])[-1]: block[1] for block in blocks}


def add(source: str, change: str) -> str:
    """Do what a change says: a new import among its like, the other line after the one above it."""
    imported, context, entry = change.splitlines()
    assert (imported[0], context[0], entry[0]) == ("+", " ", "+")
    alike = ".".join(imported.removeprefix("+").split()[1].split(".")[:-1])
    lines = source.splitlines()
    lines.insert(lines.index(context[1:]) + 1, entry[1:])
    before = (number for number, line in enumerate(lines) if line.startswith(f"from {alike}") and line < imported[1:])
    lines.insert(max(before) + 1, imported[1:])
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs Python in a copy of the project after the first three steps."""
    place = tmp_path_factory.mktemp("project")
    for folder in ("flashmoe_sim", "tests"):
        shutil.copytree(ROOT / folder, place / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", place)
    for folder in ("traces", "data"):
        (place / folder).symlink_to(ROOT / folder)
    for name, content in written(STEPS).items():
        (place / name).write_text(content)
    for name, change in added(STEPS).items():
        (place / name).write_text(add((place / name).read_text(), change))
    environment = {**os.environ, "FLASHMOE_CACHE": str(place / "cache"), "COLUMNS": "80"}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=place, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    where = run("-c", "import flashmoe_sim; print(flashmoe_sim.__file__)")
    assert Path(where.strip()).is_relative_to(place)
    return run


def test_there_are_five_steps() -> None:
    assert re.findall(r"^\*\*(\d)\. ", STEPS, re.MULTILINE) == ["1", "2", "3", "4", "5"]
    assert list(written(STEPS)) == ["flashmoe_sim/policies/toy.py", "tests/policies/naive/toy.py"]
    assert list(added(STEPS)) == ["flashmoe_sim/policies/table.py", "tests/policies/naive/table.py"]


def test_the_new_policy_replays(run: Run) -> None:
    command = "from native_bridge.cli.main import entry; entry()"
    assert "Evict the expert used last of all (MRU)" in run("-c", command, "policy", "show", "toy")
    asked = ("deepseek-v2-lite", "--bank", "8", "--contract", "atomic", "--policy")
    assert run("-c", command, "replay", *asked, "toy").startswith("deepseek-v2-lite: toy, bank 8 ")


def test_the_new_policy_equals_its_twin(run: Run) -> None:
    """And what else the tests ask of every policy, but for what would compile much or takes all policies."""
    chosen = "(toy or every_policy_has_a_twin) and not many_experts and not bytes"
    tests = ("tests/residency/test_twins.py", "tests/policies", "tests/test_reference.py")
    passed = re.search(r"(\d+) passed", run("-m", "pytest", "-q", "-k", chosen, *tests))
    assert passed
    assert int(passed[1]) >= 10


def test_the_new_files_are_as_the_linters_want_them(run: Run) -> None:
    names = [*written(STEPS), *added(STEPS)]
    run("-m", "ruff", "check", *names)
    run("-m", "ruff", "format", "--check", *names)
