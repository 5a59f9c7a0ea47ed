"""The hot set of a tumbling window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import jit
from flashmoe_sim.parameters import INT32, Choices, Limits
from flashmoe_sim.policies.base import Candidates, LayerBanks, ScheduledPolicy
from flashmoe_sim.trace.phases import find_phases
from flashmoe_sim.trace.routing import PHASE_PROMPT, RoutingTrace

COUNTS, OBSERVED = ("decode", "reference"), ("all", "last")
BATCH, MICRO_BATCH = 2048, 512  # tokens: -b and -ub of llama.cpp
EARLIER_DECODES = 2  # before the first request: the warm-up, and the server's check of its sequences


@dataclass(frozen=True)
class HotWindow(ScheduledPolicy):
    """Keep the most used experts of each window of decodes, with a bonus for residents; the CPU computes misses.

    Under either scope every layer has its own bank of K slots. Filling: after each decode, the experts it requested
    that are not resident take the next free slots, in router order, until all layers are full. Then uses are counted,
    and after every `interval` decodes, counted from the very first, each layer keeps the K experts with the best count
    plus bonus, and counts again from 0. The bonus of a resident is K x interval / 320 + 6, at least 6 and at most 24;
    half of it at the end of the first interval, three quarters at the second, both rounded down. Intervals that end
    during filling have no effect, but are numbered.

    Experts that enter the bank count as prefetched: they are read between steps, not for a miss. The system assigns
    vacated slots, in ascending order, to the newcomers, best first; since nothing here depends on it, slots are not
    tracked.

    interval: decodes between rebalances. 40 is the default in the system's table of flags; its text says 60.

    bypass_tokens: calls of more tokens bypass the bank and take the engine's ordinary path; 0: no call does.

    count: what counts as one use: a `decode` that requests the expert, or, as in the system, a `reference`, each token
    that does.

    observe: which calls fill slots and are counted: `all`, or `last` as in the system. With `all`, every call that does
    not take the ordinary path counts, and each step is a decode. With `last`, the steps of a prompt are decodes of up
    to 2048 tokens, computed in micro-batches of 512, and only the last micro-batch is seen. The system records it in a
    buffer with room for one token per layer: layers come in order, each needs room for its tokens, and one that finds
    too little room is not seen.

    warm_up: whether the decodes before the first request count, as in the system. The warm-up computes two tokens with
    all experts, so it fills all slots of the layers that are seen, about the first half, in router order. A trace
    records at most the top-k of its first token; we fill the rest with the lowest expert numbers. The other decode is
    only counted.
    """

    name: ClassVar[str] = "hot-window"
    ties: ClassVar[str] = "the resident, then lower expert number"
    source: ClassVar[str] = "ParmesanParty's fork of llama.cpp, MoE hot expert compute cache: 73bfef6, 7c29c6c"
    limits: ClassVar[Limits] = {"interval": (1, INT32), "bypass_tokens": (0, INT32)}
    choices: ClassVar[Choices] = {"count": COUNTS, "observe": OBSERVED}

    interval: int = 40
    bypass_tokens: int = 0
    count: str = "decode"
    observe: str = "all"
    warm_up: bool = False

    def uses_bank(self, n_tokens: NDArray[np.int32]) -> NDArray[np.bool_]:
        return n_tokens <= (self.bypass_tokens or INT32)

    def bonus(self, slots: NDArray[np.int64], number: int) -> NDArray[np.int64]:
        """The bonus of residents in banks of `slots` slots at the end of interval `number`, which counts from 1."""
        steady = np.clip(slots * self.interval // 320 + 6, 6, 24)
        return steady * min(number + 1, 4) // 4

    def schedule(
        self, trace: RoutingTrace, key: NDArray[np.uint32], candidates: Candidates
    ) -> Iterator[tuple[int, NDArray[np.bool_]]]:
        banks = candidates.banks
        row = np.searchsorted(trace.layers, trace.layer)
        decodes = decodes_of(trace) if self.observe == "last" else each_step(trace, self.uses_bank(trace.n_tokens))
        observed, ends = decodes.observed, decodes.ends
        resident = np.zeros(banks.first_key[-1], np.bool_)
        earlier, begin = 0, 0
        if self.warm_up:
            earlier = EARLIER_DECODES - (decodes.warm_up > 0)
            begin = decodes.warm_up
            observed[:begin] = False
            if begin:
                yield 0, resident
            _warm_up(resident, key[: trace.offset[min(begin, trace.calls)]], banks)
        yield begin, resident

        calls = ObservedCalls(key, trace.offset, row, observed)
        arrival = np.full(len(resident), -1, np.int64)
        free = _fill(calls, banks, resident, banks.slots.copy(), arrival)
        arrives = np.where(arrival < 0, -1, np.searchsorted(ends, arrival, side="right"))
        for decode in np.unique(arrives[arrives >= 0]).tolist():
            resident |= arrives == decode
            yield int(ends[decode]), resident
        if free:
            return

        full = int(arrives.max())
        begin = int(ends[full]) if full >= 0 else begin  # the warm-up may have filled all
        scratch = np.full((3, len(resident)), -1, np.int64)
        for number in range((full + 1 + earlier) // self.interval + 1, (len(ends) + earlier) // self.interval + 1):
            end = int(ends[number * self.interval - 1 - earlier])
            bonus = self.bonus(banks.slots, number)
            _rebalance(calls, begin, end, banks, bonus, self.count == "decode", scratch, resident)
            yield end, resident
            begin = end


class ObservedCalls(NamedTuple):
    """The calls of a trace, as kernels count them.

    key: u32 [references]. offset: i64 [calls + 1]. row: i64 [calls], the layer's place in `trace.layers`. observed:
    bool [calls].
    """

    key: NDArray[np.uint32]
    offset: NDArray[np.int64]
    row: NDArray[np.int64]
    observed: NDArray[np.bool_]


class Decodes(NamedTuple):
    """The system's decodes in a trace.

    ends: i64 [decodes], the call after the last of each decode. observed: bool [calls], which are seen after their
    decode. warm_up: the call after the warm-up if the trace begins with one, else 0.
    """

    ends: NDArray[np.int64]
    observed: NDArray[np.bool_]
    warm_up: int


def each_step(trace: RoutingTrace, observed: NDArray[np.bool_]) -> Decodes:
    """Every step of a trace as a decode."""
    ends = np.append(np.flatnonzero(np.diff(trace.steps)) + 1, trace.calls)[: trace.calls]
    phases = find_phases(trace)
    warm_steps = 0 if phases is None else phases.warm_up_steps
    return Decodes(ends, observed, int(ends[warm_steps - 1]) if warm_steps else 0)


def decodes_of(trace: RoutingTrace) -> Decodes:
    """The decodes of a trace: a prompt's steps are joined up to the size of a batch, every other step is a decode."""
    ends, observed, warm_up = each_step(trace, np.zeros(trace.calls, np.bool_))
    begins = np.append(0, ends[:-1])
    tokens = np.maximum(trace.n_tokens, trace.has_refs)  # at least 1 if the recording does not say
    wide = np.maximum.reduceat(tokens, begins).tolist() if trace.calls else []
    phases = find_phases(trace)
    prompt = np.zeros(len(ends), np.bool_) if phases is None else phases.phase == PHASE_PROMPT
    text = np.zeros(trace.calls) if trace.sequence is None else trace.sequence
    joined = prompt.copy()  # whether a step continues the decode of the step before it
    joined[1:] &= prompt[:-1] & (text[begins[1:]] == text[begins[:-1]]) & (begins[1:] != warm_up)
    joined |= ends <= warm_up
    joined[:1] = False
    last_step, first_seen, batch, micro_batch = [], [], 0, 0
    for step, size in enumerate(wide):
        if not joined[step] or batch + size > BATCH:
            last_step.append(step)
            first_seen.append(step)
            batch, micro_batch = 0, 0
        elif micro_batch + size > MICRO_BATCH:
            first_seen[-1], micro_batch = step, 0
        last_step[-1] = step
        batch, micro_batch = batch + size, micro_batch + size
    row = np.searchsorted(trace.layers, trace.layer)
    first_call, ends = begins[np.array(first_seen, np.int64)], ends[np.array(last_step, np.int64)]
    _observe(first_call, ends, row, tokens, np.empty(len(trace.layers), np.int64), observed)
    return Decodes(ends, observed, warm_up)


@jit
def _observe(begins: Any, ends: Any, row: Any, tokens: Any, total: Any, observed: Any) -> None:
    """Set `observed` for the layers of each decode whose tokens find room in the buffer, lower layers first.

    begins, ends: i64 [decodes], the calls of each that may be seen. row, tokens: i64, i32 [calls]. total: i64 [layers],
    scratch. observed: bool [calls].
    """
    for decode in range(len(ends)):
        total[:] = 0
        for call in range(begins[decode], ends[decode]):
            total[row[call]] += tokens[call]
        room = len(total)
        for layer in range(len(total)):
            if total[layer] > room:
                total[layer] = -1
            else:
                room -= total[layer]
        for call in range(begins[decode], ends[decode]):
            observed[call] = total[row[call]] >= 0


def _warm_up(resident: NDArray[np.bool_], key: NDArray[np.uint32], banks: LayerBanks) -> None:
    """Fill the layers that are seen in a decode of two tokens, one of them output."""
    layers = len(banks.slots)
    seen = [*range(layers // 2), *([layers - 1] if layers % 2 else [])]
    for layer in seen:
        first, end = int(banks.first_key[layer]), int(banks.first_key[layer + 1])
        of_layer = key[(key >= first) & (key < end)].tolist()
        order = dict.fromkeys([*of_layer, *range(first, end)])
        resident[list(order)[: int(banks.slots[layer])]] = True


@jit
def _fill(calls: Any, banks: Any, resident: Any, free: Any, arrival: Any) -> int:
    """Set `arrival`, i64 [keys], -1, to the call for which each key got a slot; return how many slots stay free.

    free: i64 [layers], each layer's slots, then how many of them stay free.
    """
    left = 0
    for layer in range(len(free)):
        for k in range(banks.first_key[layer], banks.first_key[layer + 1]):
            free[layer] -= resident[k]
        left += free[layer]
    for call in range(len(calls.row)):
        if left == 0:
            break
        if not calls.observed[call]:
            continue
        layer = calls.row[call]
        for r in range(calls.offset[call], calls.offset[call + 1]):
            k = calls.key[r]
            if free[layer] and arrival[k] < 0 and not resident[k]:
                arrival[k] = call
                free[layer] -= 1
                left -= 1
    return left


@jit
def _rebalance(
    calls: Any, begin: int, end: int, banks: Any, bonus: Any, once: bool, scratch: Any, resident: Any
) -> None:
    """Make the best experts of calls `begin` to `end` (exclusive) resident, as many per layer as it has slots.

    bonus: i64 [layers]. once: whether an expert counts once a call. scratch: i64 [3, keys], -1 before the first call.
    """
    key, offset, _, observed = calls
    seen, uses, worth = scratch[0], scratch[1], scratch[2]
    for k in range(len(uses)):
        uses[k] = 0
    for call in range(begin, end):
        if not observed[call]:
            continue
        for r in range(offset[call], offset[call + 1]):
            if not once or seen[key[r]] != call:
                seen[key[r]] = call
                uses[key[r]] += 1
    for layer in range(len(banks.slots)):
        first, last, slots = banks.first_key[layer], banks.first_key[layer + 1], banks.slots[layer]
        if slots == 0:
            continue
        n, most = last - first, 0
        for k in range(first, last):  # score, whether resident, the lower number: no two are equal, none below 0
            there = int(resident[k])
            worth[k] = (2 * (uses[k] + bonus[layer] * there) + there) * n + last - 1 - k
            most = max(most, worth[k])
        # The worth of the last expert that gets a slot, by bisection: numba takes five seconds to compile a partition.
        least, above = 0, most + 1
        while above - least > 1:
            middle = (least + above) // 2
            better = 0
            for k in range(first, last):
                better += worth[k] >= middle
            least, above = (middle, above) if better >= slots else (least, middle)
        for k in range(first, last):
            resident[k] = worth[k] >= least
