"""Workloads as systems route them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.trace.cut import cut
from flashmoe_sim.trace.prompt import in_micro_batches


@lru_cache(maxsize=8)
def batched(workload: Workload, tokens: int) -> Workload:
    """The workload with prompts in micro-batches of so many tokens; see `trace.prompt.in_micro_batches`."""
    trace = in_micro_batches(workload.trace, tokens)
    return workload if trace is workload.trace else prepare(trace, workload.geometry)


@lru_cache(maxsize=4)
def with_fewer(workload: Workload, top_k: int | None) -> Workload:
    """The workload with at most so many experts of each token; None: all."""
    if top_k is None or top_k >= workload.trace.top_k:
        return workload
    return prepare(cut(workload.trace, top_k=top_k), workload.geometry)


@lru_cache(maxsize=4)
def by_number(workload: Workload) -> Workload:
    """The workload with the experts of every call in ascending order."""
    trace = workload.trace
    call = np.repeat(np.arange(trace.calls), np.diff(trace.offset))
    order = np.lexsort((trace.expert, call))
    weight = None if trace.weight is None else trace.weight[order]
    ordered = trace.with_(expert=trace.expert[order], weight=weight, slot=None, resident=None)
    return prepare(ordered, workload.geometry)
