"""Results on disk: a folder with the table as Parquet and CSV, and a picture of it."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from flashmoe_sim.io.errors import Exists, Malformed, Missing, SimError, Unusable
from flashmoe_sim.io.locks import POSIX, open_folder
from flashmoe_sim.io.tables import as_csv
from flashmoe_sim.io.whole import check_name, keep_mode, lock, patiently, sync_folder
from flashmoe_sim.schema import frame
from flashmoe_sim.sweep import ledger

FILES = ("results.parquet", "results.csv", "results.png")
SCRATCH = ".results-"
READY = "ready"
OF_FILES = (".csv", ".htm", ".html", ".jpg", ".json", ".parquet", ".pdf", ".png", ".svg", ".tsv", ".txt")


def check_folder(folder: Path, *, force: bool) -> None:
    """Refuse a folder that cannot be written to, is named like a file, or has results but no ledger, unless `force`.

    What a killed sweep left in it is cleaned up first.
    """
    if folder.suffix.lower() in OF_FILES and not folder.is_dir():
        raise Malformed(
            f"{folder}: is named like a file; --out takes a folder, for {', '.join(FILES)}; give --out {folder.stem}"
        )
    check_name(folder)
    try:
        _finish_killed(folder)
        existing = [name for name in FILES if (folder / name).exists()]
        places = (folder, *folder.absolute().parents)
        nearest = next(place for place in places if place.exists() or place.is_symlink())
    except OSError as error:
        raise Unusable(f"{folder}: {error.strerror or error}; give another folder for the results") from None
    if nearest.is_symlink() and not nearest.exists():
        raise Missing(f"{nearest}: is a link to {nearest.readlink()}, which does not exist; make that folder first")
    if not nearest.is_dir():
        raise Unusable(f"{nearest}: is not a folder; give a folder for the results")
    if odd := [name for name in existing if not (folder / name).is_file()]:
        raise Unusable(f"{folder / odd[0]}: is not a file; give another folder for the results")
    if existing and not force and not (folder / ledger.FILE).exists():
        raise Exists(f"{folder}: has {existing[0]} already; give another folder, or --force to overwrite")
    if not os.access(nearest, os.W_OK):
        raise Unusable(f"{nearest}: may not be written to; give another folder for the results")


def write_results(
    rows: Sequence[dict[str, Any]],
    folder: Path,
    *,
    draw: Callable[[Sequence[dict[str, Any]], Path], None] | None,
) -> None:
    """Write all files, or leave the folder unchanged: they are written to a temporary folder and then moved.

    draw: how the picture is drawn; None to write none.
    If a process is killed between two moves, some files are missing, but files of two sweeps are never mixed; the next
    sweep into the folder moves the rest.
    Raises BadInput if they cannot be written, for example on a full disk; SimError if only the picture cannot be drawn:
    the others are then written, and an older picture is removed.
    """
    table = frame(rows)
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder), _scratch(folder) as scratch:
            new, old = scratch / "new", scratch / "old"
            new.mkdir()
            old.mkdir()
            # through memory, since polars reports a full disk with errors of many kinds
            buffer = io.BytesIO()
            table.write_parquet(buffer)
            (new / "results.parquet").write_bytes(buffer.getvalue())
            (new / "results.csv").write_bytes(as_csv(table))
            failed = None if draw is None else _drawn(draw, rows, new / "results.png")
            for path in new.iterdir():
                with path.open("rb" if POSIX else "r+b") as stream:  # Windows flushes only what may be written
                    keep_mode(folder / path.name, stream.fileno())
                    os.fsync(stream.fileno())
            sync_folder(new)
            _move_in(new, folder, old)
            sync_folder(folder)
    except BaseException as error:
        for place in made:
            with suppress(OSError):
                place.rmdir()
        if isinstance(error, OSError):
            kept = any(folder.glob(f"{SCRATCH}*/{READY}"))
            left = "the next sweep into it puts its files in place" if kept else "nothing was written"
            raise Unusable(f"{folder}: {error.strerror or error}; {left}") from None
        raise
    if failed is not None:
        problem = f"{type(failed).__name__}: {failed}"
        raise SimError(f"{folder}: results.png could not be drawn ({problem}); results.parquet and .csv are written")


def _drawn(draw: Callable[[Sequence[dict[str, Any]], Path], None], rows: Any, path: Path) -> Exception | None:
    """Draw the picture; return what went wrong with it, unless it was the disk."""
    try:
        draw(rows, path)
    except OSError:
        raise
    except Exception as error:  # a picture that cannot be drawn loses no results
        path.unlink(missing_ok=True)
        return error
    return None


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """A temporary folder. It stays if it has finished files that could be moved neither in nor back."""
    scratch = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=folder))
    try:
        yield scratch
    finally:
        if not any((scratch / READY).glob("*")):
            shutil.rmtree(scratch, ignore_errors=True)


def _move_in(new: Path, folder: Path, old: Path) -> None:
    """Move all files from `new` to `folder`, and first what they replace to `old`; undo all if one cannot be moved."""
    ready = new.with_name(READY)
    moves = [(folder / name, old / name) for name in FILES if (folder / name).exists()]
    moves += [(ready / name, folder / name) for name in FILES if (new / name).exists()]
    patiently(os.rename, new, ready)
    try:
        for source, target in moves:
            patiently(os.replace, source, target)
    except BaseException:
        for source, target in reversed(moves):
            if not source.exists():
                patiently(os.replace, target, source)
        patiently(os.rename, ready, new)
        raise


def _finish_killed(folder: Path) -> None:
    """Move in what a killed sweep had finished, and remove the rest."""
    if not folder.is_dir():
        return
    with _locked(folder, wait=False) as is_ours:
        if not is_ours:
            return
        found = [path for path in folder.glob(f"{SCRATCH}*") if path.is_dir() and not path.is_symlink()]
        for scratch in found:
            if not {entry.name for entry in scratch.iterdir()} <= {"new", "old", READY}:
                continue
            left = [name for name in FILES if (scratch / READY / name).exists()]
            for name in FILES[FILES.index(left[0]) :] if left else ():  # they are moved in this order
                if name in left:
                    patiently(os.replace, scratch / READY / name, folder / name)
                else:  # an older sweep's
                    (folder / name).unlink(missing_ok=True)
            shutil.rmtree(scratch)


@contextmanager
def _locked(folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a folder of results, if possible; on Windows only if it has a ledger."""
    try:
        descriptor = open_folder(folder, inside=folder / ledger.FILE)
    except FileNotFoundError:
        if POSIX:
            raise
        yield True
        return
    try:
        yield lock(descriptor, wait=wait, of_folder=True)
    finally:
        os.close(descriptor)
