"""A recorded run, the prediction of its counters, and what its routed calls say, as values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.trace.phases import find_phases
from flashmoe_sim.trace.routing import PHASE_DECODE, RoutingTrace
from native_bridge.engines.base import Engine, Mode
from native_bridge.engines.run_log import Lines, RunLog

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flashmoe_sim.residency.replay import Replayed
    from flashmoe_sim.residency.workload import Workload

ROUNDED = 0.005  # two decimals
_SHAPE = re.compile(rb'"layer":(\d+),"n_expert_used":(\d+),"n_tokens":(\d+)')


@dataclass(frozen=True)
class Run:
    """One run: the flags it was given and what its log measured.

    bank: slots per layer. top_k: experts per token, 0 for the model's own. replay_of: the run whose trace it replayed.
    extra: further flags. flags: the part of them that the user gave directly; None if not in run.json. place: the
        machine it ran on, from run.json, by key (`machine`, `host`). environment: variables that change its behaviour,
        None if not in run.json. cache: the state of the page cache at the start, `warm` or `cold`; None if not in
        run.json. document: all of run.json. trace: the file of its routed calls, or None. model: its model or sidecar
        named in run.json, if it still exists.
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
        """The description of its mode."""
        return self.engine.modes[self.mode]

    @property
    def install_error(self) -> float | None:
        """Relative standard error of the time per install, from the variation over the layers in the log.

        None if fewer than two layers installed anything.
        """
        each = [line.install_ms / line.misses for line in self.log.layers if line.misses]
        if len(each) < 2:
            return None
        mean = sum(each) / len(each)
        return sqrt(sum((one - mean) ** 2 for one in each) / (len(each) - 1) / len(each)) / mean if mean else None

    @property
    def install_bytes(self) -> tuple[float, float] | None:
        """The least and most bytes per install that the log's rounded numbers allow; None without installs.

        From the lines of its layers, else from the installs before the run.
        """
        installs, size, unit = sum(line.misses for line in self.log.layers), 0.0, 0.0
        if installs:
            size, unit = sum(line.bytes_read for line in self.log.layers), ROUNDED * MIB * len(self.log.layers)
        elif self.log.prime is not None and self.log.prime.installs:
            installs, size, unit = self.log.prime.installs, self.log.prime.bytes_read, ROUNDED * GIB
        return ((size - unit) / installs, (size + unit) / installs) if installs else None


@dataclass(frozen=True, eq=False)
class PredictedRun:
    """lines: the counters, as printed in the log. slot: i32 [references], or None if the mode keeps no tables.

    workload, replayed: what was replayed, for the seconds; replayed is None in the modes that only hit.
    shown_layers: the most layers with a line in a log. unknown: lines that cannot be predicted without a model.
    """

    lines: Lines
    slot: NDArray[np.int32] | None
    workload: Workload
    replayed: Replayed | None = None
    shown_layers: int = 0
    unknown: tuple[str, ...] = ()


def first_calls(trace: RoutingTrace, calls: int) -> RoutingTrace:
    """The first calls of a trace, with only their routing and slots."""
    if calls >= trace.calls:
        return trace
    refs = int(trace.offset[calls])
    none = dict.fromkeys(("weight", "resident", "phase", "sequence", "step", "n_text"))
    return trace.with_(
        layer=trace.layer[:calls],
        n_tokens=trace.n_tokens[:calls],
        offset=trace.offset[: calls + 1],
        expert=trace.expert[:refs],
        slot=None if trace.slot is None else trace.slot[:refs],
        **none,
    )


def generated(trace: RoutingTrace) -> int | None:
    """Tokens that a run with this trace generated, which no log says; None if its prompt cannot be found.

    Each but the last was decoded; an end-of-text token counts too.
    """
    phases = find_phases(trace)
    return None if phases is None else int((phases.phase == PHASE_DECODE).sum()) + 1


def generated_by(trace: Path, calls: int | None) -> int | None:
    """The same from the first `calls` lines of a trace file, all if None: without compiled kernels, and slow."""
    with trace.open("rb") as lines:
        found = [shape.groups() for line in islice(lines, calls) if (shape := _SHAPE.search(line))]
    shapes = np.array(found, np.int64).reshape(-1, 3)
    if not len(shapes):
        return None
    layer, used, tokens = shapes.T
    offset = np.cumsum([0, *(used * tokens)])
    of_calls = RoutingTrace(
        layer.astype(np.int16), tokens.astype(np.int32), offset, np.zeros(int(offset[-1]), np.int16), {}
    )
    return generated(of_calls)
