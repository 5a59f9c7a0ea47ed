"""Systems of installed packages: what `sim system new` writes, and packages that are wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.systems.facts import engine_file, facts_of
from flashmoe_sim.systems.table import GROUP, Systems
from flashmoe_sim.verbs.system import NewSystem

ROOT = Path(__file__).parents[2]
ASKED = """
import json, sys
from native_bridge.cli.main import main
for words in sys.argv[1:]:
    assert main(words.split()) == 0
    print("END")
from flashmoe_sim.reference import systems_markdown
print(systems_markdown(), end="END\\n")
from dataclasses import replace
from flashmoe_sim.field.asked import system_of
from pathlib import Path
from flashmoe_sim.field.rows import read_rows
rows = read_rows(Path("ROOT/data/published/field.csv"))
row = next(row for row in rows if row.strategy == "slot_bank_ssd")
print(system_of(replace(row, engine="quick-moe", slots_per_layer_or_cache_gib="40 slots/layer")).spec)
from flashmoe_sim.io.errors import BadInput
try:
    system_of(replace(row, engine="quick-moe"))
except BadInput as error:
    print(error)
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the commands, the page of systems and the scores say with the package installed, which passes its test."""
    place = tmp_path_factory.mktemp("package")
    package, site = place / "quick-moe", place / "site"
    NewSystem("quick-moe", folder=package).run()
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]), "COLUMNS": "80"}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=package, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(*install, str(site), ".")
    assert "1 passed" in run("-m", "pytest", "-p", "no:cacheprovider", "tests")
    on = "gpt-oss-120b --machine rtx-4090 --json"
    return run(
        "-c", ASKED.replace("ROOT", str(ROOT)), "system list", f"compare {on} --system all", f"recommend {on}"
    ).split("END\n")


def test_every_command_has_the_system(said: list[str]) -> None:
    listed, compared, recommended, *_ = said
    assert "\nquick-moe " in listed
    (row,) = (one for one in json.loads(compared)["rows"] if one["system"] == "quick-moe")
    assert row["tok_s"] > 0
    assert "quick-moe" in recommended


def test_the_page_of_systems_and_the_scores_have_it(said: list[str]) -> None:
    *_, page, scored = said
    assert "## `quick-moe`" in page
    assert "| [`quick-moe`](#quick-moe) | gpt-oss |" in page
    spec, refused = scored.splitlines()
    assert spec == "quick-moe:slots=40"
    assert refused.endswith("does not say how many slots a layer has")


def forget() -> None:
    engine_file.cache_clear()
    facts_of.cache_clear()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("wrong_system", None)
    forget()
    return tmp_path


def install(folder: Path, entries: str, *, name: str = "wrong", code: str = "") -> None:
    """A package with entry points, and its module, as pip leaves them."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{entries}\n")
    (folder / f"{name}_system.py").write_text(code)


CLASS = """
from flashmoe_sim.systems.cpu import Cpu
from flashmoe_sim.systems.base import System
class Named(Cpu):
    name = "other"
class Empty(System):
    name = "empty"
class Bare(System):
    name = "bare"
    def plan(self, case): ...
    def memory(self, case): ...
    def launch(self, case): ...
number = 1
"""


METHODS = """
    def policy(self, case): ...
    def execution(self, case): ...
    def launch(self, case): ...
"""


@pytest.mark.parametrize(
    ("entry", "code", "error"),
    [
        ("named = wrong_system:Named", CLASS, "its class is named 'other'; expected one name"),
        ("empty = wrong_system:Empty", CLASS, "not a system yet: Empty lacks the method launch, memory, plan"),
        ("bare = wrong_system:Bare", CLASS, "not a system yet: Bare lacks title, engine, source, keeps, misses"),
        ("number = wrong_system:number", CLASS, "not a system: expected a named class that extends System"),
        ("gone = wrong_system:Gone", CLASS, "no Gone in "),
        ("broken = wrong_system:Named", "1 / 0", "ZeroDivisionError: division by zero"),
        ("absent = no_such_module:Named", CLASS, "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_a_package_that_is_wrong_is_one_line(installed: Path, entry: str, code: str, error: str) -> None:
    install(installed, entry, code=code)
    name = entry.split(maxsplit=1)[0]
    systems = Systems("flashmoe_sim.systems", {"cpu": "cpu:Cpu"})
    assert list(systems) == ["cpu", name]
    with pytest.raises(BadInput, match="system ") as raised:
        systems[name]
    assert str(raised.value).startswith(f"system {name!r} of package wrong: ")
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("entries", ["cpu = wrong_system:Named", "twice = wrong_system:Named"])
def test_two_systems_of_one_name_are_refused(installed: Path, entries: str) -> None:
    install(installed, entries, code=CLASS)
    install(installed, "twice = right_system:Named", name="right", code=CLASS)
    with pytest.raises(BadInput, match="another has this name; rename or uninstall it"):
        list(Systems("flashmoe_sim.systems", {"cpu": "cpu:Cpu"}))


FACTS = (ROOT / "flashmoe_sim/systems/skeleton/engine.toml.txt").read_text()
FACTS = FACTS.replace("$name", "wrong").replace("$day", "2026-11-30")


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ('os = ["linux"]', 'os = "linux"', "[platform]: os is 'linux'; expected a list of texts"),
        ('reads = ["gguf"]', "reads = [1]", "[formats]: reads is [1]; expected a list of texts"),
        ("common = false", 'common = "no"', "common is 'no'; expected true or false"),
        ('program = "wrong"', "program = 1", "program is 1; expected a text"),
        ('name = ""', "name = 3", "[licence]: name is 3; expected a text"),
        ("[get]", "[[get]]", "[get]: [{"),
        ('kind = "source"', 'kind = "sourced"', "kind 'sourced'; known: "),
        ("[state]", "[stat]", "unknown stat"),
        ("[platform]", "[platform", "Expected ']'"),
        ('source = "LICENSE"', "", "[licence]: no source; say where it was read"),
        ('others = "unknown"\nsource = "README.md"', "", "[archs]: no source; say where it was read"),
        ("yes =", "maybe =", "[archs]: unknown status maybe; known: yes, by-code"),
        ("others =", 'wrong = ["gpt-oss"]\nothers =', "[archs]: gpt-oss is there twice"),
        ("apis = [", "cores = [", "[platform]: unknown cores; known: os, source"),
        ('reads = ["gguf"]', "", "[formats]: no reads"),
        ("[licence]", "[licences]", "unknown licences"),
        ('up = "2026-11-30"', 'up = "May"', "looked_up 'May'; expected a day such as \"2026-11-29\""),
    ],
)
def test_facts_beside_a_class_are_checked(installed: Path, before: str, after: str, error: str) -> None:
    install(installed, "")
    __import__("wrong_system")
    assert before in FACTS
    (installed / "wrong.toml").write_text(FACTS)
    assert facts_of("wrong", beside="wrong_system").archs.served == ["gpt-oss"]
    forget()
    (installed / "wrong.toml").write_text(FACTS.replace(before, after, 1))
    with pytest.raises(BadInput, match=r"wrong\.toml: ") as raised:
        facts_of("wrong", beside="wrong_system")
    assert error in str(raised.value)


DECLARED = """
from flashmoe_sim.systems.gpu_slots import GpuSlots
class Wrong(GpuSlots, program="wrong"):"""


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ("[systems.wrong]", "[systems.right]", "[systems.wrong]: no source; say where its rule was read"),
        ("keeps = ", "keep = ", "[systems.wrong]: unknown keep; known: behind, by_faults, caches, choices, "),
        ('title = "wrong"', "title = true", "[systems.wrong]: title is True; expected a text"),
        ('title = "wrong"', 'gpu = "yes"', "[systems.wrong]: gpu is 'yes'; expected true or false"),
        (
            "limits = { slots = [1] }",
            "limits = { slots = 1 }",
            "[systems.wrong]: limits is {'slots': 1}; expected a table",
        ),
        ("limits = { slots = [1] }", "limits = [1]", "[systems.wrong]: limits is [1]; expected a table of lists"),
        ("limits = { slots = [1] }", 'costs = "x"', "[systems.wrong]: costs is 'x'; expected a table of texts"),
        ("limits = { slots = [1] }", 'fitted_off = "1"', "[systems.wrong]: fitted_off is '1'; expected a number"),
        ('title = "wrong"\n', "", "Wrong lacks title"),
    ],
)
def test_what_a_system_declares_is_checked(installed: Path, before: str, after: str, error: str) -> None:
    assert before in FACTS
    (installed / "wrong.toml").write_text(FACTS.replace(before, after, 1))
    install(installed, "wrong = wrong_system:Wrong", code=DECLARED + METHODS)
    with pytest.raises(BadInput, match="system 'wrong' of package wrong: ") as raised:
        Systems("flashmoe_sim.systems", {})["wrong"]
    assert error in str(raised.value)


def test_facts_that_are_not_there_are_named(installed: Path) -> None:
    install(installed, "")
    __import__("wrong_system")
    with pytest.raises(BadInput, match=r"wrong\.toml: no such file; expected the facts of the engine wrong"):
        facts_of("wrong", beside="wrong_system")


@pytest.mark.parametrize("name", ["Quick", "quick_moe", "-quick", "quick--moe", "9moe", "", "quick moe", "../quick"])
def test_a_name_that_cannot_be_a_systems_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="expected small letters, digits and single hyphens"):
        NewSystem(name).check()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="exists; give another folder with --dir"):
        NewSystem("quick-moe", folder=tmp_path).check()
    with pytest.raises(BadInput, match="is there already"):
        NewSystem("placed").check()
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="give another folder with --dir"):
        NewSystem("quick-moe", folder=tmp_path / "file" / "quick-moe").run()
