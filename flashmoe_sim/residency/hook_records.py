"""What a policy's functions see of each reference of a pool, as the records that the replay loops hand on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import fields_after_first, jit
from flashmoe_sim.policies.base import EvictingPolicy, Policy, State, arguments_of, takes_seen
from flashmoe_sim.trace.phases import find_phases
from flashmoe_sim.trace.routing import RoutingTrace, blocks
from flashmoe_sim.trace.seen import SEEN, has

# What a loop calls if a policy has no function of its own, see policies/base.py:


def on_miss(state: State, key: int, now: int, upcoming: Any) -> None: ...


def admits(state: State, key: int, now: int, upcoming: Any) -> bool:
    return True


# How a loop calls a function of a policy, which is bound to `hook`:

hook: Any = None


def calling(state: State, step: int, row: int, tokens: int) -> Any:
    return hook(state, step)


def missing(state: State, key: int, now: int, upcoming: Any) -> Any:
    return hook(state, key, now)


def missing_seen(state: State, key: int, now: int, upcoming: Any) -> Any:
    return hook(state, key, now, *fields_after_first(upcoming))


def using(state: State, slot: int, key: int, now: int, upcoming: Any) -> Any:
    return hook(state, slot, key, now, upcoming.upcoming)


def using_seen(state: State, slot: int, key: int, now: int, upcoming: Any) -> Any:
    return hook(state, slot, key, now, upcoming.upcoming, *fields_after_first(upcoming))


def adapter_of(kind: type[EvictingPolicy], name: str) -> Any:
    """The function above that hands a policy's own hook what it takes; None if the loop can call the hook itself."""
    seen = takes_seen(kind, name)
    if name == "on_call":
        return calling if len(arguments_of(kind, name)) == 2 else None
    if name in ("on_miss", "admits"):
        return missing_seen if seen else missing
    if name in ("on_hit", "on_install", "declines") and kind.sees:
        return using_seen if seen else using
    return None


def why_not_seen(policy: Policy, trace: RoutingTrace) -> str | None:
    """Why a policy cannot see in a trace what it asks for; None if it can."""
    rule = policy.minor_rule
    for name in (*policy.sees, *(() if rule is None else (rule.by,))):
        if not has(trace, name):
            return (
                f"policy {policy.spec} needs the {name} of each reference, which {trace.name} does not have; "
                "`sim trace inspect` shows what a trace has"
            )
    return None


def records(
    trace: RoutingTrace,
    call: NDArray[np.int64],
    offset: NDArray[np.int64],
    key: NDArray[np.uint32],
    keys: int,
    upcoming: NDArray[np.int32],
    names: tuple[str, ...],
    *,
    by_reference: bool,
) -> NDArray[Any]:
    """For each reference of a pool `upcoming` and what `names` say, as a record of these fields; [references].

    by_reference: whether every reference is a use of its own. The other arguments are as in `Pool`.
    """
    out = trace.empty(len(upcoming), _record(names))
    for block in blocks(len(out)):
        out["upcoming"][block] = upcoming[block]
    for name in names:
        if name == "weight":
            _of_references(trace.weight, trace.offset, call, offset, out[name])
        elif name == "rank":
            _ranks(trace.weight, trace.offset, trace.n_tokens, call, offset, out[name])
        else:
            _of_calls(_by_call(trace, name), call, offset, out[name])
        if name in ("weight", "rank") and not by_reference:
            _best_of_call(
                key, offset, np.zeros(keys, SEEN[name]), np.full(keys, -1, np.int64), name == "rank", out[name]
            )
    return out


def of_predictions(
    trace: RoutingTrace, after: NDArray[np.int64], upcoming: NDArray[np.int32], names: tuple[str, ...]
) -> NDArray[Any]:
    """The same for each predicted expert: no weight, a rank after all choices, and the rest of the call before.

    That is the routed call after which it was predicted; before the first one all numbers are 0. after, upcoming: as in
    `Ahead`.
    """
    out = trace.empty(len(upcoming), _record(names))
    out["upcoming"] = upcoming
    for name in names:
        if name == "weight":
            out[name] = 0
        elif name == "rank":
            out[name] = (np.diff(trace.offset) // np.maximum(trace.n_tokens, 1)).max(initial=0)
        else:
            values = _by_call(trace, name)
            out[name] = np.where(after < 0, 0, values[np.maximum(after, 0)])
    return out


def _record(names: tuple[str, ...]) -> np.dtype[Any]:
    return np.dtype([("upcoming", np.int32), *((name, SEEN[name]) for name in names)], align=True)


def _by_call(trace: RoutingTrace, name: str) -> NDArray[Any]:
    """What SEEN calls `name`, the same for all references of a call; [calls]."""
    if name == "tokens":
        return trace.n_tokens
    if name == "phase":
        if trace.phase is not None:
            return trace.phase
        phases, out = find_phases(trace), trace.empty(trace.calls, np.uint8)
        assert phases is not None
        for block in blocks(trace.calls):
            out[block] = phases.of_calls(trace, block)
        return out
    assert trace.sequence is not None
    if name == "request":
        return trace.sequence
    first: dict[int, int] = {}
    out = trace.empty(trace.calls, np.int32)
    for block in blocks(trace.calls):
        request, at, place = np.unique(trace.sequence[block], return_index=True, return_inverse=True)
        for one, begins in zip(request.tolist(), trace.steps[block][at].tolist(), strict=True):
            first.setdefault(one, begins)
        out[block] = trace.steps[block] - np.array([first[one] for one in request.tolist()], np.int32)[place]
    return out


@jit
def _of_calls(values: Any, call: Any, offset: Any, out: Any) -> None:
    for c in range(len(call)):
        for r in range(offset[c], offset[c + 1]):
            out[r] = values[call[c]]


@jit
def _of_references(values: Any, trace_offset: Any, call: Any, offset: Any, out: Any) -> None:
    for c in range(len(call)):
        ahead = trace_offset[call[c]] - offset[c]
        for r in range(offset[c], offset[c + 1]):
            out[r] = values[r + ahead]


@jit
def _ranks(weight: Any, trace_offset: Any, n_tokens: Any, call: Any, offset: Any, out: Any) -> None:
    for c in range(len(call)):
        begin, end = trace_offset[call[c]], trace_offset[call[c] + 1]
        width = (end - begin) // max(n_tokens[call[c]], 1)
        for r in range(begin, end):
            first, rank = r - (r - begin) % width, 0
            for other in range(first, first + width):
                rank += weight[other] > weight[r] or (weight[other] == weight[r] and other < r)
            out[r - begin + offset[c]] = rank


@jit
def _best_of_call(key: Any, offset: Any, best: Any, last_call: Any, lowest: bool, values: Any) -> None:
    """Set the value of each reference to the lowest, or else the largest, of its key in the call.

    best: [keys], scratch. last_call: i64 [keys], -1 at first.
    """
    for c in range(len(offset) - 1):
        for r in range(offset[c], offset[c + 1]):
            k, value = key[r], values[r]
            if last_call[k] != c or (value < best[k] if lowest else value > best[k]):
                best[k] = value
            last_call[k] = c
        for r in range(offset[c], offset[c + 1]):
            values[r] = best[key[r]]
