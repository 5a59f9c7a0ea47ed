"""The hot set of a tumbling window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import jit
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.policies.base import Candidates, ScheduledPolicy
from flashmoe_sim.trace.routing import RoutingTrace

MOST = 2**31 - 1


@dataclass(frozen=True)
class HotWindow(ScheduledPolicy):
    """Keep the most used experts of each window of decodes, with a bonus for residents; misses run on the CPU.

    Every layer has a bank of its own under either scope, of K slots. Filling: after each decode, what it asked for and
    is not resident takes the next free slots, in router order, until all layers are full. Then uses are counted, one a
    decode, and after every `interval` decodes from the very first each layer keeps the K experts with the best count
    plus bonus, and counts anew. The bonus of a resident is K x interval / 320 + 6, at least 6 and at most 24; half of
    it at the first interval's end, three quarters at the second, both rounded down. Ends of intervals during filling
    pass without effect, but are numbered.

    What comes into the bank is counted as prefetched: it is read between steps, not for a miss. Slots that are left go,
    in ascending order, to the newcomers from the best on; since nothing here depends on it, no slots are given out.

    interval: decodes between rebalances. 40 is the default in the system's table of flags; its prose says 60.

    bypass_tokens: calls of more tokens take the ordinary path: they use no resident, fill nothing and are not counted,
    but are decodes. 0: none do. In the system itself they are counted.

    The system counts each token of a decode where it sees it; here an expert counts once a decode.
    """

    name: ClassVar[str] = "hot-window"
    ties: ClassVar[str] = "the resident, then lower expert number"
    source: ClassVar[str] = "ParmesanParty's fork of llama.cpp, MoE hot expert compute cache"

    interval: int = 40
    bypass_tokens: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.interval <= MOST:
            raise BadInput(f"policy hot-window: interval={self.interval} is not in 1..{MOST}")
        if not 0 <= self.bypass_tokens <= MOST:
            raise BadInput(f"policy hot-window: bypass_tokens={self.bypass_tokens} is not in 0..{MOST}")

    def uses_bank(self, n_tokens: NDArray[np.int32]) -> NDArray[np.bool_]:
        return n_tokens <= (self.bypass_tokens or MOST)

    def bonus(self, slots: NDArray[np.int64], number: int) -> NDArray[np.int64]:
        """What residents of banks of `slots` slots are given at the end of interval `number`, from 1."""
        steady = np.clip(slots * self.interval // 320 + 6, 6, 24)
        return steady * min(number + 1, 4) // 4

    def schedule(
        self, trace: RoutingTrace, key: NDArray[np.uint32], candidates: Candidates
    ) -> Iterator[tuple[int, NDArray[np.bool_]]]:
        n_experts = [len(counts) for counts in candidates.counts]
        first_key = np.cumsum([0, *n_experts])
        slots = np.minimum(candidates.slots, n_experts)
        row = np.searchsorted(trace.layers, trace.layer)
        uses_bank = self.uses_bank(trace.n_tokens)
        begins = np.diff(trace.steps, prepend=-1) != 0
        end_of_step = np.append(np.flatnonzero(begins)[1:], trace.calls)
        resident = np.zeros(first_key[-1], np.bool_)
        yield 0, resident

        arrival = np.full(len(resident), -1, np.int64)
        free = _fill(key, trace.offset, row, uses_bank, slots, arrival)
        arrives = np.where(arrival < 0, -1, np.cumsum(begins)[arrival] - 1)
        for step in np.unique(arrives[arrives >= 0]).tolist():
            resident |= arrives == step
            yield int(end_of_step[step]), resident
        if free:
            return

        full = max(int(arrives.max()), 0)
        begin = int(end_of_step[full])
        seen = np.full(len(resident), -1, np.int64)
        for number in range((full + 1) // self.interval + 1, len(end_of_step) // self.interval + 1):
            end = int(end_of_step[number * self.interval - 1])
            bonus = self.bonus(slots, number)
            _rebalance(key, trace.offset, uses_bank, begin, end, first_key, slots, bonus, seen, resident)
            yield end, resident
            begin = end


@jit
def _fill(key: Any, offset: Any, row: Any, uses_bank: Any, slots: Any, arrival: Any) -> int:
    """Set `arrival`, i64 [keys], to the call for which each key was given a slot; return how many slots stay free."""
    free = slots.copy()
    left = slots.sum()
    for call in range(len(row)):
        if left == 0:
            break
        if not uses_bank[call]:
            continue
        for r in range(offset[call], offset[call + 1]):
            if free[row[call]] and arrival[key[r]] < 0:
                arrival[key[r]] = call
                free[row[call]] -= 1
                left -= 1
    return left  # type: ignore[no-any-return]


@jit
def _rebalance(
    key: Any,
    offset: Any,
    uses_bank: Any,
    begin: int,
    end: int,
    first_key: Any,
    slots: Any,
    bonus: Any,
    seen: Any,
    resident: Any,
) -> None:
    """Make the best of the calls from `begin` to before `end` resident, as many in each layer as it has slots.

    first_key: i64 [layers + 1], where the keys of each layer begin. bonus: i64 [layers]. seen: i64 [keys], scratch, -1
    before the first call.
    """
    counts = np.zeros(len(resident), np.int64)
    for call in range(begin, end):
        if not uses_bank[call]:
            continue
        for r in range(offset[call], offset[call + 1]):
            if seen[key[r]] != call:
                seen[key[r]] = call
                counts[key[r]] += 1
    for layer in range(len(slots)):
        if slots[layer] == 0:
            continue
        first = first_key[layer]
        n = first_key[layer + 1] - first
        worth = np.empty(n, np.int64)  # score, then whether resident, then the lower number: no two are equal
        for expert in range(n):
            there = int(resident[first + expert])
            worth[expert] = (2 * (counts[first + expert] + bonus[layer] * there) + there) * n + n - 1 - expert
        least = np.partition(worth, n - slots[layer])[n - slots[layer]]
        for expert in range(n):
            resident[first + expert] = worth[expert] >= least
