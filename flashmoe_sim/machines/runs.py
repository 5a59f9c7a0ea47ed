"""A recorded run of the patched runtime: a folder with its flags, its log and, where it wrote one, its trace."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

from flashmoe_sim.errors import BadInput
from flashmoe_sim.geometry.files import regular_file_bytes, unreadable
from flashmoe_sim.machines.run_log import GIB, MIB, MODES_WITHOUT_SLOTS, RunLog, parse_log, read_log

MODES = (*MODES_WITHOUT_SLOTS, "resident-slot-bank", "slot-bank", "oracle-all-hit", "oracle-prefetch")
MAX_BYTES = 64 * MIB
ROUNDED = 0.005  # two decimals


@dataclass(frozen=True)
class Run:
    """One run: the flags it was given and what its log measured.

    bank: slots a layer. top_k: `--moe-topk`, 0 for the model's own. replay_of: the run whose trace it replayed.
    extra: further flags. place: whatever run.json tells of the machine it ran on, by key (`machine`, `host`).
    cache: what the page cache held at the start, `warm` or `cold`; None if run.json does not say.
    trace: the file of its routed calls, or None. model: what run.json names as its model or sidecar and is still there.
    """

    folder: Path
    mode: str
    bank: int
    ubatch: int
    top_k: int
    n_predict: int
    threads: int
    replay_of: str | None
    extra: tuple[str, ...]
    place: Mapping[str, str]
    cache: str | None
    log: RunLog
    trace: Path | None
    model: Path | None

    @property
    def install_error(self) -> float | None:
        """Standard error of the time an install took, from its spread over the layers of the log; relative.

        None where fewer than two layers installed anything.
        """
        each = [line.install_ms / line.misses for line in self.log.layers if line.misses]
        if len(each) < 2:
            return None
        mean = sum(each) / len(each)
        return sqrt(sum((one - mean) ** 2 for one in each) / (len(each) - 1) / len(each)) / mean if mean else None

    @property
    def install_bytes(self) -> tuple[float, float] | None:
        """Least and most bytes of an install that the rounded numbers of the log allow; None where it installed none.

        By the lines of its layers, else by what it installed before the run.
        """
        installs, size, unit = sum(line.misses for line in self.log.layers), 0.0, 0.0
        if installs:
            size, unit = sum(line.bytes_read for line in self.log.layers), ROUNDED * MIB * len(self.log.layers)
        elif self.log.prime is not None and self.log.prime.installs:
            installs, size, unit = self.log.prime.installs, self.log.prime.bytes_read, ROUNDED * GIB
        return ((size - unit) / installs, (size + unit) / installs) if installs else None


def read_run(folder: str | Path, *, failed_too: bool = False) -> Run:
    """The run that a folder holds: run.json, log.txt and perhaps trace.jsonl.gz.

    failed_too: also a run that failed; its log then says why, and has what it came to.
    Raises BadInput, naming the file, for a folder without them, a run that failed, and a log that is not whole.
    """
    path = Path(folder)
    if not str(path).isprintable():
        raise BadInput(f"{str(path)!r}: cannot be the name of a run's folder")
    try:
        if not path.is_dir():
            what = "is not a folder" if path.exists() else "no such folder"
            raise BadInput(f"{path}: {what}; give the folder of a run, with run.json and log.txt")
        trace = next((file for file in (path / "trace.jsonl.gz", path / "trace.jsonl") if file.exists()), None)
    except OSError as error:
        raise unreadable(path, error) from None
    flags = _Flags(path / "run.json")
    if (rc := flags.integer("rc", -(2**31))) != 0 and not failed_too:
        raise BadInput(f"{flags.path}: rc is {rc}: the run failed; run it again, or leave it out")
    if flags.document.get("failed") is not None and not failed_too:
        raise BadInput(f"{flags.path}: the run failed: {flags.text('failed')}; run it again, or leave it out")
    mode = flags.text("mode")
    if mode not in MODES:
        raise BadInput(f"{flags.path}: mode is {mode!r}; known: {', '.join(MODES)}")
    read = read_log if failed_too else parse_log
    return Run(
        folder=path,
        mode=mode,
        bank=flags.integer("bank", 1),
        ubatch=flags.integer("ubatch", 1),
        top_k=flags.integer("topk", 0),
        n_predict=flags.integer("n_predict", 1),
        threads=flags.integer("threads", 1),
        replay_of=flags.text("replay_of") if flags.document.get("replay_of") is not None else None,
        extra=flags.texts("extra"),
        place={key: flags.text(key) for key in ("machine", "host") if key in flags.document},
        cache=_cache_state(flags.document.get("cache")),
        log=read(_text(path / "log.txt", "the log of a run"), mode=mode, where=str(path / "log.txt")),
        trace=trace,
        model=_model_told(flags.document.get("model")),
    )


def _cache_state(recorded: object) -> str | None:
    state = recorded.get("state") if isinstance(recorded, dict) else None
    return state if state in ("warm", "cold") else None


def _model_told(told: object) -> Path | None:
    if not isinstance(told, dict):
        return None
    named = (told.get("path"), told.get("sidecar"))  # only the first tells the weights outside the experts
    return next((Path(path) for path in named if isinstance(path, str) and os.path.exists(path)), None)


class _Flags:
    """run.json."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = _text(path, "the flags of a run as JSON")
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{path}: not JSON ({error}); expected the flags of a run; write it again") from None
        if not isinstance(document, dict):
            raise BadInput(f"{path}: is {_shown(document)}; expected an object with the flags of a run")
        self.document: dict[str, Any] = document

    def integer(self, key: str, least: int) -> int:
        value = self._value(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise BadInput(
                f"{self.path}: {key} is {_shown(value)}; expected an integer" + f" from {least}" * (least >= 0)
            )
        return value

    def text(self, key: str) -> str:
        value = self._value(key)
        if not isinstance(value, str) or not value:
            raise BadInput(f"{self.path}: {key} is {_shown(value)}; expected a text")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._value(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise BadInput(f"{self.path}: {key} is {_shown(value)}; expected a list of flags")
        return tuple(value)

    def _value(self, key: str) -> object:
        if key not in self.document:
            raise BadInput(
                f"{self.path}: {key} is missing; expected rc, mode, bank, ubatch, topk, n_predict, threads, extra"
            )
        return self.document[key]


def _text(path: Path, kind: str) -> str:
    """A file as text. What a model generated may be cut within a character, and is in the log: it may be anything."""
    if regular_file_bytes(path, kind=kind) > MAX_BYTES:
        raise BadInput(f"{path}: more than {MAX_BYTES // MIB} MiB; expected {kind}")
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise unreadable(path, error) from None


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
