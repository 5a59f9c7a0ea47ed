"""Hit rates that libCacheSim and independent programs measured on two real traces.

Measured elsewhere, 2026: libcachesim 0.3.5 on the BigMoeOnEdge traces (reference by reference, a bank for each layer of
12, 24 and 48 slots), and event-atomic replays of the same with prompts cut into tokens; in percent, to one decimal.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from flashmoe_sim.sweep.collect import sweep
from flashmoe_sim.trace.bundled import catalog
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.routing import RoutingTrace

TRACES = ("qwen3-30b-phone", "gemma-4-26b-phone")
SLOTS = (12, 24, 48)
TOP_K = 6

# Policies whose rules are those of libCacheSim: every figure is equal.
EQUAL = {
    "lru": (48.5, 69.3, 86.9, 48.9, 69.9, 86.8),
    "fifo": (44.7, 65.3, 84.2, 44.1, 65.0, 83.7),
    "clock": (49.2, 69.8, 87.2, 49.6, 70.4, 86.6),
    "sieve": (44.7, 68.9, 87.1, 46.6, 69.3, 86.6),
    "arc": (47.9, 69.4, 87.2, 49.7, 70.0, 86.8),
    "mq:life_time=75": (48.9, 70.5, 87.6, 52.0, 71.6, 87.1),
    "lfu:count=restart": (27.0, 55.6, 85.0, 29.8, 60.7, 85.3),
    "min:forced": (68.1, 82.6, 90.9, 68.7, 82.3, 90.6),
}

# Policies with another rule there, the most that a figure may differ for that reason, in points, and the reason.
DIFFERENT = {
    "hyperbolic": ((49.7, 70.4, 87.1, 50.5, 71.3, 86.8), 0.1, "samples 64 residents; here all are compared"),
    "cacheus": ((48.5, 69.4, 87.1, 50.7, 70.2, 86.8), 0.3, "starts with equal parts and has its own generator"),
    "lirs": ((47.2, 67.5, 86.9, 49.4, 68.3, 86.2), 0.4, "demotes a LIR on a hit of a resident HIR off the stack too"),
    "slru": ((44.4, 70.1, 87.5, 46.5, 70.7, 87.1), 0.8, "has four equal segments; here two, as in the paper"),
    "s3fifo:small=0.25": ((47.8, 69.9, 87.3, 50.0, 71.0, 86.8), 0.6, "fills the main queue first while it is cold"),
    "random": ((41.7, 63.1, 83.1, 41.4, 62.8, 82.1), 0.8, "is another generator"),
    "lecar": ((49.1, 70.1, 87.1, 49.9, 70.7, 87.0), 1.6, "restarts counts and remembers half as many evictions"),
    "w-tinylfu:window=0.2": ((39.0, 64.4, 86.5, 44.6, 68.3, 85.6), 7.6, "counts in a sketch, of other events"),
}


@cache
def workloads() -> list[Workload]:
    return [prepare(load_trace(catalog()[name].path)) for name in TRACES]


def by_token(trace: RoutingTrace) -> RoutingTrace:
    """The same references in calls of one token each: all layers of a token before the next token."""
    first = np.repeat(trace.offset[:-1], trace.n_tokens)
    token = np.arange(len(first)) - np.repeat(np.cumsum(trace.n_tokens) - trace.n_tokens, trace.n_tokens)
    step, layer = np.repeat(trace.steps, trace.n_tokens), np.repeat(trace.layer, trace.n_tokens)
    order = np.lexsort((layer, token, step))
    begin = (first + token * TOP_K)[order]
    return RoutingTrace(
        layer=layer[order],
        n_tokens=np.ones(len(order), np.int32),
        offset=np.arange(len(order) + 1, dtype=np.int64) * TOP_K,
        expert=trace.expert[begin[:, None] + np.arange(TOP_K)].ravel(),
        n_experts=trace.n_experts,
        n_experts_known=trace.n_experts_known,
        top_k=TOP_K,
    )


def hit_percents(policy: str, contract: str, chosen: list[Workload]) -> list[float]:
    setups = [Setup(Bank(slots=slots), parse_policy(policy), contract) for slots in SLOTS]
    return [100 * row["hit_rate"] for row in sweep(chosen, setups)]


@pytest.mark.parametrize("policy", EQUAL)
def test_equal_to_libcachesim(policy: str) -> None:
    assert [round(percent, 1) for percent in hit_percents(policy, "sequential", workloads())] == list(EQUAL[policy])


@pytest.mark.parametrize("policy", DIFFERENT)
def test_different_from_libcachesim_as_explained(policy: str) -> None:
    measured, most, _ = DIFFERENT[policy]
    difference = np.abs(np.round(hit_percents(policy, "sequential", workloads()), 1) - measured)
    assert 0.05 < difference.max() <= most + 0.05


@pytest.mark.parametrize(
    ("policy", "measured"),
    [
        # There the router's favourite counts as used last in a token. In the runtime's order LRU hits up to 0.8 less.
        ("lru:stamp=reverse", (51.9, 70.4, 87.1, 52.8, 70.8, 86.9)),
        ("lru", (51.1, 70.1, 87.0, 52.1, 70.8, 86.9)),
        ("min:forced", (65.4, 82.0, 90.9, 66.2, 81.8, 90.6)),
    ],
)
def test_whole_tokens(policy: str, measured: tuple[float, ...]) -> None:
    tokens = [prepare(by_token(workload.trace)) for workload in workloads()]
    assert [round(percent, 1) for percent in hit_percents(policy, "atomic", tokens)] == list(measured)
