"""How far samples of the layers are from the exact hit rates, and how often their intervals hold these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import flashmoe_sim.api as sim
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.curve import pool_curve
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.sample import estimate, pick
from flashmoe_sim.residency.workload import Setup, Workload

FOLDER = Path(__file__).parent
RESULTS, OTHER_WAYS = FOLDER / "results.csv", FOLDER / "other_ways.csv"
ASKED = (
    *(("atomic", policy) for policy in ("arc", "s3fifo", "lfu-decay", "w-tinylfu", "sieve", "lirs", "random", "min")),
    *(("runtime", policy) for policy in ("lru", "s3fifo")),
)
SHARES = (1 / 2, 1 / 4, 1 / 8, 1 / 16)
BANKS = (1 / 8, 1 / 4, 1 / 2, 3 / 4, 7 / 8)  # of a layer's experts
SEEDS = range(1, 101)


def banks_of(workload: Workload) -> list[int]:
    """The bank sizes that hold the largest call, in slots."""
    experts = max(workload.n_experts)
    largest = max(pool.largest_call for pool in workload.layer_pools)
    return [slots for slots in (int(share * experts) for share in BANKS) if slots >= largest]


def lru_hits(workload: Workload, slots: int) -> NDArray[np.int64]:
    """What LRU hits in each layer, i64 [layers]."""
    return np.array([pool_curve(pool, Lru()).counts(slots)[tally.HITS] for pool in workload.layer_pools])


def measure(name: str) -> pl.DataFrame:
    """A row for each policy, contract and share of the layers of a bundled trace, over all banks and seeds.

    Errors and half-widths are in points of the hit rate; `plain` is without what LRU hits.
    """
    workload = sim.load_trace(name)
    rows = []
    lru = {slots: lru_hits(workload, slots) for slots in banks_of(workload)}
    for contract, policy in ASKED:
        exact = {}
        for slots in lru:
            setup = Setup(Bank(slots=slots), parse_policy(policy), contract)
            exact[slots] = replay(workload, setup).counts.table[:, [tally.HITS, tally.REQUESTS]].T
        for share in SHARES:
            who = {"trace": name, "contract": contract, "policy": policy, "share": share}
            rows.append(who | _errors(lru, exact, share))
    return pl.DataFrame(rows)


def _errors(lru: dict[int, NDArray[np.int64]], exact: dict[int, NDArray[np.int64]], share: float) -> dict[str, Any]:
    error, half, plain = [], [], []
    hits = np.array([counted[0] for counted in exact.values()])
    requests = next(iter(exact.values()))[1]
    below = np.array(list(lru.values()))
    rates = hits.sum(axis=1) / requests.sum()
    for seed in SEEDS:
        picked, weight = pick(len(requests), share, seed=seed)
        more, margin = estimate((hits - below)[:, picked], requests[picked], weight)
        error.append(below.sum(axis=1) / requests.sum() + more - rates)
        half.append(margin)
        plain.append(estimate(hits[:, picked], requests[picked], weight)[0] - rates)
    return {
        "replayed": len(picked),
        "layers": len(requests),
        "estimates": np.size(error),
        "plain_rms": points(rms(plain)),
        "bias": points(float(np.mean(error))),
        "rms": points(rms(error)),
        "half": points(float(np.median(half))),
        "covered": round(float(np.mean(np.abs(error) <= half)), 4),
    }


def rms(errors: Any) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


def points(share: float) -> float:
    return round(100 * share, 4)
