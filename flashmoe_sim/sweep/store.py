"""Results on disk: a folder with the table as Parquet and CSV, and a picture of it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flashmoe_sim.errors import BadInput
from flashmoe_sim.schema import RESULT_COLUMNS

FILES = ("results.parquet", "results.csv", "results.png")


def check_folder(folder: Path, *, force: bool) -> None:
    """Refuse a folder that cannot be written to, or that holds results unless `force`."""
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder}: is a file; give a folder for the results")
    existing = [name for name in FILES if (folder / name).exists()]
    if existing and not force:
        raise BadInput(f"{folder}: has {existing[0]} already; give another folder, or --force to overwrite")
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not os.access(nearest, os.W_OK):
        raise BadInput(f"{nearest}: may not be written to; give another folder for the results")


def write_results(
    rows: Sequence[dict[str, Any]], folder: Path, *, draw: Callable[[Sequence[dict[str, Any]], Path], None]
) -> None:
    """Write all three files, or none: they are made in a temporary folder and then moved."""
    import polars

    types = {"str": polars.String, "int": polars.Int64, "float": polars.Float64}
    table = polars.DataFrame(list(rows), schema={column.name: types[column.dtype] for column in RESULT_COLUMNS})
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            table.write_parquet(Path(scratch) / "results.parquet")
            table.write_csv(Path(scratch) / "results.csv")
            draw(rows, Path(scratch) / "results.png")
            for name in FILES:
                os.replace(Path(scratch) / name, folder / name)
    except BaseException as error:
        if made:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise BadInput(f"{folder}: {error.strerror or error}; nothing was written") from None
        raise
