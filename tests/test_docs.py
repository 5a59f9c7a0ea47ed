"""The documentation says what the program does today."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import click
import pytest

from flashmoe_sim import reference, schema
from flashmoe_sim.cli.main import VERBS
from flashmoe_sim.geometry import named_model
from flashmoe_sim.machines.belief import errors
from flashmoe_sim.machines.table import PRESETS
from flashmoe_sim.policies.table import POLICIES
from flashmoe_sim.residency.workload import find_geometry
from flashmoe_sim.systems.table import SYSTEMS
from flashmoe_sim.timeline.models.table import EXECUTION_MODELS, parse_execution
from flashmoe_sim.trace.bundled import catalog
from flashmoe_sim.trace.formats import FORMATS, find_format
from flashmoe_sim.trace.load import load_trace
from native_bridge.cli.main import main, sim
from native_bridge.cli.reference import markdown as commands
from tests.examples import BEGIN, END, refreshed

ROOT = Path(__file__).parents[1]
PAGES = tuple(sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")))
INDEX = "docs/index.md"
README = (ROOT / "README.md").read_text()
REPORTS = sorted((ROOT / "reports").rglob("*.md"))


@pytest.mark.parametrize(
    ("page", "markdown"),
    [
        ("columns", schema.markdown),
        ("policies", reference.markdown),
        ("systems", reference.systems_markdown),
        ("commands", commands),
        ("python", reference.python_markdown),
    ],
)
def test_generated_pages_are_fresh(page: str, markdown: Callable[[], str]) -> None:
    assert (ROOT / "docs" / "reference" / f"{page}.md").read_text() == markdown(), "run ./dev docs"


@pytest.mark.parametrize("page", ["README.md", *(page for page in PAGES if page != "docs/reference/columns.md")])
def test_examples_print_what_the_page_says(page: str) -> None:
    text = (ROOT / page).read_text()
    assert refreshed(text) == text, "run ./dev docs"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *PAGES])
def test_rows_of_a_table_have_as_many_cells_as_its_head(page: str) -> None:
    """A bar within a cell is escaped, also within code."""
    cells = 0
    for line in (ROOT / page).read_text().splitlines():
        bars = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not cells or not bars or bars == cells, line
        cells = bars


@pytest.mark.parametrize("page", ["README.md", "docs/guides/recommend.md"])
def test_the_first_recommendation_that_a_reader_sees_is_of_all_systems(page: str) -> None:
    first = next(line for line in (ROOT / page).read_text().splitlines() if line.startswith("$ sim recommend"))
    assert "--system" not in first


def test_examples_are_put_into_a_page() -> None:
    page = "```console\n$ sim --version\n```\n\n```python\nx = 2\n```\n\n```python\nprint(x)\n```\n\nText.\n"
    filled = refreshed(page)
    assert filled.startswith("```console\n$ sim --version\nsim, version ")
    assert filled.endswith(f"```python\nx = 2\n```\n\n```python\nprint(x)\n```\n\n{BEGIN}\n\n2\n\n{END}\n\nText.\n")
    assert refreshed(filled.replace("\n2\n", "\n1\n").replace("version ", "")) == filled
    with pytest.raises(AssertionError, match="sim curve"):
        refreshed(page.replace("--version", "curve"))


WORKFLOW = re.findall(
    r"`sim ([^`]+)`", (ROOT / "docs" / "guides" / "compare.md").read_text().partition("## From a baseline")[2]
)


@pytest.mark.parametrize("command", WORKFLOW)
def test_the_commands_of_the_workflow_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    verb, *rest = command.split()
    verbs = [verb, rest.pop(0)] if verb in ("bridge", "model", "prefetch", "trace") else [verb]
    with click.Context(sim) as context:
        long = getattr(sim.get_command(context, verb), "shown", ())
    assert main([*verbs, "--help-all" if long else "--help"]) == 0
    assert {word for word in rest if word.startswith("--")} <= set(re.findall(r"--[\w-]+", capsys.readouterr().out))


def test_the_page_of_seconds_has_every_execution_model() -> None:
    page = (ROOT / "docs" / "background" / "seconds.md").read_text()
    for model in map(parse_execution, EXECUTION_MODELS):
        assert f"| `{model.name}` | {model.meaning} | {model.describes} |" in page


def test_the_readme_shows_every_verb_and_format_and_the_first_pages() -> None:
    first = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", INDEX)
    shown = [f"sim {verb}" for verb in VERBS] + [f"| `{name}` |" for name in FORMATS] + [f"({page})" for page in first]
    assert [one for one in shown if one not in README] == []


def test_the_index_links_to_every_page() -> None:
    index = (ROOT / INDEX).read_text()
    assert [page for page in PAGES if page != INDEX and f"({page.removeprefix('docs/')})" not in index] == []


def test_the_readme_counts_what_there_is() -> None:
    words = " ".join(README.split())
    assert f"under {len(POLICIES)} policies and as {len(SYSTEMS)} real systems do" in words
    assert f"one of {len(PRESETS)} presets" in words
    assert f"{('Seven', 'Eight', 'Nine')[len(catalog()) - 7]} recorded traces" in words


def test_figures_quoted_from_reports_are_those_of_the_reports() -> None:
    """A group of each pattern: what the pages that quote it must have."""

    def found(page: str, pattern: str) -> tuple[str, ...]:
        match = re.search(pattern, (ROOT / "reports" / page / "README.md").read_text())
        assert match, pattern
        return match.groups()

    asked, machines, off, alone, inside, left_out = found(
        "field", r"\| all \| (\d+) \| (\d+) \| (\d+%) \| (\d+%) \| .*? \| (\d+%) \| \d+% \| (\d+%) \|"
    )
    assert f"on {machines} machines, as `sim compare` answers | {asked} | {off} | {inside} |" in README
    assert f"the same, all fitted without who measured it | {asked} | {alone} | {left_out} |" in README
    rows, of_parts = found("field", r"\| on parts \| (\d+) \| \d+ \| (\d+%) \|")
    machines_guide = " ".join((ROOT / "docs" / "guides" / "machines.md").read_text().split())
    assert (
        f"median error over [{rows} measured speeds](../../reports/field/README.md) of such machines is {of_parts}."
        in (machines_guide)
    )
    assert f"the second row's {rows} on machines named by parts" in README
    guide = " ".join((ROOT / "docs" / "guides" / "recommend.md").read_text().split())
    assert f"[{asked} measurements of others]" in guide
    assert f"the median error was {off}, and {inside} lay within the interval; {alone} and {left_out} without" in guide
    of, error, intervals, held = found(
        "fidelity", r"Of (\d+) predicted .*? is ([\d.]+%), [^%]*%, [^%]*%\. Of the (\d+)\n.*\((\d+%)\)"
    )
    assert f"failures included | {of} | {error} | {held} of the {intervals} that have one |" in README
    questions = " ".join((ROOT / "docs" / "questions.md").read_text().split())
    background = " ".join((ROOT / "docs" / "background" / "seconds.md").read_text().split())
    assert f"median error is {error}, and {held} of the intervals hold" in background
    assert f"answered without who measured them, it is {alone}, and {left_out} hold" in background
    times = [one for system, one in errors()["times"].items() if system in SYSTEMS]
    assert f"({min(times):.2f} to {max(times):.2f} times), each person's counting once" in background
    assert f"[{asked} speeds of other people]" in questions
    assert f"answered without who measured them, the median error is {alone}, and {left_out} are in" in questions
    (error,) = found("series", r"decoding, experts on the CPU \| probed, one run \| \d+ \| (\d+%)")
    assert f"({error} off)" in (ROOT / "docs" / "guides" / "sharpen.md").read_text()


@pytest.mark.parametrize(
    ("pages", "limit"),
    [(["README.md"], 1200), (["CONTRIBUTING.md"], 1500), ([page for page in PAGES if "reference" not in page], 18_600)],
    ids=["readme", "contributing", "docs"],
)
def test_documentation_stays_short(pages: Sequence[str], limit: int) -> None:
    assert sum(len((ROOT / page).read_text().split()) for page in pages) <= limit


LINKING = ["README.md", "CONTRIBUTING.md", "SECURITY.md", *(str(page.relative_to(ROOT)) for page in REPORTS)]


@pytest.mark.parametrize("page", LINKING)
def test_links_outside_the_site_lead_somewhere(page: str) -> None:
    """And so do their anchors; those of docs/ are checked when the site is built."""
    for link, anchor in re.findall(r"\]\(([^)#:\s]*)(#[\w-]+)?\)", (ROOT / page).read_text()):
        target = (ROOT / page).parent / link if link else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor[1:] in anchors(target), f"{link}{anchor}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    headings = re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_pages_named_in_code_exist() -> None:
    for folder in ("flashmoe_sim", "native_bridge", "reports"):
        for source in (ROOT / folder).rglob("*.py"):
            for page in re.findall(r"docs/(?:guides|reference|background)/[\w-]+\.md", source.read_text()):
                assert (ROOT / page).exists(), f"{source}: {page}"


def test_dev_explains_every_recipe() -> None:
    text = (ROOT / "dev").read_text()
    recipes = re.findall(r"^([a-z]+)\)", text, re.MULTILINE)
    assert sorted(recipes) == sorted(re.findall(r"^  ([a-z]+)  +[a-z]", text, re.MULTILINE))


def test_every_bundled_trace_is_what_the_catalogue_says() -> None:
    formats = {find_format(entry.path).name for entry in catalog().values()}
    assert formats < set(FORMATS)
    for entry in catalog().values():
        assert entry.path.exists()
        if entry.licence == "MIT":
            assert (entry.path.parent / "LICENSE").exists()


def test_every_bundled_trace_runs_on_a_machine() -> None:
    """All of them record what a token streams outside the routed experts."""
    for name in catalog():
        geometry, trace = find_geometry(name, None), load_trace(name)
        assert trace.dense_bytes or (geometry and geometry.dense_bytes), name


def test_dense_bytes_of_the_catalogue() -> None:
    """The model of 256 experts: what its manifest leaves between the experts; Qwen3 in MLX: as the named model."""
    manifest = json.loads(Path(str(catalog()["python-256"].model)).read_text("utf-8"))
    places = sorted((entry["source_offset"], entry["exact_byte_length"]) for entry in manifest["entries"])
    between = sum(start - (before + size) for (before, size), (start, _) in pairwise(places))
    output = 4096 * 128 * 34 // 32 + 4 * 128
    first_layer = places[6][0] - sum(places[5])  # as the third: every second layer has attention
    assert catalog()["python-256"].dense_bytes == between + first_layer + output
    assert catalog()["qwen3-30b-mlx"].dense_bytes == named_model("qwen3-30b-a3b:mlx-4bit").streamed_bytes
