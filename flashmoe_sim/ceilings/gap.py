"""Misses that `min` avoids in the same banks, how far ahead a policy would see for half, each miss's cause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from flashmoe_sim.ceilings.larger import smallest
from flashmoe_sim.ceilings.optimum import comparable_setup, optimum_known
from flashmoe_sim.policies.base import EvictingPolicy
from flashmoe_sim.policies.min_ import Min, MinForced
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.replay import Replayed, replay
from flashmoe_sim.residency.workload import Setup, Workload


@dataclass(frozen=True)
class Gap:
    """From a policy to `min`, in misses of the same calls and banks, and in points of hit rate.

    contract: under which `policy` was counted: the setup's, but `protected` instead of `runtime`, so that slot aliasing
        is not part of the gap. optimum_contract: under which `forced` and `minimum` were counted.
    policy: misses of the policy. An expert that it loads without a miss (before the run, or between steps) counts as a
        miss when it is first hit: `policy` includes `loaded_ahead` of them.
    forced, minimum: misses of min:forced and of min with bypass.
    victim_choice: policy - forced, the savings from the best victims. Negative if a policy gains more by declining to
        admit than its victims cost.
    admission: forced - minimum, the additional savings from declining to admit.

    None: if the optimum is not known (a bank in bytes that experts of different sizes share).
    """

    contract: str
    optimum_contract: str
    policy: int
    loaded_ahead: int
    forced: int | None
    minimum: int | None
    victim_choice: int | None
    admission: int | None
    victim_choice_points: float | None
    admission_points: float | None


def gap_to_min(workload: Workload, own: Replayed) -> Gap:
    """Compare the counts of `own` with `min`; a policy that does not evict must have been recorded."""
    setup, total = own.setup, own.counts.total()
    ahead = loaded_ahead(workload, own)
    contract = setup.contract
    policy = int(total["misses"]) + ahead
    if contract == "runtime" and isinstance(setup.policy, EvictingPolicy):
        contract = "protected"
        policy = misses(workload, replace(setup, contract=contract))
    optimum_contract = comparable_setup(setup, Min()).contract
    if not optimum_known(workload, setup):
        return Gap(contract, optimum_contract, policy, ahead, None, None, None, None, None, None)
    forced = misses(workload, comparable_setup(setup, MinForced()))
    minimum = misses(workload, comparable_setup(setup, Min()))
    requests = max(int(total["requests"]), 1)
    return Gap(
        contract=contract,
        optimum_contract=optimum_contract,
        policy=policy,
        loaded_ahead=ahead,
        forced=forced,
        minimum=minimum,
        victim_choice=policy - forced,
        admission=forced - minimum,
        victim_choice_points=100 * (policy - forced) / requests,
        admission_points=100 * (forced - minimum) / requests,
    )


def loaded_ahead(workload: Workload, own: Replayed) -> int:
    """The number of experts loaded without a miss, before their first use or between steps, and then hit."""
    if isinstance(own.setup.policy, EvictingPolicy):
        return 0
    assert own.hit is not None, "a policy that does not evict must be recorded"
    hit_at_once = 0
    for pool in workload.layer_pools:
        first = pool.first_reference[pool.requests_by_key > 0]
        hit_at_once += int(own.hit[pool.reference[first]].sum())
    return hit_at_once + int(own.counts.total()["prefetch_useful"])


def misses(workload: Workload, setup: Setup) -> int:
    """The misses of one replay."""
    return int(replay(workload, setup).counts.total()["misses"])


@dataclass(frozen=True)
class HalfGap:
    """The lookahead that closes half the gap between a policy and min:forced.

    steps: min within that many steps of the model, LRU beyond them; 0 is LRU. misses: with that lookahead.
    contract: under which it was counted.

    It is found by doubling and then bisection. More lookahead is not always better, so fewer steps may do as well.
    """

    steps: int
    misses: int
    contract: str


def half_gap(
    workload: Workload, setup: Setup, gap: Gap, *, replayed: Callable[[], None] = lambda: None
) -> HalfGap | None:
    """The lookahead that closes half the gap; None if there is no gap, or it is unknown.

    replayed: called after each replay.
    """
    if gap.forced is None or gap.policy <= gap.forced:
        return None
    target = (gap.policy + gap.forced) / 2
    counted: dict[int, int] = {}

    def enough(steps: int) -> bool:
        counted[steps] = misses(workload, comparable_setup(setup, parse_policy(f"lookahead:steps={steps}")))
        replayed()
        return counted[steps] <= target

    steps = smallest(enough, len(np.unique(workload.trace.steps)))
    assert steps is not None, "a lookahead of the whole trace is min:forced"
    return HalfGap(steps, counted[steps], gap.optimum_contract)


@dataclass(frozen=True)
class MissSplit:
    """misses = compulsory + capacity + policy + conflict - loaded_ahead, exactly.

    compulsory: first uses of an expert in its layer; every bank that starts empty misses them.
    capacity: further misses of min with bypass: no policy in these banks avoids them.
    policy: misses of the policy beyond min's, by its choice of victims and of what to admit (`Gap` has the two parts);
        counted under `protected` if the setup is under `runtime`.
    conflict: the effect of slot aliasing: misses under `runtime` less those under `protected`. Negative if aliasing
        hides more misses than it causes: an aliased request counts as a hit. 0 under the other contracts.
    aliased_refs: requests that counted as hits in a slot already given to another expert of their call.
    loaded_ahead: experts that the policy loaded without a miss, before the run or between steps, and then hit.

    capacity, policy: None if the optimum is not known; together they are misses - compulsory - conflict +
    loaded_ahead.
    """

    misses: int
    compulsory: int
    capacity: int | None
    policy: int | None
    conflict: int
    aliased_refs: int
    loaded_ahead: int


def split_misses(workload: Workload, own: Replayed, gap: Gap) -> MissSplit:
    """Split the misses of `own`; `gap` is its distance to `min`."""
    total = own.counts.total()
    compulsory = sum(int(np.count_nonzero(pool.requests_by_key)) for pool in workload.layer_pools)
    return MissSplit(
        misses=int(total["misses"]),
        compulsory=compulsory,
        capacity=None if gap.minimum is None else gap.minimum - compulsory,
        policy=None if gap.minimum is None else gap.policy - gap.minimum,
        conflict=int(total["misses"]) + gap.loaded_ahead - gap.policy,
        aliased_refs=int(total["aliased_refs"]),
        loaded_ahead=gap.loaded_ahead,
    )
