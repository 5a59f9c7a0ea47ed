"""Every notebook runs, and its .ipynb holds the cells of the text and the results of today."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import pytest

from tests.notebooks import ROOT, SOURCES, built

MOST_BYTES = 300_000


def shown(cell: Any) -> tuple[str, str, list[dict[str, Any]]]:
    """A cell without its pictures, which another version of a font draws differently."""
    outputs = [
        {**output, "data": {kind: value for kind, value in output.get("data", {}).items() if kind != "image/png"}}
        for output in cell.get("outputs", [])
    ]
    return cell.cell_type, cell.source, outputs


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_text_and_results_are_the_same_notebook(source: Path) -> None:
    stored, fresh = nbformat.read(source.with_suffix(".ipynb"), as_version=4), built(source)
    nbformat.validate(stored)
    assert list(map(shown, stored.cells)) == list(map(shown, fresh.cells)), "run ./dev docs"
    assert jupytext.writes(stored, fmt="py:percent") == source.read_text(), "as JupyterLab would save it"
    assert str(ROOT) not in nbformat.writes(stored)
    assert not [output for cell in stored.cells for output in cell.get("outputs", []) if output.output_type == "stream"]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_pictures_are_small(source: Path) -> None:
    stored = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    outputs = [output for cell in stored.cells for output in cell.get("outputs", [])]
    pictures = [output.data["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) >= 3
    assert sum(len(base64.b64decode(picture)) for picture in pictures) < MOST_BYTES


def test_every_notebook_is_a_pair() -> None:
    folder = ROOT / "notebooks"
    assert {path.stem for path in folder.glob("*.ipynb")} == {path.stem for path in SOURCES} != set()
