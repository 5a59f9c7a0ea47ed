"""Sampling experts (SHARDS) and windows of steps: measured, and not offered.

Experts: some of each layer's experts are kept and the bank is as much smaller (Waldspurger et al. 2017, miniature
simulation). Steps: the first window is kept, and of the others two of each stretch of the trace, each with as many
steps before it that are not counted; the bank keeps what it had at the end of the window before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import flashmoe_sim.api as sim
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.trace.routing import RoutingTrace
from reports.sampling.measure import points, rms

TRACES = ("python-256", "deepseek-v2-lite", "gpt-oss-120b")
POLICIES = ("lru", "arc", "s3fifo", "lfu-decay", "w-tinylfu")
SHARES = (1 / 2, 1 / 4, 1 / 8, 1 / 16)
BANKS = (1 / 4, 1 / 2, 3 / 4)
SEEDS = range(6)
WINDOW = 32  # steps of a window, and before it
Rates = dict[str, float]


def other_ways() -> pl.DataFrame:
    """A row for each way, policy and share, over the traces, banks and seeds; errors in points of the hit rate."""
    found: dict[tuple[str, str, float], list[tuple[float, float, float]]] = {}
    for name in TRACES:
        workload = sim.load_trace(name)
        for slots in (int(share * max(workload.n_experts)) for share in BANKS):
            exact = {policy: _rate(*_hits(workload, policy, slots)) for policy in POLICIES}
            for share in SHARES:
                for seed in SEEDS:
                    for way, sample in (("experts", by_experts), ("steps", by_steps)):
                        rates, cost = sample(workload, slots, share, np.random.default_rng(seed))
                        for policy in POLICIES:
                            error = rates[policy] - exact[policy]
                            beside = error - (rates["lru"] - exact["lru"])
                            found.setdefault((way, policy, share), []).append((error, beside, cost))
    rows = []
    for (way, policy, share), errors in found.items():
        plain, beside, cost = np.array(errors).T
        rows.append(
            {
                "way": way,
                "policy": policy,
                "share": share,
                "replayed": round(float(cost.mean()), 4),
                "plain_bias": points(float(plain.mean())),
                "plain_rms": points(rms(plain)),
                "bias": points(float(beside.mean())),
                "rms": points(rms(beside)),
            }
        )
    return pl.DataFrame(rows)


def by_experts(workload: Workload, slots: int, share: float, draws: np.random.Generator) -> tuple[Rates, float]:
    """Hit rates of the policies with that share of every layer's experts, and the share of the references replayed."""
    trace, place = workload.trace, {}
    for layer, experts in trace.n_experts.items():
        chosen = np.sort(draws.choice(experts, round(share * experts), replace=False))
        place[layer] = np.full(experts, -1, np.int16)
        place[layer][chosen] = np.arange(len(chosen))
    renumbered = np.empty(trace.refs, np.int16)
    layer_of = np.repeat(trace.layer, np.diff(trace.offset))
    for layer in trace.layers:
        renumbered[layer_of == layer] = place[layer][trace.expert[layer_of == layer]]
    kept = renumbered >= 0
    offset = np.concatenate([[0], np.cumsum(kept)])[trace.offset]
    part = _routing(trace, trace.layer, offset, renumbered[kept], trace.steps)
    part = part.with_(n_experts={layer: int(places.max()) + 1 for layer, places in place.items()})
    few, sampled = max(round(slots * share), 1), Workload(part, None)
    return {policy: _rate(*_hits(sampled, policy, few)) for policy in POLICIES}, float(kept.mean())


def by_steps(workload: Workload, slots: int, share: float, draws: np.random.Generator) -> tuple[Rates, float]:
    """Hit rates of the policies in that share of the windows, and the share of the calls replayed."""
    trace = workload.trace
    window = trace.steps // WINDOW
    strata = np.array_split(np.arange(1, window[-1] + 1), max(round(share * window[-1] / 2), 1))
    weight = np.zeros(window[-1] + 1)
    weight[0] = 1
    for stratum in strata:
        weight[draws.choice(stratum, 2, replace=False)] = len(stratum) / 2
    replayed = (weight > 0) | (np.append(weight[1:], 0) > 0)  # a window, or the one before it
    kept = replayed[window]
    length = np.diff(trace.offset)
    offset = np.concatenate([[0], np.cumsum(length[kept])])
    part = _routing(trace, trace.layer[kept], offset, trace.expert[np.repeat(kept, length)], trace.steps[kept])
    rates = {}
    for policy in POLICIES:
        hits, requests = _hits(Workload(part, None), policy, slots)
        rates[policy] = _rate(weight[window[kept]] * hits, weight[window[kept]] * requests)
    return rates, float(kept.mean())


def _routing(trace: RoutingTrace, layer: Any, offset: Any, expert: Any, step: Any) -> RoutingTrace:
    tokens = (np.diff(offset) > 0).astype(np.int32)
    step = np.unique(step, return_inverse=True)[1].astype(np.int32)
    return RoutingTrace(layer, tokens, offset, expert, trace.n_experts, step=step)


def _hits(workload: Workload, policy: str, slots: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Hits and requests of each call under `atomic`."""
    stream = replay(workload, Setup(Bank(slots=slots), parse_policy(policy), "atomic"), record=True).stream
    assert stream is not None
    return stream.hits.astype(np.int64), stream.requests.astype(np.int64)


def _rate(hits: NDArray[Any], requests: NDArray[Any]) -> float:
    return float(hits.sum() / requests.sum())
