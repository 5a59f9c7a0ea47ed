"""The capacity of each pool's bank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, OutOfRange, TooLarge
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import EvictingPolicy, PinningPolicy, ScheduledPolicy
from flashmoe_sim.residency.hook_records import why_not_seen
from flashmoe_sim.residency.pool import Pool
from flashmoe_sim.residency.workload import Setup, Workload

MOST_REFERENCES = 1 << 30  # next uses have 32 bits


@dataclass(frozen=True, eq=False)
class Capacity:
    """The bank of one pool.

    room: what its contents may weigh in total. size: i64 [keys], what a key weighs: 1, or its bytes.
    bytes: memory of the bank, or None if no geometry is known.
    """

    room: int
    size: NDArray[np.int64]
    bytes: int | None


def capacities(workload: Workload, setup: Setup) -> list[Capacity]:
    """The bank of every pool of `workload.pools(setup.scope)`.

    A bank of slots has the slots of `layer_slots`; a global one has their sum. A bank in bytes is shared equally among
    layers; if the contract needs fixed slots, it is rounded down to whole slots.
    Raises BadInput for a bank that is larger than the model, too small for its experts, or unable to hold the largest
    call under `protected`; for more references than hindsight can number; and for a trace without what the policy
    sees. Under `runtime` only a replay can show that a call does not fit: aliased experts share a
    slot, so a call may have more experts than the bank has slots.
    """
    if reason := why_not_seen(setup.policy, workload.trace):
        raise Incomplete(reason)
    bank, sizes = setup.bank, workload.expert_bytes
    pools = workload.pools(setup.scope)
    hindsight = isinstance(setup.policy, EvictingPolicy) and setup.policy.hindsight
    if hindsight and max(pool.refs for pool in pools) > MOST_REFERENCES:
        raise TooLarge(
            f"{workload.trace.name}: policy {setup.policy.name} takes at most {MOST_REFERENCES:,} references of one "
            "bank; cut the trace into parts"
        )
    if bank.budget_bytes is not None:
        if sizes is None:
            raise Incomplete(f"bank {bank}: a bank in bytes needs the size of an expert; give --model")
        banks = _byte_banks(bank.budget_bytes, sizes, setup, pools)
    else:
        slots = layer_slots(workload, bank)
        if setup.scope == "global":
            total = None if sizes is None else sum(n * size for n, size in zip(slots, sizes, strict=True))
            banks = [Capacity(sum(slots), np.ones(pools[0].keys, np.int64), total)]
        else:
            kinds = list(zip(slots, workload.n_experts, sizes or (None,) * len(slots), strict=True))
            bank_of = {kind: _slot_bank(*kind) for kind in set(kinds)}
            banks = [bank_of[kind] for kind in kinds]
    if setup.fixed_slots and setup.contract == "protected":
        for number, (pool, capacity) in enumerate(zip(pools, banks, strict=True)):
            if not pool.calls_fit(capacity.room):
                raise slot_overflow(workload, setup, number, int(np.argmax(pool.requests > capacity.room)), capacity)
    return banks


def _slot_bank(slots: int, experts: int, expert_bytes: int | None) -> Capacity:
    return Capacity(slots, np.ones(experts, np.int64), None if expert_bytes is None else slots * expert_bytes)


def layer_slots(workload: Workload, bank: Bank) -> list[int]:
    """The slots of each layer of `trace.layers` in a bank of slots or shares, at most the layer's experts.

    Raises BadInput for more slots than any layer has experts.
    """
    most = max(workload.n_experts)
    if (bank.slots or 0) > most:
        raise OutOfRange(
            f"bank {bank}: a layer of {workload.trace.name} has {most} experts; give at most --bank {most}"
        )
    return [bank.slots_of(n) for n in workload.n_experts]


def _byte_banks(budget_bytes: int, sizes: tuple[int, ...], setup: Setup, pools: list[Pool]) -> list[Capacity]:
    share = budget_bytes if setup.scope == "global" else budget_bytes // len(sizes)
    if isinstance(setup.policy, PinningPolicy | ScheduledPolicy):
        return [Capacity(share, np.array(sizes, np.int64)[pool.key_row], share) for pool in pools]
    if share < max(sizes):
        least_bytes = max(sizes) * (1 if setup.scope == "global" else len(sizes))
        raise OutOfRange(
            f"bank {setup.bank}: {share} bytes for a bank do not hold one expert of {max(sizes)} bytes; "
            f"give at least --bank {-(-least_bytes // 2**20)}MiB"
        )
    banks = []
    for pool in pools:
        size = np.array(sizes, np.int64)[pool.key_row]
        if not setup.fixed_slots:
            all_bytes = int(size.sum())
            banks.append(Capacity(min(share, all_bytes), size, min(share, all_bytes)))
        elif int(size.min()) == int(size.max()):
            slots = min(share // int(size[0]), pool.keys)
            banks.append(Capacity(slots, np.ones(pool.keys, np.int64), slots * int(size[0])))
        else:
            raise Conflict(
                f"bank {setup.bank}: layers differ in expert size, so one bank of fixed slots cannot serve all; "
                "use --contract atomic, or leave out --scope global"
            )
    return banks


def slot_overflow(workload: Workload, setup: Setup, number: int, call: int, capacity: Capacity) -> BadInput:
    """The error for a call that finds no slot in its pool's bank; call: its place in the pool."""
    trace, pools = workload.trace, workload.pools(setup.scope)
    needs = f"the largest call needs {max(pool.largest_call for pool in pools)} slots"
    at = int(pools[number].call[call])
    return OutOfRange(
        f"bank {setup.bank}: call {at} of {trace.name} (layer {int(trace.layer[at])}) asks for "
        f"{int(pools[number].requests[call])} distinct experts and a bank holds {capacity.room}: slot-bank overflow; "
        f"{needs} (--contract atomic streams the excess)"
    )
