"""Replay one pool against one bank of a policy that evicts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import bounds_checked, specialise
from flashmoe_sim.content import NoContent, hash_of
from flashmoe_sim.io.errors import BadInput, Malformed, SimError, TooLarge
from flashmoe_sim.outside import is_outside, place_of_function
from flashmoe_sim.policies import base
from flashmoe_sim.policies.base import NEVER, STAMPS, EvictingPolicy, PoolShape, on_call, on_install
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.residency import atomic, deferred, loops, sequential, tally
from flashmoe_sim.residency.ahead import NOT_READ, Ahead, compare
from flashmoe_sim.residency.capacity import Capacity, slot_overflow
from flashmoe_sim.residency.hook_records import adapter_of, admits, of_predictions, on_miss
from flashmoe_sim.residency.own_rules import checked, new_state
from flashmoe_sim.residency.pool import Pool
from flashmoe_sim.residency.pool_state import LOADED, N_LOADED, NOW, OPENED, USED, PoolState, Rules
from flashmoe_sim.residency.workload import Setup, Workload


class Recording(NamedTuple):
    """What a replay loop records for each call of a pool, beside the counts; all empty if not wanted.

    calls: i32 [calls, len(tally.STREAM)].
    used: i64 [predicted], the routed call that first uses an expert read ahead, UNUSED, or NOT_READ.
    slot: i32 [references], -1 before it is written. hit: u8 [references], 1 if the expert was resident, UNREAD (of
        residency/loops.py) if it was not and, being minor, was not read.
    """

    calls: NDArray[np.int32]
    used: NDArray[np.int64]
    slot: NDArray[np.int32]
    hit: NDArray[np.uint8]

    @classmethod
    def of(cls, pool: Pool, ahead: Ahead, *, wanted: bool = True) -> Recording:
        """An empty recording for a pool."""
        calls, predicted, references = (wanted * len(part) for part in (pool.call, ahead.key, pool.key))
        return cls(
            np.zeros((calls, len(tally.STREAM)), np.int32),
            np.full(predicted, NOT_READ, np.int64),
            np.full(references, -1, np.int32),
            np.zeros(references, np.uint8),
        )


def replay_pool(
    workload: Workload,
    setup: Setup,
    number: int,
    bank: Capacity,
    ahead: Ahead,
    counts: NDArray[np.int64],
    recording: Recording,
) -> PoolState:
    """Replay a pool from the beginning; return the bank's state at the end.

    number: the pool's number in the setup's scope. counts: i64 [layers, tally.N_COLUMNS], added to.
    Raises BadInput if a call finds no slot, if the policy cannot count all uses, or if its `choose_victim` returns a
    slot that may not be evicted; SimError if its functions corrupt the state.
    """
    pool = workload.pools(setup.scope)[number]
    table = np.zeros_like(counts)
    state = begin_pool(workload, setup, number, bank, pool.largest_call)
    go_on(workload, setup, number, bank, ahead, state, table, recording)
    check_uses(setup, state)
    count_unused(pool, state, table)
    check_books(setup, bank, state, table.sum(axis=0))
    counts += table
    return state


def begin_pool(workload: Workload, setup: Setup, number: int, bank: Capacity, largest_call: int) -> PoolState:
    """The bank of a pool before its first call. largest_call: the most distinct keys that a call can have."""
    pool, policy = workload.pools(setup.scope)[number], setup.policy
    assert isinstance(policy, EvictingPolicy)
    smallest = int(bank.size.min())
    slots = bank.room if setup.fixed_slots else min(bank.room // smallest + largest_call, pool.keys)
    capacity = max(min(bank.room // smallest, pool.keys), 1)
    layer = workload.trace.layers[number] if setup.scope == "layer" else -1
    shape = PoolShape(slots, capacity, pool.keys, pool.offset, pool.step, pool.key_row, layer)
    state = PoolState.empty(slots, pool.keys, new_state(policy, shape))
    if policy.warm:
        requests = [one.requests_by_key for one in workload.profile(policy).pools]
        keys = warm_keys(requests[number] if setup.scope == "layer" else np.concatenate(requests), bank)
        upcoming, filling = first_uses(pool, keys), _filling(policy)
        with checked(policy, filling.kernels, state.policy):
            filling.run(keys, upcoming, pool.step[0], bank.size, state.bank, state.policy)
    return state


def go_on(
    workload: Workload,
    setup: Setup,
    number: int,
    bank: Capacity,
    ahead: Ahead,
    state: PoolState,
    table: NDArray[np.int64],
    recording: Recording,
) -> None:
    """Replay the calls of a pool from `state` on, updating it; the other arguments are as for `replay_pool`.

    Experts read ahead and not used by the end are not counted yet, see `count_unused`. Raises what `replay_pool`
    raises, except SimError.
    """
    pool = workload.pools(setup.scope)[number]
    assert isinstance(setup.policy, EvictingPolicy)
    policy, minor = setup.policy, setup.policy.minor_rule
    rules = Rules(
        setup.contract == "protected",
        policy.bypass,
        STAMPS.index(policy.stamp),
        minor is None or minor.reads,
        bank.room,
        bank.size,
    )
    calls = pool.calls(by_reference=setup.contract == "sequential", sees=policy.sees, minor=minor)
    predicted = ahead
    if policy.sees:
        upcoming = of_predictions(pool.trace, ahead.after, ahead.upcoming, policy.sees)
        predicted = ahead._replace(upcoming=upcoming)
    loop = _loop(setup.policy, setup.contract)
    with checked(setup.policy, loop.kernels, state.policy):
        call, fault, slot = loop.run(
            calls, predicted, rules, state.bank, state.policy, state.scratch(), table, recording
        )
    if fault == loops.NO_SLOT:
        raise slot_overflow(workload, setup, number, call, bank)
    if fault != loops.FINE:
        raise _wrong_victim(workload, pool, setup, bank, call, fault, slot)
    if not isinstance(setup.prefetch, NoPrefetch):
        compare(pool.key, pool.offset, pool.row, ahead.meant, ahead.offset, ahead.key, pool.keys, table)


def check_uses(setup: Setup, state: PoolState) -> None:
    """Raise BadInput if the policy's counters cannot hold all uses of a bank."""
    most = setup.policy.most_uses
    if most is not None and state.bank.carry[NOW] > most:
        raise TooLarge(
            f"policy {setup.policy.spec}: counts at most {most:,} uses in one bank; cut the trace into parts"
        )


def count_unused(pool: Pool, state: PoolState, table: NDArray[np.int64]) -> None:
    """Count experts read ahead and never used as wasted."""
    np.add.at(table[:, tally.PREFETCH_WASTED], pool.key_row[state.bank.slot_key[state.bank.fresh != 0]], 1)


class Loop(NamedTuple):
    """A loop compiled with a policy's functions, and the policy's compiled functions: `kernels` by name."""

    run: Callable[..., Any]
    kernels: dict[str, Any]


def _loop(policy: EvictingPolicy, contract: str) -> Loop:
    """The loop of a contract for a policy; for a user's own policy, with its code and globals as they are now."""
    kind, module = type(policy), {"atomic": atomic, "sequential": sequential}.get(contract, deferred)
    return _compiled(kind, module.replay, _content(kind))


def _filling(policy: EvictingPolicy) -> Loop:
    """The loop that fills a bank before the first call."""
    return _compiled(type(policy), fill, _content(type(policy)))


def _content(kind: Any) -> str | None:
    """A hash of a user's own class, which changes with its code."""
    if is_outside(kind):
        with suppress(NoContent):
            return hash_of(kind.kernels, own=[kind.__module__.partition(".")[0]])
    return None


@cache
def _compiled(kind: Any, loop: Callable[..., Any], content: str | None) -> Loop:
    kernels, own = _kernels(kind, content)
    return Loop(specialise(loop, loop.__name__, **kernels), own)


@cache
def _kernels(kind: Any, content: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The compiled functions that a loop calls for a policy, and the ones that the policy itself defines.

    They are named after the functions, so that policies of the same functions share one compiled loop.
    """
    defaults = {hook: getattr(base, hook) for hook in base.HOOKS} | {"on_miss": on_miss, "admits": admits}
    hooks: dict[str, Any] = defaults | dict(kind.kernels)
    functions = {key: getattr(kernel, "py_func", kernel) for key, kernel in hooks.items()}
    if any(is_outside(function) for function in (*functions.values(), kind.allocate)):
        kernels = {key: bounds_checked(function) for key, function in functions.items()}
    else:
        kernels = {
            key: specialise(function, f"{key}_{_name(function)}", inline=True) for key, function in functions.items()
        }
    own = {key: kernels[key] for key in kind.kernels}
    for key, kernel in own.items():
        if adapter := adapter_of(kind, key):
            kernels[key] = specialise(adapter, f"{key}_{_name(functions[key])}", inline=True, hook=kernel)
    return kernels, own


def _name(function: Any) -> str:
    return f"{function.__module__.rpartition('.')[2]}_{function.__qualname__}"


def _wrong_victim(
    workload: Workload, pool: Pool, setup: Setup, bank: Capacity, call: int, fault: int, slot: int
) -> BadInput:
    """The error for a slot that `choose_victim` returned; call: its place in the pool."""
    trace, at = workload.trace, int(pool.call[min(call, len(pool.call) - 1)])
    kernel = type(setup.policy).kernels["choose_victim"]  # type: ignore[attr-defined]
    return Malformed(
        f"policy {setup.policy.spec}: {place_of_function(kernel)}: choose_victim returned {slot} at call {at} of "
        f"{trace.name} (layer {int(trace.layer[at])}, a bank of {bank.room}, contract {setup.contract}); "
        f"expected {loops.EXPECTED[fault]}"
    )


def check_books(setup: Setup, bank: Capacity, state: PoolState, counted: NDArray[np.int64]) -> None:
    """Raise SimError if the books of one pool do not balance, which only a policy's functions can cause.

    counted: i64 [tally.N_COLUMNS].
    """
    held = state.held
    weight = int(bank.size[held].sum())
    found: tuple[int, ...] = (weight, int(counted[tally.HITS] + counted[tally.MISSES]))
    expected: tuple[int, ...] = (min(weight, bank.room), int(counted[tally.REQUESTS]))
    if isinstance(setup.prefetch, NoPrefetch):  # evictions for a prediction are not a call's evictions
        installs = int(counted[tally.MISSES] - counted[tally.BYPASSED])
        found += (int(counted[tally.EVICTIONS]),)
        expected += (installs + int(state.bank.carry[N_LOADED]) - len(held),)
    if found != expected:
        raise SimError(
            f"policy {setup.policy.spec}: contents, requests and evictions of a bank of {bank.room} are {found}, "
            f"expected {expected}; its functions may write only to its state"
        )


def warm_keys(requests_by_key: NDArray[np.int64], bank: Capacity) -> NDArray[np.uint32]:
    """The keys that a profile requests most and that fit the bank together, the least requested first; u32.

    Of equal ones the lower number comes first; a key without a request is left out.
    """
    order = np.argsort(-requests_by_key, kind="stable")
    order = order[requests_by_key[order] > 0]
    fits = np.cumsum(bank.size[order]) <= bank.room
    return order[fits][::-1].astype(np.uint32)


def first_uses(pool: Pool, keys: NDArray[np.uint32]) -> NDArray[np.int32]:
    """The first reference to each key, or NEVER; i32."""
    first = pool.first_reference[keys]
    return np.where(first < pool.refs, first, NEVER).astype(np.int32)


def fill(key: Any, upcoming: Any, step: int, size: Any, held: Any, state: Any) -> None:
    """Install keys in an empty bank, as misses of one call before the first, of its step; nothing is counted.

    What a policy admits is not asked: an engine loads its profile whatever its rule for misses is.
    """
    slot_key, key_slot, carry = held.slot_key, held.key_slot, held.carry
    on_call(state, step, 0, 0)
    for slot in range(len(key)):
        k = key[slot]
        now = slot + 1
        on_miss(state, k, now, upcoming[slot])
        slot_key[slot] = k
        key_slot[k] = slot
        carry[USED] += size[k]
        on_install(state, slot, k, now, upcoming[slot])
    carry[NOW] = len(key)
    carry[OPENED] = len(key)
    carry[N_LOADED] = len(key)
    carry[LOADED] = carry[USED]
