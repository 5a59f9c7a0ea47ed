"""Policies and predictors by seconds, on three kinds of machine, and how they fare when prompts switch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

import flashmoe_sim.api as sim
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.paired import blocks_of, log_ratio, mean_of
from flashmoe_sim.policies.table import POLICIES, parse_policy
from flashmoe_sim.prefetchers.table import WITHOUT_FILE
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.sweep.plan import plan_setup
from flashmoe_sim.systems.execution import UploadedFromRam
from flashmoe_sim.timeline.assemble import Conditions
from flashmoe_sim.timeline.from_replay import time_replay
from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.models.hot_cold import HotCold
from flashmoe_sim.timeline.models.overlap_prefetch import OverlapPrefetch
from flashmoe_sim.trace.merge import concat, interleave
from reports.policy_study.measure import TRACES

RESULTS = Path(__file__).with_name("seconds.csv")
SHARES = (8, 4)
TIMED = tuple(name for name, policy in POLICIES.items() if name != "demand" and not policy.hindsight)
AHEAD = tuple(name for name in WITHOUT_FILE if name != "none")
SWITCHED = ("python-256", "prose-256", "cpp-256")  # of one model
TURNS = 64  # steps of each trace in turn


class Kind(NamedTuple):
    """Where misses go: to the CPU, over the link, or to an SSD. direct_io: reads bypass the page cache."""

    name: str
    machine: str
    execution: ExecutionModel
    direct_io: bool = False


KINDS = (
    Kind("cpu", "rtx-3090", HotCold()),
    Kind("upload", "rtx-3090", UploadedFromRam()),
    Kind("ssd", "m3-max-48", OverlapPrefetch(), direct_io=True),
)


def measure() -> pl.DataFrame:
    """A row for each kind, share, trace and policy or predictor: hits, speed, and its gain over LRU with an interval.

    question: `policies`, `ahead` (LRU with a predictor) or `switches`. gain: speed over LRU's on the same trace.
    gain_lo, gain_hi: the 90% interval of the mean gain over all traces of the question, the same in each of its rows.
    """
    rows = list[dict[str, object]]()
    workloads = [sim.load_trace(name) for name in TRACES]
    for kind in KINDS:
        for share in SHARES:
            rows += _compared("policies", kind, share, workloads, [(name, "none") for name in TIMED])
            rows += _compared("ahead", kind, share, workloads, [("lru", "none"), *(("lru", name) for name in AHEAD)])
    for kind in KINDS:
        rows += of_switches(kind)
    floats = pl.selectors.float().round_sig_figs(5)
    return pl.DataFrame(rows, infer_schema_length=None).with_columns(floats)


def of_switches(kind: Kind) -> Iterator[dict[str, object]]:
    """The rows of traces in which prompts switch."""
    return _compared("switches", kind, SHARES[0], _switched(), [(name, "none") for name in TIMED])


def _switched() -> list[Workload]:
    """The traces of one model one after another, and in turns of a few steps."""
    parts = [sim.load_trace(name) for name in SWITCHED]
    traces = [part.trace for part in parts]
    made = {"one after another": concat(traces), f"in turns of {TURNS}": interleave(traces, every=TURNS)}
    return [prepare(trace.with_(name=name), parts[0].geometry) for name, trace in made.items()]


def _compared(
    question: str, kind: Kind, share: int, workloads: Sequence[Workload], setups: Sequence[tuple[str, str]]
) -> Iterator[dict[str, object]]:
    """The rows of one question. setups: policies with predictors; one is LRU with `none`, over which gains are."""
    found = {setup: [_run(kind, share, one, *setup) for one in workloads] for setup in setups}
    base = found["lru", "none"]
    for (policy, predictor), runs in found.items():
        lo, hi = interval([(one.step_s, other.step_s) for one, other in zip(runs, base, strict=True)])
        for workload, one, other in zip(workloads, runs, base, strict=True):
            yield {
                "question": question,
                "kind": kind.name,
                "share": share,
                "trace": workload.trace.name,
                "policy": policy,
                "prefetch": predictor,
                "hit_rate": one.hit_rate,
                "tok_s": one.tok_s,
                "gain": float(other.step_s.sum() / one.step_s.sum()),
                "gain_lo": lo,
                "gain_hi": hi,
            }


class Run(NamedTuple):
    """One replay in seconds. step_s: f64 [steps], of the decoded steps."""

    hit_rate: float
    tok_s: float
    step_s: NDArray[np.float64]


def _run(kind: Kind, share: int, workload: Workload, policy: str, predictor: str) -> Run:
    setup = plan_setup(
        max(workload.n_experts) // share, policy=parse_policy(policy), contract="atomic", prefetch=predictor
    )
    conditions = Conditions(kind.execution, direct_io=kind.direct_io)
    replayed = replay(workload, setup, record=True)
    timing = time_replay(workload, replayed, load_machine(kind.machine), conditions, interval=False).timing
    assert timing.tok_s is not None
    return Run(replayed.counts.total()["hit_rate"], timing.tok_s, timing.decode_step_s)


def interval(pairs: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> tuple[float, float]:
    """The 90% interval of the geometric mean over traces of how many times as fast one policy is as another.

    pairs: for each trace the seconds of its steps under both.
    """
    found = mean_of([log_ratio(own_s, other_s, blocks_of(len(own_s))) for own_s, other_s in pairs])
    lo, hi = np.exp(found.interval(0.9))
    return float(lo), float(hi)


def load() -> pl.DataFrame:
    """The committed table."""
    return pl.read_csv(RESULTS, infer_schema_length=None)
