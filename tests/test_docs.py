"""The documentation says what the program does today."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from flashmoe_sim.cli.main import VERBS, main
from flashmoe_sim.policies.table import POLICIES
from flashmoe_sim.prefetchers.table import PREFETCHERS
from flashmoe_sim.schema import markdown
from flashmoe_sim.trace.bundled import catalog
from flashmoe_sim.trace.load import FORMATS, find_format

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_page_of_columns_is_fresh() -> None:
    assert (ROOT / "docs" / "columns.md").read_text() == markdown(), "run ./dev docs"


@pytest.mark.parametrize("name", [*POLICIES, *(name for name in PREFETCHERS if name != "none")])
def test_the_readme_names_every_policy_and_predictor(name: str) -> None:
    assert f"`{name}`" in README


@pytest.mark.parametrize("verb", VERBS)
def test_the_readme_shows_every_verb(verb: str) -> None:
    assert f"sim {verb}" in README


@pytest.mark.parametrize(
    "page", ["CONTRIBUTING.md", "CHANGELOG.md", *(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))]
)
def test_the_readme_links_to_pages_that_exist(page: str) -> None:
    assert f"({page})" in README
    assert (ROOT / page).exists()


@pytest.mark.parametrize("page", ["docs/what-if.md", "docs/diagnosis.md", "docs/prefetch.md"])
def test_examples_print_what_the_page_shows(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every `$ sim …` of a console block runs, all in one folder, and prints what follows it, where something does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    blocks = re.findall(r"^```console\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    examples = [example for block in blocks for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    assert examples
    for example in examples:
        command, _, shown = example.replace("\\\n", "").partition("\n")
        program, *arguments = shlex.split(command)
        assert (program, main(arguments)) == ("sim", 0)
        printed = capsys.readouterr().out
        assert shown.strip() in ("", printed.strip()), f"`{command}` printed\n{printed}"


def test_every_bundled_trace_is_what_the_catalogue_says() -> None:
    formats = {find_format(entry.path).name for entry in catalog().values()}
    assert formats < set(FORMATS)
    for entry in catalog().values():
        assert entry.path.exists()
        if entry.licence == "MIT":
            assert (entry.path.parent / "LICENSE").exists()
