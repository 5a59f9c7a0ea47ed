"""Policies and predictors against a policy on the same traces: how much more each hits, how much faster it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput, OutOfRange
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.paired import PairedEstimate, blocks_of, difference, holm, log_ratio, mean_of
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.sweep.left_out import LeftOut
from flashmoe_sim.timeline.assemble import Conditions
from flashmoe_sim.timeline.from_replay import time_replay
from flashmoe_sim.trace.calls import run_starts

Conditioned = Callable[[Setup, ModelGeometry | None], Conditions]


@dataclass(frozen=True)
class Versus:
    """One policy against another in a bank: on one trace, or the mean over several.

    trace: its name; None for the mean. traces: the number of traces. against: the other policy. machine: of the
        seconds; None without one.
    points: the difference of the hit rates, as a share. log_gain: the logarithm of how many times as fast it decodes;
    None without a machine. ahead, faster: traces on which it hits more, and on which it is faster.
    p: the chance of a gain this large if there is none, or without a machine of such points; corrected for all
        policies, banks and machines that are judged together.
    """

    trace: str | None
    traces: int
    setup: Setup
    against: str
    hit_rate: float
    points: PairedEstimate
    log_gain: PairedEstimate | None
    tok_s: float | None
    ahead: int
    faster: int | None
    machine: str | None = None
    p: float = math.nan

    def as_row(self, confidence: float) -> dict[str, Any]:
        """schema.JUDGED."""
        lo, hi = self.points.interval(confidence)
        return {
            "trace": self.trace,
            "traces": self.traces,
            "bank": str(self.setup.bank),
            "policy": self.setup.policy.spec,
            "prefetch": self.setup.prefetch.spec,
            "against": self.against,
            "contract": self.setup.contract,
            "machine": self.machine,
            "hit_rate": self.hit_rate,
            "more_hits": self.points.value,
            "more_hits_lo": known(lo),
            "more_hits_hi": known(hi),
            "ahead": self.ahead,
            "tok_s": self.tok_s,
            **gains(self.log_gain, confidence),
            "faster": self.faster,
            "p": known(self.p),
        }


class Steps(NamedTuple):
    """One replay by steps that count.

    hits, requests: i64 [steps]. With a machine: decoded: i64, the decoded steps; step_s, tokens: of these, f64 and i64.
    """

    hits: NDArray[np.int64]
    requests: NDArray[np.int64]
    decoded: NDArray[np.int64] | None = None
    step_s: NDArray[np.float64] | None = None
    tokens: NDArray[np.int64] | None = None

    def since(self, first: int) -> Steps:
        """The steps from one on."""
        hits, requests = self.hits[first:], self.requests[first:]
        if self.decoded is None or self.step_s is None or self.tokens is None:
            return Steps(hits, requests)
        of = self.decoded >= first
        return Steps(hits, requests, self.decoded[of] - first, self.step_s[of], self.tokens[of])

    @property
    def hit_rate(self) -> float:
        return float(self.hits.sum() / max(self.requests.sum(), 1))

    @property
    def tok_s(self) -> float | None:
        """Tokens a second of the decoded steps; None without a machine, or if the tokens are not known."""
        if self.step_s is None or self.tokens is None or not self.tokens.all() or not self.step_s.sum():
            return None
        return float(self.tokens.sum() / self.step_s.sum())


def versus(
    workloads: Sequence[Workload],
    setups: Sequence[Setup],
    against: Mapping[str, Setup],
    *,
    machines: Sequence[Machine] = (),
    conditions: Conditioned | None = None,
    skip_steps: int = 0,
    left_out: list[LeftOut],
    progress: Callable[[int, int], None] | None = None,
) -> list[Versus]:
    """Every setup against the other policy in the same bank: a row for each trace, then the means over several traces.

    With machines there is a row for each; one replay serves them all.
    against: the other policy's setup by the text of the bank. skip_steps: steps at the beginning of each trace that do
    not count. left_out: receives banks that do not fit a trace.
    Raises BadInput if no bank fits any trace, or a trace has no more steps than are skipped.
    """
    rows: list[Versus] = []
    refused: list[BadInput] = []
    done = 0
    for workload in workloads:
        request = requests_of(workload, skip_steps)
        others = dict[str, list[Steps | BadInput]]()
        for setup in setups:
            if progress is not None:
                progress(done, len(workloads) * len(setups))
            done += 1
            bank = str(setup.bank)
            try:
                if bank not in others:
                    others[bank] = _counted_on(workload, against[bank], machines, conditions, skip_steps)
                own = _counted_on(workload, setup, machines, conditions, skip_steps)
            except BadInput as error:
                refused.append(error)
                left_out.append(LeftOut.of(setup, str(error), trace=workload.trace.name))
            else:
                for place, (mine, other) in enumerate(zip(own, others[bank], strict=True)):
                    if wrong := next((one for one in (mine, other) if isinstance(one, BadInput)), None):
                        refused.append(wrong)
                        left_out.append(LeftOut.of(setup, str(wrong), trace=workload.trace.name))
                        continue
                    assert isinstance(mine, Steps)
                    assert isinstance(other, Steps)
                    row = _against(workload, setup, against[bank].policy.spec, mine, other, request)
                    rows.append(replace(row, machine=machines[place].name) if machines else row)
    if not rows:
        raise refused[0]
    return [*_corrected(rows), *_corrected(list(_means(rows)) if len(workloads) > 1 else [])]


def requests_of(workload: Workload, skip_steps: int) -> NDArray[np.int32] | None:
    """The request of each step that counts; None if the trace does not record them."""
    trace = workload.trace
    steps = run_starts(trace.steps)
    first = steps[skip_steps:]
    if len(first) < 2:
        raise OutOfRange(
            f"{trace.name}: has {len(steps):,} steps, and {skip_steps:,} are to be skipped; two or more must be left"
        )
    return None if trace.sequence is None else trace.sequence[first]


def counted(
    workload: Workload,
    setup: Setup,
    machine: Machine | None = None,
    conditions: Conditioned | None = None,
    skip_steps: int = 0,
) -> Steps:
    """Replay a setup, and count by steps after the skipped ones."""
    (found,) = _counted_on(workload, setup, [] if machine is None else [machine], conditions, skip_steps)
    if isinstance(found, BadInput):
        raise found
    return found


def _counted_on(
    workload: Workload, setup: Setup, machines: Sequence[Machine], conditions: Conditioned | None, skip_steps: int
) -> list[Steps | BadInput]:
    """The same on each machine, or why it cannot run there; once without one."""
    replayed = replay(workload, setup, record=True)
    assert replayed.stream is not None
    stream = replayed.stream
    hits, requests = (stream.by_step(calls)[skip_steps:] for calls in (stream.hits, stream.requests))
    if not machines or conditions is None:
        return [Steps(hits, requests)]
    found: list[Steps | BadInput] = []
    for machine in machines:
        try:
            given = conditions(setup, workload.geometry)
            timing = time_replay(workload, replayed, machine, given, interval=False).timing
        except BadInput as error:
            found.append(error)
            continue
        decoded = timing.decode[timing.decode >= skip_steps]
        found.append(Steps(hits, requests, decoded - skip_steps, timing.step_s[decoded], timing.tokens[decoded]))
    return found


def _against(
    workload: Workload, setup: Setup, against: str, own: Steps, other: Steps, request: NDArray[np.int32] | None
) -> Versus:
    points = difference(own.hits, other.hits, own.requests, blocks_of(len(own.hits), request))
    gain = gain_of(own, other, request)
    return Versus(
        workload.trace.name,
        1,
        setup,
        against,
        own.hit_rate,
        points,
        gain,
        own.tok_s,
        int(points.value > 0),
        None if gain is None else int(gain.value > 0),
    )


def gain_of(own: Steps, other: Steps, request: NDArray[np.int32] | None) -> PairedEstimate | None:
    """The logarithm of how many times as fast one decodes as the other; None without a machine."""
    if own.step_s is None or other.step_s is None:
        return None
    decoded = None if request is None else request[own.decoded]
    return log_ratio(own.step_s, other.step_s, blocks_of(len(own.step_s), decoded))


def gains(log_gain: PairedEstimate | None, confidence: float) -> dict[str, float | None]:
    """Columns of how many times as fast, with its interval."""
    if log_gain is None:
        return dict.fromkeys(("gain", "gain_lo", "gain_hi"))
    lo, hi = (known(math.exp(end)) for end in log_gain.interval(confidence))
    return {"gain": math.exp(log_gain.value), "gain_lo": lo, "gain_hi": hi}


def _means(rows: Sequence[Versus]) -> Iterator[Versus]:
    """The mean over the traces of each setup, on each machine."""
    alike: dict[tuple[Setup, str | None], list[Versus]] = {}
    for row in rows:
        alike.setdefault((row.setup, row.machine), []).append(row)
    for (setup, machine), ones in alike.items():
        gains = [one.log_gain for one in ones if one.log_gain is not None]
        speeds = [one.tok_s for one in ones if one.tok_s is not None]
        yield Versus(
            None,
            len(ones),
            setup,
            ones[0].against,
            fmean(one.hit_rate for one in ones),
            mean_of([one.points for one in ones]),
            mean_of(gains) if gains else None,
            fmean(speeds) if speeds else None,
            sum(one.ahead for one in ones),
            sum(one.faster or 0 for one in ones) if gains else None,
            machine,
        )


def _corrected(rows: Sequence[Versus]) -> list[Versus]:
    """The rows with the probabilities of each trace's, or of the means, corrected together."""
    places: dict[str | None, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(row.trace, []).append(place)
    ps = [row.points.p if row.log_gain is None else row.log_gain.p for row in rows]
    corrected = dict[int, float]()
    for some in places.values():
        corrected |= dict(zip(some, holm([ps[place] for place in some]), strict=True))
    return [replace(row, p=corrected[place]) for place, row in enumerate(rows)]


def known(number: float) -> float | None:
    """The number; None for NaN."""
    return None if math.isnan(number) else number
