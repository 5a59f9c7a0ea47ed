"""Every notebook runs, and its .ipynb holds the cells of the text and the results of today."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import pytest
from jupyter_client.manager import KernelManager

from tests.notebooks import ROOT, SOURCES, built, kernel

MOST_BYTES = 100_000


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


def test_every_notebook_is_a_pair() -> None:
    folder = ROOT / "notebooks"
    assert {path.stem for path in folder.glob("*.ipynb")} == {path.stem for path in SOURCES} != set()
