"""How good a policy's victims are: where each stands among the residents by next use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, fields, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import specialise
from flashmoe_sim.io.errors import Unsupported
from flashmoe_sim.io.notes import Note
from flashmoe_sim.policies.base import EvictingPolicy, PoolShape, State
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.capacity import capacities
from flashmoe_sim.residency.pool_replay import Recording, replay_pool
from flashmoe_sim.residency.workload import Setup, Workload

CHOSEN, OPTIMAL, CHOICES, RANKS = 0, 1, 2, 3  # counters

# The functions of a watched policy: `inner` is bound to its own, which gets its own arrays. Behind them are the next
# use of the expert in each slot, and the counters. seen: what the policy sees of the reference.

inner: Any = None


def on_call(state: Any, step: int, *call: Any) -> None:
    inner(state[:-2], step, *call)


def on_miss(state: Any, key: int, now: int, *seen: Any) -> None:
    inner(state[:-2], key, now, *seen)


def admits(state: Any, key: int, now: int, *seen: Any) -> bool:
    return inner(state[:-2], key, now, *seen)  # type: ignore[no-any-return]


def on_use(state: Any, slot: int, key: int, now: int, upcoming: int, *seen: Any) -> None:
    state[-2][slot] = upcoming
    inner(state[:-2], slot, key, now, upcoming, *seen)


def on_evict(state: Any, slot: int, key: int) -> None:
    inner(state[:-2], slot, key)


def declines(state: Any, slot: int, key: int, now: int, upcoming: int, *seen: Any) -> bool:
    return inner(state[:-2], slot, key, now, upcoming, *seen)  # type: ignore[no-any-return]


def choose_victim(state: Any, slot_key: Any, blocked: Any, mark: int) -> int:
    chosen: int = inner(state[:-2], slot_key, blocked, mark)
    next_use, counted = state[-2], state[-1]
    if 0 <= chosen < len(slot_key):
        others, later = 0, 0
        for slot in range(len(slot_key)):
            if slot != chosen and slot_key[slot] >= 0 and blocked[slot] != mark:
                others += 1
                later += next_use[slot] > next_use[chosen]
        counted[CHOSEN] += 1
        counted[OPTIMAL] += later == 0
        if others > 0:
            counted[CHOICES] += 1
            counted[RANKS] += later / others
    return chosen


WATCHING: dict[str, Callable[..., Any]] = {
    "on_call": on_call,
    "on_miss": on_miss,
    "admits": admits,
    "on_hit": on_use,
    "on_install": on_use,
    "choose_victim": choose_victim,
    "on_evict": on_evict,
    "declines": declines,
}


@dataclass(frozen=True)
class VictimCounts:
    """The choices of a policy in one bank.

    requests, misses: of its calls. chosen: victims. optimal: victims whose next use is the latest of all candidates.
    choices: victims that were not the only candidate. ranks: the sum over these of the share of the other candidates
    whose next use is later.
    """

    requests: int
    misses: int
    chosen: int
    optimal: int
    choices: int
    ranks: float

    @property
    def optimal_share(self) -> float | None:
        """The share of victims that are optimal."""
        return self.optimal / self.chosen if self.chosen else None

    @property
    def rank(self) -> float | None:
        """The mean share of the other candidates whose next use is later than the victim's: 0 for `min:forced`."""
        return self.ranks / self.choices if self.choices else None


def total(banks: Iterable[VictimCounts]) -> VictimCounts:
    """The choices in several banks together."""
    return VictimCounts(*map(sum, zip(*map(astuple, banks), strict=True)))


def victims(workload: Workload, setup: Setup) -> list[VictimCounts]:
    """The choices of a setup's policy in each of its banks: one for each layer, or one bank of all.

    A candidate is a resident that the contract lets go at that moment; the policy may choose among them as it likes.
    Of two that are never used again neither is better.
    Source: victim-rank quality, arXiv 2608.07911.
    Raises BadInput for a policy that chooses no victims, for a predictor, and for what `replay` refuses.
    """
    if reason := why_not_watched(setup):
        raise Unsupported(reason)
    assert isinstance(setup.policy, EvictingPolicy)
    watched = replace(setup, policy=_watched(setup.policy))
    ahead, found = workload.ahead(setup.prefetch, setup.scope), []
    pools = workload.pools(setup.scope)
    for number, (pool, bank) in enumerate(zip(pools, capacities(workload, watched), strict=True)):
        table = np.zeros((len(workload.trace.layers), tally.N_COLUMNS), np.int64)
        nothing = Recording.of(pool, ahead[number], wanted=False)
        state = replay_pool(workload, watched, number, bank, ahead[number], table, nothing)
        requests, misses = (int(table[:, column].sum()) for column in (tally.REQUESTS, tally.MISSES))
        chosen, optimal, choices = (int(state.policy[-1][column]) for column in (CHOSEN, OPTIMAL, CHOICES))
        found.append(VictimCounts(requests, misses, chosen, optimal, choices, float(state.policy[-1][RANKS])))
    return found


def why_not_watched(setup: Setup) -> Note | None:
    """Why there are no victims to judge, with a code for the rule; None if there are."""
    policy = setup.policy
    if not isinstance(policy, EvictingPolicy):
        text = f"policy {policy.spec} chooses no victims: what is resident is decided before the run"
        return Note("no victims", text)
    if not isinstance(setup.prefetch, NoPrefetch):
        text = f"predictor {setup.prefetch.spec}: victims are judged without a predictor; leave it out"
        return Note("predictor", text)
    return None


def _watched(policy: EvictingPolicy) -> EvictingPolicy:
    parameters = {item.name: getattr(policy, item.name) for item in fields(policy)}
    return _watched_class(type(policy))(**parameters)


@cache
def _watched_class(kind: type[EvictingPolicy]) -> type[EvictingPolicy]:
    """A class that decides as `kind` does, and counts how good its victims are."""

    def allocate(self: EvictingPolicy, shape: PoolShape) -> State:
        next_use: NDArray[np.int32] = np.zeros(shape.slots, np.int32)
        return (*kind.allocate(self, shape), next_use, np.zeros(4))

    name = f"{kind.__module__.rpartition('.')[2]}_{kind.__qualname__}"
    kernels = {
        hook: specialise(WATCHING[hook], f"{hook}_watching_{name}", inline=True, inner=kernel)
        for hook, kernel in kind.kernels.items()
    }
    for hook, kernel in kernels.items():
        kernel.py_func.__wrapped__ = kind.kernels[hook]  # errors name its file
    return type(kind.__name__, (kind,), {"__module__": kind.__module__, "kernels": kernels, "allocate": allocate})
