"""The documentation says what the program does today."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashmoe_sim.cli.main import VERBS
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


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "CHANGELOG.md", "docs/contracts.md", "docs/columns.md"])
def test_the_readme_links_to_pages_that_exist(page: str) -> None:
    assert f"({page})" in README
    assert (ROOT / page).exists()


def test_every_bundled_trace_is_what_the_catalogue_says() -> None:
    formats = {find_format(entry.path).name for entry in catalog().values()}
    assert formats < set(FORMATS)
    for entry in catalog().values():
        assert entry.path.exists()
        if entry.licence == "MIT":
            assert (entry.path.parent / "LICENSE").exists()
