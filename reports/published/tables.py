"""Tables that others published with the traces behind them, replayed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import Policy
from flashmoe_sim.policies.lfu import Lfu
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from flashmoe_sim.trace.load import load_trace
from reports.published.sampled import SampledLfu

TRACES = Path(__file__).with_name("traces")
EXPERTS = {"switch-base-8": 8, "warp-olmoe-299": 64, "warp-kimi-300": 256}
SEEDS = range(1, 9)
ENGINE, SCRIPT = SampledLfu(), SampledLfu(draws=32, keep=True)


class Line(NamedTuple):
    """A figure of a table. said: hits in per cent, or a count of hits; digits: how exactly it was printed."""

    table: str
    what: str
    trace: str
    slots: int
    policy: Policy
    said: float
    digits: int
    is_count: bool = False


LINES = (
    Line("stratamoe-lab, switch-base-8", "LRU, 12 slots, hits", "switch-base-8", 12, Lru(), 354, 0, is_count=True),
    Line("stratamoe-lab, switch-base-8", "LFU, 12 slots, hits", "switch-base-8", 12, Lfu(), 460, 0, is_count=True),
    *(
        Line("warp, gate 0, OLMoE", f"LFRU, {share}", "warp-olmoe-299", slots, SCRIPT, said, 0)
        for share, slots, said in (("6%", 64, 23), ("12.5%", 128, 35), ("25%", 256, 53), ("53%", 543, 81))
    ),
    Line("warp, gate 0, OLMoE", "LRU, 6%", "warp-olmoe-299", 64, Lru(), 0, 0),
    *(
        Line("warp, gate 2, Kimi-Linear", f"LFRU, {share}", "warp-kimi-300", slots, SCRIPT, said, 1)
        for share, slots, said in (
            ("3%", 201, 29.4),
            ("6%", 402, 40.6),
            ("12%", 805, 54.9),
            ("24%", 1610, 71.9),
            ("48%", 3221, 87.4),
        )
    ),
    Line("warp, gate 2, Kimi-Linear", "LRU, 3%", "warp-kimi-300", 201, Lru(), 5.1, 1),
    *(
        Line("warp, measured in the engine", f"{slots:,} slots", "warp-kimi-300", slots, ENGINE, said, 1)
        for slots, said in ((201, 13.2), (402, 40.3), (805, 61.9), (1610, 84.8), (3221, 93.9))
    ),
)


@cache
def of_one_cache(name: str) -> Workload:
    """A trace with one cache for all layers: every expert of every layer has a number of its own, use after use."""
    trace = load_trace(TRACES / f"{name}.parquet")
    row = np.searchsorted(trace.layers, trace.layer)
    per_call = np.diff(trace.offset)
    expert = trace.expert.astype(np.int64) + np.repeat(row * EXPERTS[name], per_call)
    one = trace.with_(
        layer=np.zeros_like(trace.layer),
        expert=expert.astype(trace.expert.dtype),
        step=np.arange(trace.calls, dtype=np.int32),
        n_experts={0: EXPERTS[name] * len(trace.layers)},
    )
    return prepare(one)


def hits(line: Line) -> tuple[int, int]:
    """Hits, and requests."""
    total = replay(of_one_cache(line.trace), Setup(Bank(slots=line.slots), line.policy, "sequential")).counts.total()
    return total["hits"], total["requests"]


def shown(line: Line) -> float:
    """What the table has, by this program."""
    found, requests = hits(line)
    return float(found) if line.is_count else 100 * found / requests


def as_printed(line: Line) -> bool:
    """Whether both are the same as far as the table was printed, or its last digit is one off."""
    off = abs(shown(line) - line.said)
    return off == 0 if line.is_count else off < 1.5 * 10.0**-line.digits


def over_seeds(line: Line) -> tuple[float, float]:
    """The least and the most over several seeds of a rule that draws."""
    assert isinstance(line.policy, SampledLfu)
    found = [shown(line._replace(policy=replace(line.policy, seed=seed))) for seed in SEEDS]
    return min(found), max(found)
