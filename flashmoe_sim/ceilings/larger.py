"""What a larger bank would gain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.residency.replay import Replayed, replay
from flashmoe_sim.residency.workload import Setup, Workload


def most_tries(most: int) -> int:
    """How often `smallest` asks, at most, up to about `most`."""
    return 2 * most.bit_length() + 1


def smallest(enough: Callable[[int], bool], most: int) -> int | None:
    """The smallest of 0..most that is enough, by doubling and then bisection; None if `most` is not.

    Exact if every larger number is also enough. Otherwise the result is enough, but a smaller number may be, too.
    """
    if most < 0:
        return None
    below, found = -1, 0
    while not enough(found):
        if found == most:
            return None
        below, found = found, min(max(2 * found, 1), most)
    while found - below > 1:
        middle = (below + found) // 2
        if enough(middle):
            found = middle
        else:
            below = middle
    return found


@dataclass(frozen=True)
class LargerBank:
    """Larger banks for the same policy under the same contract, as written after `--bank`.

    Banks in bytes grow in steps of one expert of every layer. A step is rounded up to a whole number of KiB, MiB or
    GiB: of the largest of these units that is not larger than the step.

    full_misses: misses of a bank that holds every expert.
    halves: the smallest bank with at most half the misses, and halves_misses: its misses. None if there is no such
    bank.
    unaliased: the smallest bank without aliased references. None if there are none now.

    Both are found by doubling and then bisection. That is exact if a larger bank never misses more (lru, static,
    min); otherwise (fifo; aliasing) a smaller one may do as well.
    """

    full_misses: int
    halves: str | None
    halves_misses: int | None
    unaliased: str | None


def larger_bank(workload: Workload, own: Replayed, *, replayed: Callable[[], None] = lambda: None) -> LargerBank:
    """Look for banks larger than `own`'s, up to one that holds every expert.

    replayed: called after each replay.
    """
    banks = _larger_banks(workload, own.setup)

    @cache
    def counted(place: int) -> dict[str, int]:
        total = replay(workload, replace(own.setup, bank=banks[place])).counts.total()
        replayed()
        return total

    now = own.counts.total()
    most = len(banks) - 1
    full = counted(most) if banks else now
    halves = smallest(lambda place: 2 * counted(place)["misses"] <= now["misses"], most) if now["misses"] else None
    unaliased = smallest(lambda place: not counted(place)["aliased_refs"], most) if now["aliased_refs"] else None
    return LargerBank(
        full_misses=full["misses"],
        halves=None if halves is None else str(banks[halves]),
        halves_misses=None if halves is None else counted(halves)["misses"],
        unaliased=None if unaliased is None else str(banks[unaliased]),
    )


def _larger_banks(workload: Workload, setup: Setup) -> list[Bank]:
    """All useful larger banks, ascending; the last holds every expert."""
    n_experts, bank = workload.n_experts, setup.bank
    if bank.in_slots:
        most = max(n_experts)
        return [Bank(slots=slots) for slots in range(bank.slots_of(most) + 1, most + 1)]
    sizes, budget = workload.expert_bytes, bank.budget_bytes
    assert sizes is not None
    assert budget is not None
    by_layer = [size * n for size, n in zip(sizes, n_experts, strict=True)]
    everything = sum(by_layer) if setup.scope == "global" else max(by_layer) * len(by_layer)
    step = sum(sizes)
    unit = max(2**power for power in (0, 10, 20, 30) if 2**power <= step)
    budgets = [*range(budget + step, everything, step), everything]
    return [Bank(budget_bytes=-(-size // unit) * unit) for size in budgets if size > budget]
