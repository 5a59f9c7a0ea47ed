"""Results on disk: a folder with the table as Parquet and CSV, and a picture of it."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from flashmoe_sim.errors import BadInput, SimError
from flashmoe_sim.schema import frame

FILES = ("results.parquet", "results.csv", "results.png")
OF_FILES = (".csv", ".htm", ".html", ".jpg", ".json", ".parquet", ".pdf", ".png", ".svg", ".tsv", ".txt")


def check_folder(folder: Path, *, force: bool) -> None:
    """Refuse a folder that cannot be written to, is named like a file, or holds results unless `force`."""
    if folder.suffix.lower() in OF_FILES and not folder.is_dir():
        raise BadInput(
            f"{folder}: is named like a file; --out takes a folder, for {', '.join(FILES)}; give --out {folder.stem}"
        )
    try:
        existing = [name for name in FILES if (folder / name).exists()]
        nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    except OSError as error:
        raise BadInput(f"{folder}: {error.strerror or error}; give another folder for the results") from None
    if not nearest.is_dir():
        raise BadInput(f"{nearest}: is not a folder; give a folder for the results")
    if odd := [name for name in existing if not (folder / name).is_file()]:
        raise BadInput(f"{folder / odd[0]}: is not a file; give another folder for the results")
    if existing and not force:
        raise BadInput(f"{folder}: has {existing[0]} already; give another folder, or --force to overwrite")
    if not os.access(nearest, os.W_OK):
        raise BadInput(f"{nearest}: may not be written to; give another folder for the results")


def write_results(
    rows: Sequence[dict[str, Any]], folder: Path, *, draw: Callable[[Sequence[dict[str, Any]], Path], None]
) -> None:
    """Write all three files, or leave the folder as it was: they are made in a temporary folder and then moved.

    Raises BadInput if they cannot be written, such as on a full disk; SimError if only the picture cannot be drawn,
    when the others are written and no older picture is left.
    """
    table = frame(rows)
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".results-", dir=folder) as scratch:
            new, old = Path(scratch, "new"), Path(scratch, "old")
            new.mkdir()
            old.mkdir()
            # through memory, since polars reports a full disk as errors of many kinds
            for name, write in (("results.parquet", table.write_parquet), ("results.csv", table.write_csv)):
                buffer = io.BytesIO()
                write(buffer)
                (new / name).write_bytes(buffer.getvalue())
            failed = _drawn(draw, rows, new / "results.png")
            _move_in(new, folder, old)
    except BaseException as error:
        for place in made:
            with suppress(OSError):
                place.rmdir()
        if isinstance(error, OSError):
            raise BadInput(f"{folder}: {error.strerror or error}; nothing was written") from None
        raise
    if failed is not None:
        problem = f"{type(failed).__name__}: {failed}"
        raise SimError(f"{folder}: results.png could not be drawn ({problem}); results.parquet and .csv are written")


def _drawn(draw: Callable[[Sequence[dict[str, Any]], Path], None], rows: Any, path: Path) -> Exception | None:
    """Draw the picture; what went wrong with it, if not the disk."""
    try:
        draw(rows, path)
    except OSError:
        raise
    except Exception as error:  # whatever matplotlib cannot draw costs no results
        path.unlink(missing_ok=True)
        return error
    return None


def _move_in(new: Path, folder: Path, old: Path) -> None:
    """Move all files from `new` to `folder`, and what they replace to `old`; all back again where one cannot be."""
    try:
        for name in FILES:
            if (folder / name).exists():
                os.replace(folder / name, old / name)
            if (new / name).exists():
                os.replace(new / name, folder / name)
    except BaseException:
        for name in FILES:
            if (old / name).exists():
                os.replace(old / name, folder / name)
            elif not (new / name).exists():
                (folder / name).unlink(missing_ok=True)
        raise
