"""The hit curve of any evicting policy, estimated from a sample of the layers, with its error.

LRU is counted in every layer, which takes about as long as reading the trace. The policy is replayed in some layers
only, and its difference from LRU there is assumed for all layers: hit rates differ much between layers, but the
difference from LRU differs little. docs/guides/more.md has the measured errors, and other ways to sample.

Source: the difference estimator over strata of a finite population (Cochran, Sampling Techniques, 1977, chapters 5 to
7). Waldspurger et al. 2015 and 2017 (SHARDS, miniature simulation) sample keys instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Conflict, OutOfRange, Unsupported
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import EvictingPolicy, Policy
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.curve import one_pass_policy, pool_curve, round_sizes
from flashmoe_sim.residency.many import plan_jobs
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from flashmoe_sim.trace.cut import cut

FEWEST = 2  # layers; fewer have no spread
# In large banks a policy may differ from LRU in one or two layers by a few requests, and a sample without these layers
# has no spread. With this minimum half-width, the intervals for every trace and share in reports/sampling contain 89%
# or more of the exact rates; without it, for two traces they contain 60%.
LEAST_HALF = 0.0002


@dataclass(frozen=True, eq=False)
class SampledCurve:
    """An estimated curve. rows: schema.SAMPLED, by bank size. layers: the numbers of those that were replayed."""

    rows: list[dict[str, Any]]
    layers: tuple[int, ...]


def sampled_curve(
    workload: Workload,
    policy: Policy,
    *,
    contract: str = "atomic",
    share: float,
    seed: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> SampledCurve:
    """The hit rate of a policy in banks of round sizes, from the largest call up, from a sample of the layers.

    share: of the layers, above 0 and up to 1; at least two are replayed. With all of them the rates are exact.
    progress: called with the passes done and all.
    Raises BadInput for any other share, a negative seed, a policy that does not evict, and a policy whose exact curve
        is faster.
    """
    _check(policy, contract, share, seed)
    pools = workload.layer_pools
    curves = [pool_curve(pool, Lru()) for pool in pools]
    distinct = np.array([pool.requests.sum() for pool in pools], np.int64)
    requests = np.array([pool.refs for pool in pools]) if contract == "sequential" else distinct
    sizes = round_sizes(range(max(curve.smallest for curve in curves), max(workload.n_experts) + 1))
    rooms = [np.minimum(sizes, n) for n in workload.n_experts]
    lru = np.array([curve.counts(room)[:, tally.HITS] for curve, room in zip(curves, rooms, strict=True)])
    asking = np.flatnonzero(requests)
    places, weight = pick(len(asking), share, seed=seed)
    picked = asking[places]
    hits = _hits(workload, policy, contract, sizes, picked, progress)
    more, half = estimate((hits - lru[picked]).T, requests[picked], weight)
    total, tokens = int(requests.sum()), workload.trace.tokens
    replayed = tuple(workload.trace.layers[row] for row in picked.tolist())
    rows = []
    for place, slots in enumerate(sizes):
        of_lru = int(lru[:, place].sum())
        rate, margin = min(max(of_lru / total + float(more[place]), 0.0), 1.0), float(half[place])
        rows.append(
            {
                "trace": workload.trace.name,
                "policy": policy.spec,
                "contract": contract,
                "bank_slots": slots,
                "hit_rate": rate,
                "hit_rate_lo": max(rate - margin, 0.0),
                "hit_rate_hi": min(rate + margin, 1.0),
                "misses_per_token": (1 - rate) * total / tokens if tokens else None,
                "lru_hit_rate": of_lru / int(distinct.sum()),
                "sampled_layers": len(picked),
                "layers": len(pools),
                "seed": seed,
            }
        )
    return SampledCurve(rows, replayed)


def pick(layers: int, share: float, *, seed: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The places of the layers to replay, ascending, and how many layers each stands for; i64 and f64 [picked].

    The layers are cut, in order, into as many strata as there are pairs to pick; two are drawn from each, or three from
    the first if the number is odd.
    """
    wanted = min(layers, max(FEWEST, round(share * layers)))
    draws = np.random.PCG64(seed).random_raw(layers)  # the same in every version of numpy
    picked: list[int] = []
    weight: list[float] = []
    strata = np.array_split(np.arange(layers), max(wanted // 2, 1))
    for number, stratum in enumerate(strata):
        count = min(len(stratum), 2 + (wanted % 2 if number == 0 else 0))
        picked += sorted(stratum[np.argsort(draws[stratum], kind="stable")[:count]].tolist())
        weight += [len(stratum) / count] * count
    return np.array(picked, np.int64), np.array(weight)


def estimate(
    more: NDArray[np.int64], requests: NDArray[np.int64], weight: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ratio of sums over all layers, and half of its 90% interval, from the picked layers; f64 [sizes].

    more: i64 [sizes, picked], hits beyond those of LRU. requests, weight: [picked].
    The spread is taken over all picked layers together. Within pairs it is no smaller, but has half as many degrees of
    freedom, and such intervals contained up to 3% fewer of the exact rates.
    """
    from scipy.special import stdtrit

    every, count = round(float(weight.sum())), len(weight)
    requested = weight @ requests
    ratio = (more @ weight) / requested
    if count == every:
        return ratio, np.zeros(len(ratio))
    residual = more - ratio[:, None] * requests
    variance = (residual**2).sum(axis=1) / (count - 1)
    error = every * np.sqrt((1 - count / every) * variance / count) / requested
    return ratio, np.maximum(stdtrit(count - 1, 0.95) * error, LEAST_HALF)


def _hits(
    workload: Workload,
    policy: Policy,
    contract: str,
    sizes: list[int],
    picked: NDArray[np.int64],
    progress: Callable[[int, int], None] | None,
) -> NDArray[np.int64]:
    """Exact hits in the picked layers, i64 [picked, sizes], counted on all cores."""
    layers = [workload.trace.layers[row] for row in picked.tolist()]
    part = prepare(cut(workload.trace, layers=layers), workload.geometry)
    setups = [Setup(Bank(slots=min(slots, max(part.n_experts))), policy, contract) for slots in sizes]
    counted: dict[Setup, Counts] = {}
    jobs = plan_jobs(part, setups)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for number, found in enumerate(threads.map(lambda job: job(), jobs)):
            if progress:
                progress(number + 1, len(jobs))
            for setup, counts in found.items():
                counted[setup] = counted[setup].joined(counts) if setup in counted else counts
    return np.array([counted[setup].table[:, tally.HITS] for setup in setups]).T


def _check(policy: Policy, contract: str, share: float, seed: int) -> None:
    if seed < 0:
        raise OutOfRange(f"seed {seed}: expected 0 or more")
    if not 0 < share <= 1:
        raise OutOfRange(f"sample {share:g}: expected a share of the layers, above 0 and up to 1, such as 0.25")
    if one_pass_policy(policy, contract) and policy.textbook != "min":
        raise Conflict(
            f"policy {policy.spec}: one pass counts every size exactly, in less time than a sample; leave out --sample"
        )
    if not isinstance(policy, EvictingPolicy):
        raise Unsupported(
            f"policy {policy.spec}: it does not evict, and may share memory between layers, so a sample of the layers "
            "says nothing of it; use `sim sweep`"
        )
