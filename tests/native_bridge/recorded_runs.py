"""Recorded runs for tests, and copies of them to damage, with what they need beside them."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

RUNS = Path(__file__).parents[2] / "data"
ALL = sorted(path.parent for path in RUNS.glob("*/*/run.json"))
TIMED = RUNS / "runs-timed"
SUMMARY = "log_runtime_summary: Flash-MoE "
GPU = "load_backend: loaded CUDA backend from libggml-cuda.so\n"


def copy(name: str, folder: Path, **flags: object) -> Path:
    """A run of runs-timed in `folder`, under its name, with other flags in its run.json; None takes one out."""
    target = folder / name
    shutil.copytree(TIMED / name, target)
    edit_flags(target, **flags)
    return target


def copies(folder: Path, *names: str, of: str = "runs") -> Path:
    """Some runs of a set with the set's manifest, in a folder of their own."""
    target = folder / of
    target.mkdir(parents=True)
    shutil.copy(RUNS / of / "manifest.json", target)
    for name in names:
        shutil.copytree(RUNS / of / name, target / name)
    return target


def edit_record(run: Path, line: int, **changes: Any) -> None:
    """Change a record of the trace; line: from 1."""
    trace = run / "trace.jsonl.gz"
    records = gzip.decompress(trace.read_bytes()).splitlines()
    record = json.loads(records[line - 1])
    for key, change in changes.items():
        record[key] = change(record[key])
    records[line - 1] = json.dumps(record).encode()
    trace.write_bytes(gzip.compress(b"\n".join(records) + b"\n"))


def edit_log(run: Path, old: str, new: str) -> Path:
    """Put `new` in the place of `old` wherever it is in the log."""
    log = run / "log.txt"
    text = log.read_text("utf-8", "replace")
    assert old in text
    log.write_text(text.replace(old, new))
    return run


def edit_flags(run: Path, **changes: Any) -> None:
    """Change run.json; None takes a key out."""
    flags = run / "run.json"
    document = json.loads(flags.read_text()) | changes
    flags.write_text(json.dumps({key: value for key, value in document.items() if value is not None}))
