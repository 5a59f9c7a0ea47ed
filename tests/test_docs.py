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
EXAMPLES = [
    (page.name, *example)
    for page in sorted((ROOT / "docs").glob("*.md"))
    for example in re.findall(r"^```\n\$ sim (.*)\n((?:.*\n)*?)```$", page.read_text(), re.MULTILINE)
]


def test_the_page_of_columns_is_fresh() -> None:
    assert (ROOT / "docs" / "columns.md").read_text() == markdown(), "run ./dev docs"


@pytest.mark.parametrize("name", [*POLICIES, *(name for name in PREFETCHERS if name != "none")])
def test_the_readme_names_every_policy_and_predictor(name: str) -> None:
    assert f"`{name}`" in README


@pytest.mark.parametrize("verb", VERBS)
def test_the_readme_shows_every_verb(verb: str) -> None:
    assert f"sim {verb}" in README


@pytest.mark.parametrize(
    "page", ["CONTRIBUTING.md", "CHANGELOG.md", "docs/contracts.md", "docs/columns.md", "docs/diagnosis.md"]
)
def test_the_readme_links_to_pages_that_exist(page: str) -> None:
    assert f"({page})" in README
    assert (ROOT / page).exists()


@pytest.mark.skipif("lookahead" not in POLICIES, reason="the policy lookahead is not there yet")
@pytest.mark.parametrize(("page", "command", "output"), EXAMPLES, ids=[command for _, command, _ in EXAMPLES])
def test_examples_print_what_their_pages_show(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, page: str, command: str, output: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out.strip() == output.strip(), f"docs/{page} shows what `sim {command}` printed once"


def test_there_are_examples() -> None:
    assert {page for page, _, _ in EXAMPLES} >= {"diagnosis.md"}


def test_every_bundled_trace_is_what_the_catalogue_says() -> None:
    formats = {find_format(entry.path).name for entry in catalog().values()}
    assert formats < set(FORMATS)
    for entry in catalog().values():
        assert entry.path.exists()
        if entry.licence == "MIT":
            assert (entry.path.parent / "LICENSE").exists()
