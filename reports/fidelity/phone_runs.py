"""BigMoeOnEdge on a phone: its runs, and the timeline that predicts them.

Source: github.com/Helldez/BigMoeOnEdge, commit 2d4f2b11. Its engine computes on the CPU. A miss is read past the page
cache, tensor by tensor, over the lanes; the bank's pages are committed and released by the thread that computes. That
bookkeeping is priced as the link of the machine: seconds per byte of a miss, before it is computed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Link, Machine, Quantity
from flashmoe_sim.policies.bank import parse_bank
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from flashmoe_sim.timeline.assemble import Conditions, costs_of, work_of
from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.models.table import parse_execution
from flashmoe_sim.timeline.run import Timeline, simulate
from flashmoe_sim.timeline.work import Work
from flashmoe_sim.trace.bundled import catalog
from flashmoe_sim.trace.load import load_trace
from reports.fidelity.from_table import with_values

FOLDER = Path(__file__).parents[2] / "data" / "bigmoeonedge"
TRACES = {"qwen": ("qwen3-30b-phone", "qwen3-30b-a3b"), "gemma": ("gemma-4-26b-phone", "gemma-4-26b-a4b")}
BANK = Setup(parse_bank("4000MiB"), parse_policy("lru:stamp=last"), "atomic", scope="global", io_split=1)
SERIAL = parse_execution("parallel-install")
OVERLAPPED = parse_execution("overlap-prefetch")
TOP_K = 8  # of the runs without routes


@dataclass(frozen=True, eq=False)
class Recorded:
    """One run's own clocks, f64 [tokens] each; those that a run does not have are zero.

    wall_ms is the sum of compute_ms and io_ms if nothing overlaps, else of compute_ms, stall_ms and bookkeeping_ms.
    """

    wall_ms: NDArray[np.float64]
    io_ms: NDArray[np.float64]
    compute_ms: NDArray[np.float64]
    stall_ms: NDArray[np.float64]
    bookkeeping_ms: NDArray[np.float64]
    read_bytes: NDArray[np.float64]


@cache
def recorded(file: str) -> Recorded:
    """A run by the name of its file, such as `qwen_c2000_l4.csv` or `qwen.metrics`."""
    import polars as pl

    table = pl.read_csv(FOLDER / file, comment_prefix="#")
    columns = ("wall_ms", "io_ms", "compute_ms", "stall_ms", "mgmt_ms", "read_bytes")
    return Recorded(*(table[c].to_numpy().astype(float) if c in table else np.zeros(len(table)) for c in columns))


@cache
def workload(model: str) -> Workload:
    """The routes of `qwen` or `gemma`, with the tensors of their experts and the dense bytes that they tell."""
    trace, geometry = TRACES[model]
    return prepare(load_trace(catalog()[trace].path), load_model(geometry))


def active_bytes(model: str, top_k: int) -> float:
    """Weights that one token streams through the CPU."""
    work = workload(model)
    assert work.trace.dense_bytes is not None
    assert work.expert_bytes is not None
    return float(sum(work.trace.dense_bytes.values()) + top_k * sum(work.expert_bytes))


@cache
def routed_work(model: str) -> Work:
    """The run whose routes and residency are recorded: prompt and 128 tokens, with a cache of 4000 MiB."""
    return work_of(workload(model), replay(workload(model), BANK, record=True), page_cache_bytes=0)


def drawn_work(model: str, read_bytes: NDArray[np.float64]) -> Work:
    """Work for runs without routes: as many misses as a token's bytes are, drawn over all requests of its layers.

    Which layers miss is not known; that each request is as likely to miss as any other is what the routed runs show
    (tests/validation/test_phone.py compares). read_bytes: f64 [tokens].
    """
    sizes = workload(model).expert_bytes
    assert sizes is not None
    layers, tokens, random = len(sizes), len(read_bytes), np.random.default_rng(0)
    misses = np.zeros((tokens, layers), np.int32)
    for token, count in enumerate(np.rint(read_bytes / np.mean(sizes)).astype(int)):
        missed = random.permutation(layers * TOP_K)[:count]
        misses[token] = np.bincount(missed % layers, minlength=layers)
    ones, none = np.ones(tokens * layers, np.int32), np.zeros(0, np.int64)
    return Work(
        row=np.tile(np.arange(layers, dtype=np.int32), tokens),
        step=np.repeat(np.arange(tokens, dtype=np.int32), layers),
        n_tokens=ones,
        n_text=ones,
        drafted=ones * 0,
        refs=ones * TOP_K,
        requests=ones * TOP_K,
        misses=misses.ravel(),
        warm=ones * 0,
        cold=ones * 0,
        installs=ones * 0,
        phase=np.zeros(tokens * layers, np.uint8),
        ahead_after=none,
        ahead_row=none.astype(np.int32),
        ahead_warm=none.astype(np.uint8),
        ahead_cold=none.astype(np.uint8),
        ahead_used=none,
    )


def phone(*, table: bool) -> Machine:
    """The preset, with the bookkeeping of a miss as its link and without guesses of times per layer and per install.

    table: reads as the phone's owners measured them; else each read takes request_us beside its share of read_gb_s.
    """
    machine = load_machine("phone-ufs4")
    rate = Quantity(8.0, 7.0, 9.0, "fitted", "committing and releasing the pages of a miss", estimated=True)
    none = Quantity(0.0, 0.0, 0.0, "fitted", "in the rate")
    machine = replace(machine, link=Link(pinned_gb_s=rate, pageable_gb_s=rate, request_us=none))
    if not table:
        machine = replace(machine, storage=replace(machine.storage, measured=()))
    return with_values(machine, {"cpu.layer_us": 0.0, "host.install_us": 0.0, "host.call_us": 0.0})


def run(model: str, work: Work, machine: Machine, execution: ExecutionModel) -> Timeline:
    """The timeline of a run."""
    return simulate(work, costs_of(workload(model), BANK, machine, Conditions(execution, direct_io=True)), execution)


def step_ms(timeline: Timeline, work: Work) -> NDArray[np.float64]:
    """Wall time of every step, f64 [steps]."""
    last = np.flatnonzero(np.diff(work.step, append=-1) != 0)
    return np.diff(timeline.end[last], prepend=0.0) * 1e3
