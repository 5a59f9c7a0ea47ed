"""Recorded runs for tests, and copies of them to change."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

RUNS = Path(__file__).parents[3] / "data"
TIMED = RUNS / "runs-timed"
SUMMARY = "log_runtime_summary: Flash-MoE "
GPU = "load_backend: loaded CUDA backend from libggml-cuda.so\n"


def copy(name: str, folder: Path, **flags: object) -> Path:
    """A run of runs-timed in `folder`, under its name, with other flags in its run.json; None takes one out."""
    target = folder / name
    shutil.copytree(TIMED / name, target)
    document = json.loads((target / "run.json").read_text()) | flags
    (target / "run.json").write_text(json.dumps({key: value for key, value in document.items() if value is not None}))
    return target


def edit_log(run: Path, old: str, new: str) -> Path:
    """Put `new` in the place of `old` wherever it is in the log."""
    log = run / "log.txt"
    text = log.read_text("utf-8", "replace")
    assert old in text
    log.write_text(text.replace(old, new))
    return run
