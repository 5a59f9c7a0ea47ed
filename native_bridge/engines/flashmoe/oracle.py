"""The runtime's replays of a trace, `oracle-all-hit` and `oracle-prefetch`: exact, without running it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.trace.routing import RoutingTrace


@dataclass(frozen=True, eq=False)
class AllHit:
    """A replay whose experts are all installed before the run.

    slot: i32 [references]. installs: by layer number, as many as the layer has distinct experts.
    """

    slot: NDArray[np.int32]
    installs: dict[int, int]


@dataclass(frozen=True, eq=False)
class OraclePrefetch:
    """A replay that makes each routed call resident while the one before it runs.

    slot: i32 [references of the calls replayed]. primes, requests: how often a call was made resident, repairs
    included, and how many distinct experts that requested. repairs: calls that had to be made resident again.
    misses, filled: by layer number, experts installed and slots that hold one at the end.
    """

    slot: NDArray[np.int32]
    primes: int
    requests: int
    repairs: int
    misses: dict[int, int]
    filled: dict[int, int]


def oracle_all_hit(trace: RoutingTrace, *, slots: int) -> AllHit:
    """Assign the slots of every layer in the order of first use.

    slots: of a layer. Raises BadInput if a layer uses more experts than that, naming the one that needs most.
    """
    slot = np.empty(trace.refs, np.int32)
    installs = {}
    length = np.diff(trace.offset)
    layer_of_reference = np.repeat(trace.layer, length)
    for layer in trace.layers:
        at = np.flatnonzero(layer_of_reference == layer)
        experts, first, of = np.unique(trace.expert[at], return_index=True, return_inverse=True)
        place = np.empty(len(experts), np.int32)
        place[np.argsort(first)] = np.arange(len(experts))
        slot[at] = place[of]
        installs[layer] = len(experts)
    layer = max(installs, key=lambda one: installs[one])
    if installs[layer] > slots:
        raise OutOfRange(
            f"{trace.name}: layer {layer} uses {installs[layer]} experts and a bank holds {slots}: oracle-all-hit "
            f"needs a slot for each; give a bank of {installs[layer]}"
        )
    return AllHit(slot, installs)


def oracle_prefetch(trace: RoutingTrace, *, slots: int, calls: int | None = None) -> OraclePrefetch:
    """Replay a trace that is read one routed call ahead.

    A call can evict its own experts, as under the contract `runtime`; a repair brings them back.
    slots: of a layer. calls: stop after this many, like a run that generated less than the trace has.
    Raises BadInput if a call finds no slot: the runtime then stops.

    Source: the mode of the patched llama.cpp (Flash-MoE fork).
    """
    banks = {layer: _Bank(slots) for layer in trace.layers}
    expert: list[int] = trace.expert.tolist()
    offset, layers = trace.offset.tolist(), trace.layer.tolist()
    calls = trace.calls if calls is None else calls

    def experts_of(call: int) -> list[int]:
        return expert[offset[call] : offset[call + 1]]

    def prime(call: int, reserved: Iterable[int] = ()) -> int:
        requested, bank = experts_of(call), banks[layers[call]]
        if not bank.make_resident(requested, reserved):
            raise OutOfRange(
                f"{trace.name}: call {call} (layer {layers[call]}) finds no slot for its {len(set(requested))} "
                f"distinct experts{' beside those of the call before it' * bool(reserved)} in a bank of {slots}; "
                "give a larger bank"
            )
        return len(set(requested))

    assigned: list[int] = []
    primes, requests, repairs = 1, prime(0), 0
    for call in range(calls):
        requested, bank = experts_of(call), banks[layers[call]]
        if not bank.holds(requested):
            # Experts missing now take the slots not touched the first time, which are the oldest.
            requests += prime(call)
            primes, repairs = primes + 1, repairs + 1
        touched = [bank.slot_of[one] for one in requested]
        assigned += touched
        bank.touch(dict.fromkeys(touched))
        if call + 1 < trace.calls:
            requests += prime(call + 1, touched if layers[call + 1] == layers[call] else ())
            primes += 1
    return OraclePrefetch(
        slot=np.array(assigned, np.int32),
        primes=primes,
        requests=requests,
        repairs=repairs,
        misses={layer: bank.installs for layer, bank in banks.items()},
        filled={layer: len(bank.recency) for layer, bank in banks.items()},
    )


@dataclass
class _Bank:
    """The slots of one layer, filled from the first on; recency: the filled slots, the longest untouched first."""

    slots: int
    slot_of: dict[int, int] = field(default_factory=dict)
    recency: OrderedDict[int, int] = field(default_factory=OrderedDict)  # slot to expert
    installs: int = 0

    def holds(self, experts: Sequence[int]) -> bool:
        return all(expert in self.slot_of for expert in experts)

    def touch(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self.recency.move_to_end(slot)

    def make_resident(self, experts: Sequence[int], reserved: Iterable[int]) -> bool:
        """Choose a slot for each expert, install misses, touch all; return whether there was a slot for each.

        The tables change only after all slots are chosen, so that an expert whose slot goes to another one still counts
        as resident: the runtime's aliasing.
        """
        taken = set(reserved)
        touched, installs, empty = [], {}, len(self.recency)
        for expert in dict.fromkeys(experts):
            slot = self.slot_of.get(expert)
            if slot is None and empty < self.slots:
                slot, empty = empty, empty + 1
                installs[slot] = expert
            elif slot is None:
                slot = next((one for one in self.recency if one not in taken), None)
                if slot is None:
                    return False
                installs[slot] = expert
            taken.add(slot)
            touched.append(slot)
        for slot, expert in installs.items():
            if slot in self.recency:
                del self.slot_of[self.recency[slot]]
            self.slot_of[expert] = slot
            self.recency[slot] = expert
        self.installs += len(installs)
        self.touch(touched)
        return True
