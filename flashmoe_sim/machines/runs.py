"""A recorded run of the patched runtime: a folder with its flags, its log and, where it wrote one, its trace."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

from flashmoe_sim.io import strict_json
from flashmoe_sim.io.errors import BadInput, shown
from flashmoe_sim.io.files import regular_file_bytes, unreadable
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.machines.run_log import MODES_WITHOUT_SLOTS, RunLog, parse_log, read_log

MODES = (*MODES_WITHOUT_SLOTS, "resident-slot-bank", "slot-bank", "oracle-all-hit", "oracle-prefetch")
MAX_BYTES = 64 * MIB
ROUNDED = 0.005  # two decimals
MAX_NUMBER = 2**31 - 1
# The settings of a log, and the flags without `--moe-`, that choose a prefetch mode; one that predicts comes first.
PREFETCH_MODES = ("predict-top1-prev", "predict-prev-token", "prefetch-temporal")
BYPASSES = ("--moe-router-only", "--moe-shared-only")  # routed experts are left out, and nothing is counted of them


@dataclass(frozen=True)
class Run:
    """One run: the flags it was given and what its log measured.

    bank: slots a layer. top_k: `--moe-topk`, 0 for the model's own. replay_of: the run whose trace it replayed.
    extra: further flags. flags: what of them the user gave as it is; None if run.json does not say. place: what
    run.json says of the machine it ran on, by key (`machine`, `host`). environment: variables that change what it does,
    None if run.json does not say. cache: what the page cache held at the start, `warm` or `cold`; None if run.json does
    not say. document: all of run.json. trace: the file of its routed calls, or None. model: what run.json names as its
    model or sidecar and is still there.
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
    flags: tuple[str, ...] | None
    place: Mapping[str, str]
    environment: Mapping[str, str] | None
    cache: str | None
    log: RunLog
    document: Mapping[str, Any]
    trace: Path | None
    model: Path | None

    @property
    def prefetch(self) -> str:
        """Its prefetch mode, one of PREFETCH_MODES or empty, by the settings of its log; without them, by its flags."""
        settings = self.log.settings
        if any(mode in settings for mode in PREFETCH_MODES):
            return next((mode for mode in PREFETCH_MODES if settings.get(mode) == "on"), "")
        flags = [flag.removeprefix("--moe-") for flag in reversed(self.extra)]
        return next((flag for flag in flags if flag in PREFETCH_MODES and _is_on(self.extra, f"--moe-{flag}")), "")

    @property
    def bypass(self) -> str:
        """The flag that left its routed experts out, or empty."""
        shared = self.log.settings.get("shared-only") == "on"
        return bypass_of(self.extra) or (BYPASSES[1] if shared else "")

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
        trace = next((file for file in (path / "trace.jsonl.gz", path / "trace.jsonl") if file.is_file()), None)
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
    extra = flags.texts("extra")
    log = read(
        _text(path / "log.txt", "the log of a run"),
        mode=mode,
        where=str(path / "log.txt"),
        routes=not bypass_of(extra),
    )
    return Run(
        folder=path,
        mode=mode,
        bank=flags.integer("bank", 1),
        ubatch=flags.integer("ubatch", 1),
        top_k=flags.integer("topk", 0),
        n_predict=flags.integer("n_predict", 1),
        threads=flags.integer("threads", 1),
        replay_of=flags.text("replay_of") if flags.document.get("replay_of") is not None else None,
        extra=extra,
        flags=flags.texts("flags") if "flags" in flags.document else None,
        place={key: flags.text(key) for key in ("machine", "host") if key in flags.document},
        environment=flags.text_values("environment"),
        cache=_cache_state(flags.document.get("cache")),
        log=log,
        document=flags.document,
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
    return next((Path(path) for path in named if isinstance(path, str) and _is_file_or_folder(path)), None)


def _is_file_or_folder(path: str) -> bool:
    """What may be opened: a pipe would be waited for, for ever."""
    try:
        return os.path.isfile(path) or os.path.isdir(path)
    except ValueError:  # a name with a NUL
        return False


def _is_on(flags: Sequence[str], flag: str) -> bool:
    """Whether the last of a flag and its `--no-` is the flag itself."""
    off = flag.replace("--", "--no-", 1)
    return next((given == flag for given in reversed(flags) if given in (flag, off)), False)


def bypass_of(extra: Sequence[str]) -> str:
    """The flag among these that leaves routed experts out, or empty."""
    return next((flag for flag in BYPASSES if _is_on(extra, flag)), "")


class _Flags:
    """run.json."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = _text(path, "the flags of a run as JSON")
        try:
            document = strict_json.loads(text.encode())
        except ValueError as error:
            raise BadInput(f"{path}: not JSON ({error}); expected the flags of a run; write it again") from None
        if not isinstance(document, dict):
            raise BadInput(f"{path}: is {shown(document)}; expected an object with the flags of a run")
        self.document: dict[str, Any] = document

    def integer(self, key: str, least: int) -> int:
        value = self._value(key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_NUMBER:
            raise BadInput(f"{self.path}: {key} is {shown(value)}; expected an integer from {least} to {MAX_NUMBER}")
        return value

    def text(self, key: str) -> str:
        value = self._value(key)
        if not isinstance(value, str) or not value:
            raise BadInput(f"{self.path}: {key} is {shown(value)}; expected a text")
        return value

    def text_values(self, key: str) -> Mapping[str, str] | None:
        value = self.document.get(key)
        if value is not None and not (isinstance(value, dict) and all(isinstance(one, str) for one in value.values())):
            raise BadInput(f"{self.path}: {key} is {shown(value)}; expected an object of texts")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._value(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise BadInput(f"{self.path}: {key} is {shown(value)}; expected a list of flags")
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
