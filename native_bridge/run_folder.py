"""The folder of a run: created under a temporary name, and moved into place after the run."""

from __future__ import annotations

import glob
import gzip
import json
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flashmoe_sim.io.errors import Exists, Malformed, Missing, SimError, Unusable
from flashmoe_sim.io.files import unreadable

LOG, TRACE, REPLAY, STDOUT, TEXT, FLAGS = "log.txt", "trace.jsonl", "replay.jsonl", "stdout", "text.txt", "run.json"
SPARE_BYTES = 4096
OURS = frozenset((LOG, TRACE, f"{TRACE}.gz", TEXT, FLAGS))


def refuse_folder(folder: Path, *, force: bool) -> None:
    """Raise BadInput if the folder of a run exists without force, or has anything but a run."""
    if not str(folder).isprintable():
        raise Malformed(f"{str(folder)!r}: cannot be the name of a run's folder")
    try:
        if not folder.exists():
            return
        if not folder.is_dir():
            raise Unusable(f"{folder}: is not a folder; choose another name for the run")
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise unreadable(folder, error) from None
    if others := [name for name in names if name not in OURS]:
        raise Exists(f"{folder}: holds {others[0]}, which no run wrote; choose another folder")
    if names and not force:
        raise Exists(f"{folder}: exists; give --force to overwrite it")


@contextmanager
def work_folder(folder: Path) -> Iterator[Path]:
    """A hidden folder beside another, removed at the end unless it was renamed."""
    work = folder.absolute().with_name(f".{folder.name}.{os.getpid()}.part")
    try:
        for old in work.parent.glob(f".{glob.escape(folder.name)}.*.part"):
            if not _is_alive(old.suffixes[-2]):
                shutil.rmtree(old, ignore_errors=True)
        work.mkdir(parents=True)
    except OSError as error:
        raise Unusable(f"{folder}: cannot be written ({error.strerror}); give another folder") from None
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _is_alive(suffix: str) -> bool:
    """Whether the process that left a folder, and whose number ends its name, is still running."""
    try:
        os.kill(int(suffix[1:]), 0)
    except (ValueError, OverflowError, ProcessLookupError):
        return False
    except PermissionError:
        pass
    return True


def unpack(replay: Path, target: Path) -> None:
    """Write the trace of a run's folder to a file. Raises BadInput if it has none, or a damaged one."""
    trace = next((path for path in (replay / f"{TRACE}.gz", replay / TRACE) if path.is_file()), None)
    if trace is None:
        raise Missing(f"{replay}: has no {TRACE}.gz to replay; give the folder of a run of slot-bank")
    try:
        with gzip.open(trace) if trace.suffix == ".gz" else trace.open("rb") as packed, target.open("wb") as plain:
            shutil.copyfileobj(packed, plain)
    except (OSError, EOFError, zlib.error) as error:
        raise Unusable(f"{trace}: cannot be unpacked ({error}); run slot-bank again, or free the disk") from None


def whole_calls(trace: Path) -> int | None:
    """The number of lines in the trace, after cutting off an incomplete one."""
    if not trace.exists():
        return None
    lines = whole = 0
    with trace.open("r+b") as stream:
        while block := stream.read(1 << 22):
            lines += block.count(b"\n")
            if (last := block.rfind(b"\n")) >= 0:
                whole = stream.tell() - len(block) + last + 1
        stream.truncate(whole)
    return lines


def calls_without_slots(trace: Path) -> int:
    """The number of calls in a trace whose experts were in no slots."""
    if not trace.exists():
        return 0
    with trace.open("rb") as lines:
        return sum(b'"slots":[]' in line and b'"experts":[]' not in line for line in lines)


def finish(work: Path, document: dict[str, Any], prompt: str) -> None:
    """Compress the trace, separate the text, write run.json last; on a full disk the trace stays uncompressed."""
    text = text_of(work, prompt)
    for name in (STDOUT, REPLAY):
        (work / name).unlink(missing_ok=True)
    trace, packed = work / TRACE, work / f"{TRACE}.gz"
    try:
        if trace.exists():
            with trace.open("rb") as plain, packed.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, 0) as stream:
                shutil.copyfileobj(plain, stream)
            trace.unlink()
        if text is not None:
            (work / TEXT).write_bytes(text)
    except OSError:
        packed.unlink(missing_ok=True)
    with (work / FLAGS).open("r+b") as stream:
        stream.write(_json(document))
        stream.truncate()


def reserve(work: Path, document: dict[str, Any]) -> None:
    """Write run.json with room for later facts, so that they can be stored even if the run fills the disk."""
    try:
        (work / FLAGS).write_bytes(_json(document) + b" " * SPARE_BYTES)
    except OSError as error:
        raise Unusable(
            f"{work.parent}: cannot be written ({error.strerror}); free the disk, or choose another"
        ) from None


def _json(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def text_of(work: Path, prompt: str) -> bytes | None:
    """The generated text: after the echo of the prompt, up to the line of the speeds if the run came so far."""
    stdout = (work / STDOUT).read_bytes() if (work / STDOUT).exists() else b""
    _, echo, rest = stdout.partition(b"\n> " + prompt.encode() + b"\n\n")
    text, speeds, _ = rest.rpartition(b"\n\n[ Prompt: ")
    return (text if speeds else rest) if echo else None


def put(work: Path, folder: Path) -> None:
    """Give the finished folder its name; an existing one is a run's, and may be overwritten.

    Raises SimError if it cannot; both runs are then kept, this one beside `folder`.
    """
    old = work.with_name(f".{folder.name}.old.part")
    try:
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
            folder.rename(old)
        try:
            work.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise
    except OSError as error:
        kept = f"{folder.name}-{os.getpid()}"
        try:
            work.rename(folder.with_name(kept))
        except OSError:
            kept = ""
        where = f"this run is in {folder.with_name(kept)}" if kept else "choose another folder"
        raise SimError(f"{folder}: cannot be written ({error.strerror}); {where}") from None
    shutil.rmtree(old, ignore_errors=True)
