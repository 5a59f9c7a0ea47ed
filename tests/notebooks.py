"""Notebooks, run: `python -m tests.notebooks` runs every `notebooks/*.py` and writes the .ipynb beside it.

The text is the source; the .ipynb is what GitHub shows and JupyterLab opens. Its cells are numbered, not named at
random, and nothing in it tells the machine or the time, so that it changes only where a result does.
"""

from __future__ import annotations

import base64
import io
import os
from pathlib import Path
from unittest import mock

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "notebooks").glob("*.py"))
COLOURS = 64


def built(source: Path) -> NotebookNode:
    """The notebook of a text, run from the beginning in a kernel that imports this project."""
    notebook = jupytext.read(source)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with mock.patch.dict(os.environ, PYTHONPATH=path):
        place = {"metadata": {"path": str(source.parent)}}
        NotebookClient(notebook, timeout=600, record_timing=False, resources=place).execute()
    del notebook.metadata["language_info"], notebook.metadata["jupytext"]["text_representation"]
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = _smaller(output.data["image/png"])
    return notebook


def _smaller(png: str) -> str:
    """The picture with as many colours as lines and text need."""
    out = io.BytesIO()
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return base64.b64encode(out.getvalue()).decode()


if __name__ == "__main__":
    for source in SOURCES:
        nbformat.write(built(source), source.with_suffix(".ipynb"))
