"""Every notebook runs, and its .ipynb holds the cells of the text and the results of today."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import pytest
from jupyter_client.manager import KernelManager

from tests.notebooks import ROOT, SOURCES, built, kernel

MOST_BYTES = 100_000
NUMBER = r"\d[\d,]*(?:\.\d+)?"
WORDS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")  # in "seven times"
UNIT = r"%(?! interval)| (?:tokens a second|points|times|slots|[GMK]i?B(?:/s)?|ms|µs)\b"
SAID = re.compile(rf"({NUMBER}|{'|'.join(WORDS)})%?(?: (?:to|and|or) ({NUMBER}))?(?:{UNIT})")


@pytest.fixture(scope="module")
def manager() -> Iterator[KernelManager]:
    with kernel() as one:
        yield one


def shown(cell: Any) -> tuple[str, str, list[dict[str, Any]]]:
    """A cell without its pictures, which another version of a font draws differently."""
    outputs = [
        {**output, **{part: _without_pictures(output.get(part, {})) for part in ("data", "metadata")}}
        for output in cell.get("outputs", [])
    ]
    return cell.cell_type, cell.source, outputs


def _without_pictures(of: dict[str, Any]) -> dict[str, Any]:
    return {kind: value for kind, value in of.items() if kind != "image/png"}


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_text_and_results_are_the_same_notebook(source: Path, manager: KernelManager) -> None:
    stored, fresh = nbformat.read(source.with_suffix(".ipynb"), as_version=4), built(source, manager)
    nbformat.validate(stored)
    assert list(map(shown, stored.cells)) == list(map(shown, fresh.cells)), "run ./dev docs"
    assert jupytext.writes(stored, fmt="py:percent") == source.read_text(), "as JupyterLab would save it"
    assert str(ROOT) not in nbformat.writes(stored)
    assert not [output for cell in stored.cells for output in cell.get("outputs", []) if output.output_type == "stream"]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_a_notebook_asks_and_answers(source: Path) -> None:
    stored = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    code = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert stored.cells[0].source.partition("\n")[0].endswith("?")
    assert stored.cells[-1].source.startswith("## Answer\n")
    assert 3 <= len(code) <= 10
    assert source.with_suffix(".ipynb").stat().st_size < MOST_BYTES


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_sentences_have_the_numbers_of_the_results(source: Path) -> None:
    """A number with a unit stands in the code, or rounded in any cell of a table: a wrong one may pass by chance."""
    stored = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    code = [cell for cell in stored.cells if cell.cell_type == "code"]
    given = set(map(value, re.findall(rf"(?<![\w.]){NUMBER}(?=GiB|\b)", "\n".join(cell.source for cell in code))))
    tables = "\n".join(output.data["text/plain"] for cell in code for output in cell.outputs)
    cells = [re.fullmatch(rf"[-+]?({NUMBER})%?", cell.strip()) for cell in re.split(r"[│┆\n]", tables)]
    results = [value(cell[1]) for cell in cells if cell]
    for cell in stored.cells:
        if cell.cell_type == "markdown":
            for said in SAID.finditer(" ".join(cell.source.split())):
                for one in filter(None, said.groups()):
                    number = WORDS.index(one) + 2 if one in WORDS else value(one)
                    off = 0.5 / 10 ** len(one.partition(".")[2]) + 1e-9
                    assert number in given or any(abs(result - number) <= off for result in results), said[0]


def value(number: str) -> float:
    return float(number.replace(",", ""))


def test_every_notebook_is_a_pair() -> None:
    folder = ROOT / "notebooks"
    assert {path.stem for path in folder.glob("*.ipynb")} == {path.stem for path in SOURCES} != set()
