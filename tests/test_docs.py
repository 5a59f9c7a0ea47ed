"""The documentation says what the program does today."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flashmoe_sim import reference, schema
from flashmoe_sim.cli.main import VERBS
from flashmoe_sim.trace.bundled import catalog
from flashmoe_sim.trace.load import FORMATS, find_format
from tests.examples import BEGIN, END, refreshed

ROOT = Path(__file__).parents[1]
PAGES = tuple(page.stem for page in (ROOT / "docs").glob("*.md"))
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize(("page", "markdown"), [("columns", schema.markdown), ("policies", reference.markdown)])
def test_generated_pages_are_fresh(page: str, markdown: Callable[[], str]) -> None:
    assert (ROOT / "docs" / f"{page}.md").read_text() == markdown(), "run ./dev docs"


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{name}.md" for name in PAGES if name != "columns")])
def test_examples_print_what_the_page_says(page: str) -> None:
    text = (ROOT / page).read_text()
    assert refreshed(text) == text, "run ./dev docs"


def test_examples_are_put_into_a_page() -> None:
    page = "```console\n$ sim --version\n```\n\n```python\nx = 2\n```\n\n```python\nprint(x)\n```\n\nText.\n"
    filled = refreshed(page)
    assert filled.startswith("```console\n$ sim --version\nsim, version ")
    assert filled.endswith(f"```python\nx = 2\n```\n\n```python\nprint(x)\n```\n\n{BEGIN}\n\n2\n\n{END}\n\nText.\n")
    assert refreshed(filled.replace("\n2\n", "\n1\n").replace("version ", "")) == filled
    with pytest.raises(AssertionError, match="sim curve"):
        refreshed(page.replace("--version", "curve"))


@pytest.mark.parametrize("verb", VERBS)
def test_the_readme_shows_every_verb(verb: str) -> None:
    assert f"sim {verb}" in README


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "CHANGELOG.md", *(f"docs/{name}.md" for name in PAGES)])
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
