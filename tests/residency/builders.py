"""Traces and geometries from plain lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from flashmoe_sim.geometry.model import LayerGeometry, ModelGeometry
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.prefetchers.table import parse_prefetcher
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.replay import Replayed, replay
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from flashmoe_sim.trace.routing import RoutingTrace

COLUMNS = {
    "calls": tally.CALLS,
    "refs": tally.REFS,
    "requests": tally.REQUESTS,
    "hits": tally.HITS,
    "misses": tally.MISSES,
    "cold": tally.COLD,
    "evictions": tally.EVICTIONS,
    "aliased": tally.ALIASED,
    "full_hit_calls": tally.FULL_HIT_CALLS,
    "bypassed": tally.BYPASSED,
    "minor": tally.MINOR,
    "prefetch_calls": tally.PREFETCH_CALLS,
    "prefetch_requests": tally.PREFETCH_REQUESTS,
    "prefetch_issued": tally.PREFETCH_ISSUED,
    "prefetch_useful": tally.PREFETCH_USEFUL,
    "prefetch_wasted": tally.PREFETCH_WASTED,
    "prefetch_late": tally.PREFETCH_LATE,
}

# (layer, experts of the call in token-major order, tokens of the call)
Call = tuple[int, Sequence[int], int]


def trace_of(calls: Sequence[Call], n_experts: int | Mapping[int, int]) -> RoutingTrace:
    """A trace of these calls; `n_experts` of every layer, or of each."""
    layers = sorted({layer for layer, _, _ in calls})
    known = dict.fromkeys(layers, n_experts) if isinstance(n_experts, int) else dict(n_experts)
    return RoutingTrace(
        layer=np.array([layer for layer, _, _ in calls], np.int16),
        n_tokens=np.array([tokens for _, _, tokens in calls], np.int32),
        offset=np.cumsum([0, *(len(experts) for _, experts, _ in calls)], dtype=np.int64),
        expert=np.array([expert for _, experts, _ in calls for expert in experts], np.int16),
        n_experts=known,
        n_experts_known=True,
        name="written by hand",
    )


def one_layer(unions: Iterable[Sequence[int]]) -> list[Call]:
    """Calls of layer 0, one token each."""
    return [(0, list(experts), 1) for experts in unions]


def of_one_layer(unions: Iterable[Sequence[int]], n_experts: int) -> Workload:
    """A workload of layer 0 alone, one token a call."""
    return prepare(trace_of(one_layer(unions), n_experts))


def geometry_of(expert_bytes: Mapping[int, int], n_experts: int | Mapping[int, int]) -> ModelGeometry:
    """A model whose layers have experts of one tensor family of this many bytes."""
    layers = {
        layer: LayerGeometry(n_experts if isinstance(n_experts, int) else n_experts[layer], {"expert": size})
        for layer, size in expert_bytes.items()
    }
    return ModelGeometry(name="toy", layers=layers, top_k=0, source="tests")


def run(
    workload: Workload | RoutingTrace,
    bank: int | Bank,
    policy: str = "lru",
    contract: str = "atomic",
    *,
    prefetch: str = "none",
    scope: str = "layer",
    record: bool = False,
) -> Replayed:
    """One replay, with everything named as the command line names it."""
    setup = Setup(
        bank=Bank(slots=bank) if isinstance(bank, int) else bank,
        policy=parse_policy(policy),
        contract=contract,
        prefetch=parse_prefetcher(prefetch),
        scope=scope,
    )
    return replay(prepare(workload) if isinstance(workload, RoutingTrace) else workload, setup, record=record)


def totals(result: Replayed) -> dict[str, int]:
    """All columns of the tally, over all layers."""
    row = result.counts.table.sum(axis=0)
    return {name: int(row[column]) for name, column in COLUMNS.items()}


def some(result: Replayed, *names: str) -> tuple[int, ...]:
    """The columns named, over all layers."""
    return tuple(totals(result)[name] for name in names)


def hits_of(result: Replayed) -> list[int]:
    """The hits of each call."""
    return [int(hits) for hits in result.stream.hits]


def came_after(result: Replayed) -> list[int]:
    """The experts that each call's end brings, counted as prefetched."""
    return [int(issued) for issued in result.stream.prefetch_issued]


def held(result: Replayed) -> list[list[int]]:
    """The keys in each pool at the end."""
    return [keys.tolist() for keys in result.contents]


def random_calls(
    rng: np.random.Generator,
    *,
    n_experts: int,
    layers: int = 1,
    steps: int = 10,
    most_tokens: int = 1,
    width: int | None = None,
    missing: float = 0.0,
    idle: float = 0.0,
) -> list[Call]:
    """Random steps: popular and rare experts, calls of up to `most_tokens` tokens, a share missing, or without any."""
    weight = rng.dirichlet(np.full(n_experts, 0.5), size=layers) + 1e-3
    weight /= weight.sum(axis=1, keepdims=True)
    width = width or int(rng.integers(1, min(n_experts, 4) + 1))
    calls: list[Call] = []
    for _ in range(steps):
        for layer in range(layers):
            if rng.random() < missing:
                continue
            tokens = 0 if idle and rng.random() < idle else int(rng.integers(1, most_tokens + 1))
            experts = [
                int(expert)
                for _ in range(tokens)
                for expert in rng.choice(n_experts, size=width, replace=False, p=weight[layer])
            ]
            calls.append((layer, experts, tokens))
    return calls or [(0, list(range(width)), 1)]
