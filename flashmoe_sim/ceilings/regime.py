"""How much of the bank one call, or one token, needs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.ceilings.optimum import comparable_setup
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.residency.capacity import Capacity, capacities
from flashmoe_sim.residency.pool import Pool
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, Workload


@dataclass(frozen=True)
class Regime:
    """Demand over bank, and the token cycle compared with the banks.

    demand: `call`, the distinct experts of a call over the slots of its layer; or `step`, those of all calls of a step
        over one bank for all layers. In bytes if the bank is in bytes.
    demand_over_bank_p50, demand_over_bank_p99: quantiles over the calls with tokens, or the steps. share_over: share of
        them above 1.
    top_k: experts per token in each layer: from the trace, else the model, else the widest token; 0: unknown.
    token_cycle_slots, token_cycle_bytes: what one token requests: top_k experts of every layer.
    bank_slots, bank_bytes: what the banks hold in total; None if they are in the other unit, or it is unknown.
    """

    demand: str
    demand_over_bank_p50: float
    demand_over_bank_p99: float
    share_over: float
    top_k: int
    token_cycle_slots: int | None
    token_cycle_bytes: int | None
    bank_slots: int | None
    bank_bytes: int | None


@dataclass(frozen=True)
class Cliff:
    """One bank for all layers compared with the token cycle, in slots or in bytes, like the bank.

    bank, cycle: what the bank holds, and what one token requests. enough: the bank that holds a cycle, as written after
    `--bank`.
    lru_hits_from: the smallest bank in which LRU can hit anything in steps that call every layer. Between two uses of
        an expert lie all experts of the other layers, so in a smaller one it hits exactly nothing.
    layer_hit_rate: of the same policy with the same memory in a bank per layer; None if that is too little memory.
    """

    bank: int
    cycle: int
    enough: str
    lru_hits_from: int
    layer_hit_rate: float | None

    @property
    def below(self) -> bool:
        """Whether the bank does not hold what one token requests."""
        return self.bank < self.cycle


def regime_of(workload: Workload, setup: Setup) -> Regime:
    """The regime of the banks of `setup`."""
    pools, banks = workload.pools(setup.scope), capacities(workload, setup)
    demand = np.concatenate([_demand(pool, bank, setup) for pool, bank in zip(pools, banks, strict=True)])
    p50, p99 = np.quantile(demand, (0.50, 0.99), method="inverted_cdf")
    top_k, sizes = _top_k(workload), workload.expert_bytes
    in_slots = setup.bank.in_slots or setup.fixed_slots
    return Regime(
        demand="call" if setup.scope == "layer" else "step",
        demand_over_bank_p50=float(p50),
        demand_over_bank_p99=float(p99),
        share_over=float((demand > 1).mean()),
        top_k=top_k,
        token_cycle_slots=top_k * len(workload.n_experts) or None,
        token_cycle_bytes=None if sizes is None else top_k * sum(sizes) or None,
        bank_slots=sum(bank.room for bank in banks) if in_slots else None,
        bank_bytes=None if sizes is None else sum(bank.bytes for bank in banks if bank.bytes is not None),
    )


def cliff_of(workload: Workload, setup: Setup) -> Cliff | None:
    """One bank for all layers compared with the token cycle; None for a bank per layer, or if top-k is unknown."""
    top_k = _top_k(workload)
    if setup.scope == "layer" or not top_k:
        return None
    (pool,), (bank,) = workload.global_pools, capacities(workload, setup)
    size = _size_by_row(pool, bank)
    cycle = top_k * int(size.sum())
    in_bytes = None if setup.bank.in_slots else top_k * sum(workload.expert_bytes or ())
    try:
        by_layer = replay(workload, comparable_setup(replace(setup, scope="layer"), setup.policy)).counts.total()
    except BadInput:
        by_layer = {"hit_rate": None}
    return Cliff(
        bank=bank.room,
        cycle=cycle,
        enough=str(Bank(slots=top_k) if in_bytes is None else Bank(budget_bytes=in_bytes)),
        lru_hits_from=cycle - (top_k - 1) * int(size.max()),
        layer_hit_rate=by_layer["hit_rate"],
    )


def _demand(pool: Pool, bank: Capacity, setup: Setup) -> NDArray[np.float64]:
    """The demand of each call with tokens of a layer, or each step of all layers, over what the bank holds."""
    requested = pool.requests * _size_by_row(pool, bank)[pool.row]
    if setup.scope == "global":
        _, step = np.unique(pool.step[:-1], return_inverse=True)
        requested = np.bincount(step, weights=requested)
    return requested[requested > 0] / max(bank.room, 1)


def _size_by_row(pool: Pool, bank: Capacity) -> NDArray[np.int64]:
    """The size of an expert in each of the pool's layers, by the layer's place in `trace.layers`; i64."""
    size = np.zeros(int(pool.key_row.max()) + 1, np.int64)
    size[pool.key_row] = bank.size
    return size


def _top_k(workload: Workload) -> int:
    """Experts per token in a layer: as recorded, else the model's, else the most of any token."""
    trace = workload.trace
    known = trace.top_k or (workload.geometry.top_k if workload.geometry else 0)
    divides = (trace.n_tokens > 0) & (np.diff(trace.offset) % np.maximum(trace.n_tokens, 1) == 0)
    return known or int((np.diff(trace.offset)[divides] // trace.n_tokens[divides]).max(initial=0))
