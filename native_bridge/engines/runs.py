"""A recorded run, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

from flashmoe_sim.io.sizes import GIB, MIB
from native_bridge.engines.base import Engine, Mode
from native_bridge.engines.run_log import RunLog

ROUNDED = 0.005  # two decimals


@dataclass(frozen=True)
class Run:
    """One run: the flags it was given and what its log measured.

    bank: slots a layer. top_k: experts a token, 0 for the model's own. replay_of: the run whose trace it replayed.
    extra: further flags. flags: what of them the user gave as it is; None if run.json does not say. place: what
    run.json says of the machine it ran on, by key (`machine`, `host`). environment: variables that change what it does,
    None if run.json does not say. cache: what the page cache held at the start, `warm` or `cold`; None if run.json does
    not say. document: all of run.json. trace: the file of its routed calls, or None. model: what run.json names as its
    model or sidecar and is still there.
    """

    engine: Engine
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
    def does(self) -> Mode:
        """What a run in its mode does."""
        return self.engine.modes[self.mode]

    @property
    def install_error(self) -> float | None:
        """Standard error of the time an install took, from its spread over the layers of the log; relative.

        None if fewer than two layers installed anything.
        """
        each = [line.install_ms / line.misses for line in self.log.layers if line.misses]
        if len(each) < 2:
            return None
        mean = sum(each) / len(each)
        return sqrt(sum((one - mean) ** 2 for one in each) / (len(each) - 1) / len(each)) / mean if mean else None

    @property
    def install_bytes(self) -> tuple[float, float] | None:
        """Least and most bytes of an install that the rounded numbers of the log allow; None if it installed none.

        By the lines of its layers, else by what it installed before the run.
        """
        installs, size, unit = sum(line.misses for line in self.log.layers), 0.0, 0.0
        if installs:
            size, unit = sum(line.bytes_read for line in self.log.layers), ROUNDED * MIB * len(self.log.layers)
        elif self.log.prime is not None and self.log.prime.installs:
            installs, size, unit = self.log.prime.installs, self.log.prime.bytes_read, ROUNDED * GIB
        return ((size - unit) / installs, (size + unit) / installs) if installs else None
