"""Seconds of a recorded run, predicted from other runs of the same machine: never from the run itself."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import numpy as np

from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, Unsupported, Unusable
from flashmoe_sim.machines.belief import ends
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.prefetchers.table import parse_prefetcher
from flashmoe_sim.residency.replay import Replayed, replay
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.timeline.assemble import Conditions, costs_of, work_of
from flashmoe_sim.timeline.from_replay import draws_of, time_replay
from flashmoe_sim.timeline.models.table import parse_execution
from flashmoe_sim.timeline.names import READ, UPLOAD
from flashmoe_sim.timeline.run import simulate
from flashmoe_sim.timeline.timing import speed_draws, timing_of
from native_bridge.check.anchors import choose_anchors, io_split, is_like, is_repeat, reads_while_decoding
from native_bridge.check.counts import CountCheck
from native_bridge.check.folder import RunFolder, RunFolders, without_repeat
from native_bridge.engines.read import fit_runs

WITHOUT_SLOTS = 1.31  # at most this many times as fast as all hits: `stock` in 14 sets of runs on two cores

NO_LAYERS = "its anchors leave no time for a layer: their misses explain all of it"


@dataclass(frozen=True)
class Seconds:
    """A predicted speed, in tokens a second, and the measured one; None, and why, if nothing predicts it.

    measured_tok_s, measured_install_s: the median of the run and its repeats. tok_s_lo, tok_s_hi: the 90% interval of
    tok_s. anchors: the runs on which the machine was fitted, each with its repeats.
    install_s: of all installs that routed calls waited for; None if there were none.
    bytes_read: from the sidecar, reads ahead included; None if it is not known.
    """

    measured_tok_s: float
    tok_s: float | None = None
    tok_s_lo: float | None = None
    tok_s_hi: float | None = None
    anchors: tuple[str, ...] = ()
    install_s: float | None = None
    measured_install_s: float | None = None
    bytes_read: int | None = None
    why_not: str = ""

    @property
    def error(self) -> float | None:
        """The relative error of the speed; positive if the prediction was too fast."""
        return None if self.tok_s is None else self.tok_s / self.measured_tok_s - 1

    @property
    def held(self) -> bool | None:
        """Whether the measured speed is within the interval."""
        if self.tok_s_lo is None or self.tok_s_hi is None:
            return None
        return self.tok_s_lo <= self.measured_tok_s <= self.tok_s_hi

    @property
    def install_error(self) -> float | None:
        if self.install_s is None or not self.measured_install_s:
            return None
        return self.install_s / self.measured_install_s - 1


@dataclass
class Machines:
    """The machines fitted so far, by the folders of their anchors.

    among: the runs from which to choose anchors. anchors: for all runs; chosen for each run if there are none.
    differing: folders whose counts differ, which are not used.
    """

    among: RunFolders
    anchors: Sequence[RunFolder] = ()
    differing: frozenset[Path] = frozenset()
    fitted: dict[tuple[Path, ...], Machine] = field(default_factory=dict)

    def anchors_for(self, folder: RunFolder) -> list[RunFolder]:
        """The anchors for a run; raises BadInput, saying what is missing, if nothing may predict it."""
        if not self.anchors:
            others = self._like(folder)
            chosen = choose_anchors([one for one in others if not is_repeat(one, folder)], than=f"{folder.name} itself")
            return [one for anchor in chosen for one in others if is_repeat(one, anchor)]
        if any(is_repeat(one, folder) for one in self.anchors):
            raise Conflict("it is an anchor, or repeats one")
        for anchor in self.anchors:
            if not is_like(anchor, folder):
                raise Conflict(f"anchor {anchor.name} is of another machine, cache state, model or top-k")
            if reads_while_decoding(anchor):
                raise Unsupported(f"anchor {anchor.name} read its experts while it decoded, from a cold page cache")
        return list(self.anchors)

    def repeats(self, folder: RunFolder) -> list[RunFolder]:
        """The run and its repeats."""
        return [folder, *(one for one in self._like(folder) if is_repeat(one, folder))]

    def _like(self, folder: RunFolder) -> list[RunFolder]:
        return [
            one
            for one in self.among.others(folder)
            if is_like(one, folder) and one.place.resolve() not in self.differing
        ]

    def fitted_on(self, anchors: Sequence[RunFolder]) -> Machine:
        """The machine fitted on anchors; raises BadInput if they do not determine one."""
        key = tuple(anchor.place for anchor in anchors)
        if key not in self.fitted:
            model = self.among.model
            command = shlex.join(["sim", "machine", "fit", *map(str, key), *(["--model", model] if model else [])])
            self.fitted[key] = fit_runs(key, name="anchors", command=command, model=model).machine
        return self.fitted[key]


def predict_seconds(checked: CountCheck, machines: Machines) -> Seconds:
    """The speed that other runs predict for a run with compared counts."""
    folder = checked.folder
    repeats = machines.repeats(folder)
    nothing = Seconds(median(one.run.log.decode_tok_s for one in repeats))
    try:
        if folder.unfit:
            raise Unusable("the run failed" if folder.failure else folder.unfit)
        if folder.model is None:
            raise Incomplete("no manifest.json with it and no --model: bytes are not known")
        if folder.run.does.kind == "copied":
            raise Unsupported("its installs are copies from RAM, which no anchor measures")
        if reads_while_decoding(folder):
            raise Unsupported("from a cold page cache it reads its experts while it decodes, which nothing predicts")
        if not checked.passed:
            raise Conflict("its counts differ" if checked.differences else "its counts were not compared")
        anchors = machines.anchors_for(folder)
        machine = machines.fitted_on(anchors)
        found = replace(nothing, anchors=tuple(dict.fromkeys(without_repeat(anchor.name) for anchor in anchors)))
        return _predicted(found, machine, checked, repeats)
    except BadInput as error:
        return replace(nothing, why_not=str(error))


def _predicted(found: Seconds, machine: Machine, checked: CountCheck, repeats: Sequence[RunFolder]) -> Seconds:
    """The speed on a fitted machine. Raises BadInput if the run would take no time on it."""
    folder = checked.folder
    assert folder.model is not None
    if not folder.run.does.slots:
        return _all_resident(found, machine, layers=len(folder.model.layers))
    assert checked.predicted is not None
    workload = checked.predicted.workload
    if folder.run.does.kind == "all-hit":
        return _all_hit(found, machine, workload)
    if folder.run.does.kind == "prefetched":
        setup = Setup(
            Bank(slots=folder.run.bank),
            contract="runtime",
            prefetch=parse_prefetcher("oracle-1"),
            io_split=io_split(folder),
        )
        return _streamed(found, machine, workload, replay(workload, setup, record=True), _conditions(folder))
    assert checked.predicted.replayed is not None
    waited_s = [one.run.log.routed.install_ms / 1e3 for one in repeats if one.run.log.routed]
    found = replace(found, measured_install_s=median(waited_s))
    return _streamed(found, machine, workload, checked.predicted.replayed, _conditions(folder))


def _conditions(folder: RunFolder) -> Conditions:
    """The order in which the run installed, from its log."""
    routed = folder.run.log.routed
    return Conditions() if routed is None else Conditions(parse_execution(routed.execution))


def _streamed(
    found: Seconds, machine: Machine, workload: Workload, replayed: Replayed, conditions: Conditions
) -> Seconds:
    timed = time_replay(workload, replayed, machine, conditions)
    waited_s = float(timed.timeline.parts[:, [READ, UPLOAD]].sum())
    return replace(
        found,
        tok_s=timed.timing.tok_s,
        tok_s_lo=timed.tok_s_lo,
        tok_s_hi=timed.tok_s_hi,
        install_s=waited_s or None,
        bytes_read=timed.storage_bytes + timed.page_cache_bytes,
    )


def _all_hit(found: Seconds, machine: Machine, workload: Workload) -> Seconds:
    """The calls of a trace without a miss."""
    conditions, setup = Conditions(), Setup(Bank(slots=max(workload.n_experts)), contract="runtime")
    work = work_of(workload, replay(workload, setup, record=True), page_cache_bytes=0)
    none = np.zeros_like(work.misses)
    work = replace(work, misses=none, warm=none, cold=none, installs=none)
    timing = timing_of(simulate(work, costs_of(workload, setup, machine, conditions), conditions.execution), work)
    if timing.tok_s is None:
        raise Unusable(NO_LAYERS)
    draws = draws_of(
        work, timing, machine, conditions.execution, lambda other: costs_of(workload, setup, other, conditions)
    )
    lo, hi = ends(timing.tok_s, draws)
    return replace(found, tok_s=timing.tok_s, tok_s_lo=lo, tok_s_hi=hi, bytes_read=0)


def _all_resident(found: Seconds, machine: Machine, *, layers: int) -> Seconds:
    """Every layer takes its time, and there are no slots to resolve.

    The cost of stopping at every routed call for its slots is part of the time of a layer, since no anchor separates
    it: the run may be faster by that.
    """

    def speed_on(other: Machine) -> float:
        unit = other.gpu or other.cpu
        assert unit is not None
        return 1e6 / layers / unit.layer_us.value

    try:
        tok_s = speed_on(machine)
    except ZeroDivisionError:
        raise Unusable(NO_LAYERS) from None
    lo, hi = ends(tok_s, speed_draws(speed_on, machine, np.zeros(0)))
    hi = tok_s * math.exp(math.hypot(math.log(hi / tok_s), math.log(WITHOUT_SLOTS)))
    return replace(found, tok_s=tok_s, tok_s_lo=lo, tok_s_hi=hi, bytes_read=0)
