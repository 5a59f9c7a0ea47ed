"""The guides of CONTRIBUTING.md, followed to the letter in a copy of the project."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flashmoe_sim.cli.main import main
from tests.measured.bench import as_json, row

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
GUIDES: dict[str, str] = dict(re.findall(r"^## (Add an? [^\n]+)\n(.*?)(?=^## )", TEXT, re.MULTILINE | re.DOTALL))
COMMANDS = """
import sys
from native_bridge.cli.main import main
for words in sys.argv[1:]:
    assert main(words.split()) == 0
    print("END")
"""

Run = Callable[..., str]


def written(text: str) -> dict[str, str]:
    """Each file that a step writes whole: an example of `tests/guide`, or a block and the last path named before it."""
    blocks = re.finditer(r"```python\n(.*?)```", text, re.DOTALL)
    files = {re.findall(r"`([\w/-]+\.py)`", text[: block.start()])[-1]: block[1] for block in blocks}
    examples = re.findall(r"\]\(tests/guide/([\w/.-]+)\)", text)
    return files | {path: (ROOT / "tests" / "guide" / path).read_text() for path in examples}


def added(text: str) -> dict[str, str]:
    """Each file that a step adds lines to, and those lines, with the one that they come after."""
    blocks = re.finditer(r"```diff\n(.*?)```", text, re.DOTALL)
    return {re.findall(r"`([\w/]+\.py)`", text[: block.start()])[-1]: block[1] for block in blocks}


def test_every_example_is_in_a_guide() -> None:
    examples = [path for path in (ROOT / "tests" / "guide").rglob("*") if path.suffix in (".py", ".toml", ".txt")]
    assert {f"(tests/guide/{path.relative_to(ROOT / 'tests' / 'guide')})" in TEXT for path in examples} == {True}


def add(source: str, change: str) -> str:
    """Do what a change says: a new import, if there is one, among its like; the other line after the one above it."""
    *imported, context, entry = change.splitlines()
    assert (context[0], entry[0]) == (" ", "+")
    lines = source.splitlines()
    lines.insert(lines.index(context[1:]) + 1, entry[1:])
    for new in imported:
        alike = ".".join(new.removeprefix("+").split()[1].split(".")[:-1])
        before = (number for number, line in enumerate(lines) if line.startswith(f"from {alike}") and line < new[1:])
        lines.insert(max(before) + 1, new[1:])
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs Python in a copy of the project after the steps of all guides."""
    place = tmp_path_factory.mktemp("project")
    for folder in ("flashmoe_sim", "native_bridge", "tests"):
        shutil.copytree(ROOT / folder, place / folder)  # with what Python and pytest made of each file
    shutil.copy(ROOT / "pyproject.toml", place)
    for folder in ("traces", "data"):
        (place / folder).symlink_to(ROOT / folder)
    for steps in GUIDES.values():
        for name, content in written(steps).items():
            (place / name).write_text(content)
        for name, change in added(steps).items():
            (place / name).write_text(add((place / name).read_text(), change))
    (place / "words.txt").write_text("0 1 2\n1 3 4\n0 2 5\n1 3 0\n")
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


def printed(run: Run, *commands: str) -> list[str]:
    """What each command prints, all in one process."""
    return run("-c", COMMANDS, *commands).split("END\n")[:-1]


@pytest.fixture(scope="module")
def passed(run: Run) -> list[str]:
    """The tests of the new parts that pass; none fails. Tests that would compile much are left out."""
    new = "(toy or every_policy_has_a_twin or hits-first or found_by_its_name or quarter-bank)"
    chosen = f"{new} and not stamp and not many_experts and not bytes"
    timeline = (f"tests/timeline/{name}.py" for name in ("test_twins", "test_hand", "test_perfetto", "test_execution"))
    files = ("tests/residency/test_twins.py", "tests/policies", *timeline, "tests/systems", "tests/test_reference.py")
    done = run("-m", "pytest", "-v", "-p", "no:xdist", "-k", chosen, *files)
    return re.findall(r"^(\S.*) PASSED", done, re.MULTILINE)


def count(names: list[str], *parts: str) -> int:
    return sum(any(part in name for part in parts) for name in names)


@pytest.mark.parametrize("guide", GUIDES)
def test_steps_are_numbered_and_each_guide_is_one_file_and_one_line(guide: str) -> None:
    """A file with what it declares may stand beside it."""
    steps = re.findall(r"^\*\*(\d)\. ", GUIDES[guide], re.MULTILINE)
    assert steps == [str(number) for number in range(1, len(steps) + 1)]
    for names in (written(GUIDES[guide]), added(GUIDES[guide])):
        assert len({Path(name).stem.replace("-", "_") for name in names if name.startswith("flashmoe_sim/")}) == 1


def test_the_new_policy_replays(run: Run) -> None:
    asked = "replay deepseek-v2-lite --bank 8 --contract atomic --policy toy"
    shown, replayed = printed(run, "policy show toy", asked)
    assert "Evict the expert used last of all (MRU)" in shown
    assert replayed.startswith("deepseek-v2-lite: toy, bank 8 ")


def test_the_new_policy_equals_its_twin(passed: list[str]) -> None:
    """And what else the tests ask of every policy."""
    assert count(passed, "toy", "every_policy_has_a_twin") >= 9


def test_the_new_execution_model_equals_its_twin_and_obeys_the_laws(run: Run, passed: list[str]) -> None:
    assert "hits-first" in printed(run, "sweep --help-all")[0]
    assert count(passed, "hits-first", "found_by_its_name") >= 4


def test_the_new_format_is_read_and_runs_on_the_new_machine(run: Run) -> None:
    asked = "replay deepseek-v2-lite --bank 8 --machine toy-box --execution hits-first"
    found, machine, replayed = printed(run, "trace inspect words.txt", "machine show toy-box", asked)
    assert "words" in found
    assert machine.startswith("toy-box: A box that computes on its CPU")
    assert "on toy-box: A box that computes on its CPU; hits-first" in replayed


def test_the_new_system_is_compared(run: Run, passed: list[str]) -> None:
    (compared,) = printed(run, "compare deepseek-v2-lite --machine rtx-3090 --system quarter-bank")
    assert "(quarter-bank, on Linux only)\n    quarter-bank -m MODEL.gguf -c 4096 --io-split 4" in compared
    assert count(passed, "quarter-bank") >= 3


def test_the_new_system_is_asked_for_published_rows(run: Run) -> None:
    row = "row(Path(), engine='Nobody (quarter-bank 0.2)', strategy='slot_bank_ssd')"
    lines = (
        "from pathlib import Path",
        "from flashmoe_sim.field.asked import system_of",
        "from tests.field.builders import row",
    )
    assert run("-c", "\n".join((*lines, f"print(system_of({row}).spec)"))) == "quarter-bank\n"


def test_the_new_verb_runs_and_explains_itself(run: Run) -> None:
    asked = ("--help", "used --help", "used deepseek-v2-lite", "used deepseek-v2-lite --least 64 --json")
    verbs, options, table, found = printed(run, *asked)
    assert "count the experts that a trace uses" in verbs
    assert "Only layers that use at least N experts." in options
    assert "Experts in use\n" in table
    assert {layer["used"] for layer in json.loads(found)["layers"]} <= {64}


def test_a_measured_speed_becomes_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bench.json").write_text(as_json([row()]))
    _, steps = TEXT.split("## A speed that you measured\n", 1)
    lines = steps.partition("```sh\n")[2].partition("```")[0].replace("\\\n", " ").splitlines()
    for line in lines:
        capsys.readouterr()
        assert main(shlex.split(line)[1:]) == 0
    assert len(lines) == 2
    assert re.search(r"^my-pc-gpt-oss-120b\S+ +16 +\d+ \([\d.]+ to \d+\)", capsys.readouterr().out, re.MULTILINE)


def test_the_new_files_are_as_the_linters_want_them(run: Run) -> None:
    names = [name for steps in GUIDES.values() for name in (*written(steps), *added(steps)) if name.endswith(".py")]
    run("-m", "ruff", "check", *names)
    run("-m", "ruff", "format", "--check", *names)
