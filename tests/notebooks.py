"""Notebooks, run: `python -m tests.notebooks` runs every `notebooks/*.py` and writes the .ipynb beside it.

The text is the source; the .ipynb is what GitHub shows and JupyterLab opens. Its cells are numbered, not named at
random, and nothing in it tells the machine or the time, so that it changes only if a result does.
"""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import jupytext
import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "notebooks").glob("*.py"))
COLOURS = 64
# Between two notebooks: as a new kernel would be, but for what is imported and compiled.
FORGET = "%reset -f\nimport polars; polars.Config.restore_defaults(); del polars"


@contextmanager
def kernel() -> Iterator[KernelManager]:
    """A kernel that imports this project: one for all notebooks, since each takes seconds to start."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    manager = KernelManager(kernel_name="python3")
    with mock.patch.dict(os.environ, PYTHONPATH=path, OPENBLAS_NUM_THREADS="1"):  # threads beside others wait
        manager.start_kernel(cwd=str(ROOT / "notebooks"))
    try:
        yield manager
    finally:
        manager.shutdown_kernel(now=True)


def built(source: Path, manager: KernelManager) -> NotebookNode:
    """The notebook of a text, run from the beginning."""
    notebook = jupytext.read(source)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(FORGET))
    client = NotebookClient(notebook, km=manager, timeout=600, record_timing=False)
    client.execute(cleanup_kc=False)
    client.kc.stop_channels()
    del notebook.cells[0]
    del notebook.metadata["language_info"], notebook.metadata["jupytext"]["text_representation"]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    for number, cell in enumerate(code, 1):
        cell.execution_count = number
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = number
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = _smaller(output.data["image/png"])
    return notebook


def _smaller(png: str) -> str:
    """The picture on white, with as many colours as lines and text need."""
    out = io.BytesIO()
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGBA")
    white = Image.new("RGBA", picture.size, "white")
    flat = Image.alpha_composite(white, picture).convert("RGB")
    flat.quantize(COLOURS, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return base64.b64encode(out.getvalue()).decode()


if __name__ == "__main__":
    with kernel() as one:
        for source in SOURCES:
            nbformat.write(built(source, one), source.with_suffix(".ipynb"))
