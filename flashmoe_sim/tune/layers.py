"""How many slots each layer should get: the fewest bytes missed in the same memory.

No engine in `systems/` has an option for slots by layer: slot banks take one number for all, hot caches and global LRUs
distribute their bytes by their own rules, and placements move whole layers. The gain found here is what a patch to such
an engine would gain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.notebook import InNotebook
from flashmoe_sim.policies.bank import Bank, brief_bank
from flashmoe_sim.policies.base import ScheduledPolicy
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.capacity import capacities, layer_slots
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.schema import ALLOCATED, frame
from flashmoe_sim.timeline.assemble import Conditions
from flashmoe_sim.trace.cut import cut
from flashmoe_sim.tune.knapsack import cheapest
from flashmoe_sim.tune.layer_speed import LayerSpeed, time_layers
from flashmoe_sim.tune.miss_curves import miss_curves

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True, repr=False)
class LayerBanks(InNotebook):
    """Slots by layer, compared with the given bank, in the same memory.

    setup: with the given bank. layers: their numbers; every tuple has an entry for each. expert_bytes: None if unknown;
        then a miss counts as one, whatever its layer.
    slots, misses: of the best bank by layer. asked_slots, asked_misses: of the given bank.
    gap: how many fewer bytes another choice may miss; 0 if this is the optimum.
    every_size: whether all sizes were counted; if not, sizes between the counted ones were not considered.
    held_out: the share of the missed bytes in the trace's second half that slots chosen on its first half avoid;
        negative if they miss more. None if the halves do not have the same layers, or a bank does not hold their calls.
    speed: both banks in seconds; None without a machine.
    """

    trace: str
    setup: Setup
    layers: tuple[int, ...]
    expert_bytes: tuple[int, ...] | None
    slots: tuple[int, ...]
    misses: tuple[int, ...]
    asked_slots: tuple[int, ...]
    asked_misses: tuple[int, ...]
    gap: float
    every_size: bool
    held_out: float | None = None
    speed: LayerSpeed | None = None

    @property
    def bank(self) -> Bank:
        return Bank(by_layer=tuple(zip(self.layers, self.slots, strict=True)))

    @property
    def avoided(self) -> float:
        """The share of the missed bytes that slots by layer avoid, on the trace for which they were chosen."""
        return _avoided(self.asked_misses, self.misses, self.expert_bytes)

    @property
    def heading(self) -> str:
        asked = f"bank {brief_bank(str(self.setup.bank))}, contract {self.setup.contract}"
        return f"{self.trace}: {self.setup.policy.spec}, {asked}. Slots by layer miss {self.avoided:.1%} fewer bytes"

    def as_rows(self) -> list[dict[str, Any]]:
        """schema.ALLOCATED, one row per layer."""
        sizes = self.expert_bytes or (None,) * len(self.layers)
        columns = (self.layers, sizes, self.asked_slots, self.slots, self.asked_misses, self.misses)
        names = [column.name for column in ALLOCATED]
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

    def table(self) -> polars.DataFrame:
        return frame(self.as_rows(), ALLOCATED)

    def to_dict(self) -> dict[str, Any]:
        """Both banks and their misses, as printed by `sim allocate --json`."""
        return {
            "bank": str(self.bank),
            "asked_bytes": _weight(self.asked_slots, self.expert_bytes),
            "bytes": _weight(self.slots, self.expert_bytes),
            "asked_misses": sum(self.asked_misses),
            "misses": sum(self.misses),
            "asked_miss_bytes": _weight(self.asked_misses, self.expert_bytes),
            "miss_bytes": _weight(self.misses, self.expert_bytes),
            "avoided": self.avoided,
            "held_out": self.held_out,
            "gap": self.gap,
            "every_size": self.every_size,
            "speed": None if self.speed is None else self.speed.to_dict(),
            "layers": self.as_rows(),
        }


def allocate(
    workload: Workload,
    setup: Setup,
    *,
    least: int | None = None,
    machine: Machine | None = None,
    conditions: Conditions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> LayerBanks:
    """Distribute the memory of `setup`'s bank over the layers so that its policy misses the fewest bytes.

    least: slots that every layer keeps; by default the experts per token, or fewer if the given bank has fewer. Under
        the contracts with fixed slots every layer also keeps room for its largest call.
    machine, conditions: for both banks in seconds.
    A layer's misses depend only on its own slots, so a replay of the resulting bank has exactly these misses. The given
    bank is among the choices, so nothing is lost on this trace.
    progress: called with how much of the replays is done, and of how much.
    Raises BadInput for a setup whose layers depend on each other, and for a bank that does not fit the workload or the
    machine, or does not hold the least slots.
    """
    halves = [None, None] if progress is None else [_share(progress, 0, 2), _share(progress, 2, 1)]
    found = _best(workload, setup, least, halves[0])
    found = replace(found, held_out=_held_out(workload, setup, least, halves[1]))
    if machine is None or conditions is None:
        return found
    best = replace(setup, bank=found.bank)
    return replace(found, speed=time_layers(workload, (setup, best), machine, conditions))


def _share(progress: Callable[[int, int], None], begin: int, parts: int) -> Callable[[int, int], None]:
    """Progress of some of the three parts: the whole trace is two, its first half is one."""
    return lambda done, total: progress(begin * total + parts * done, 3 * total)


def _best(
    workload: Workload, setup: Setup, least: int | None, progress: Callable[[int, int], None] | None
) -> LayerBanks:
    _refuse(setup)
    sizes = workload.expert_bytes
    weights = sizes or (1,) * len(workload.n_experts)
    capacities(workload, setup)
    asked = _asked_slots(workload, setup.bank)
    budget = setup.bank.budget_bytes or sum(n * size for n, size in zip(asked, weights, strict=True))
    curves, every_size = miss_curves(workload, setup, asked, progress)
    if least is None:
        top_k = workload.trace.top_k or (workload.geometry.top_k if workload.geometry else 0)
        least = min(top_k or 1, *asked)
    costs = [curve * size for curve, size in zip(curves, weights, strict=True)]
    for cost in costs:
        cost[: min(least, len(cost) - 1)] = np.inf
    found = cheapest(costs, weights, budget)
    if found is None:
        raise BadInput(
            f"bank {setup.bank}: does not hold {least} slots of every layer; give a larger bank, or a smaller --least"
        )
    return LayerBanks(
        workload.trace.name,
        setup,
        workload.trace.layers,
        sizes,
        found.slots,
        tuple(int(curve[n]) for curve, n in zip(curves, found.slots, strict=True)),
        tuple(asked),
        tuple(int(curve[n]) for curve, n in zip(curves, asked, strict=True)),
        found.gap,
        every_size,
    )


def _held_out(
    workload: Workload, setup: Setup, least: int | None, progress: Callable[[int, int], None] | None
) -> float | None:
    """What slots chosen on the first half of the steps avoid in the second half, from an empty bank."""
    half = (int(workload.trace.steps[-1]) + 1) // 2
    try:
        first, second = (
            prepare(cut(workload.trace, steps=part), workload.geometry) for part in ((0, half), (half, None))
        )
        banks = _best(first, setup, least, progress)
        before, after = (
            replay(second, replace(setup, bank=bank)).counts.table[:, tally.MISSES].tolist()
            for bank in (setup.bank, banks.bank)
        )
    except BadInput:
        return None
    return _avoided(before, after, workload.expert_bytes)


def _asked_slots(workload: Workload, bank: Bank) -> list[int]:
    if bank.budget_bytes is None:
        return layer_slots(workload, bank)
    assert workload.expert_bytes is not None
    share = bank.budget_bytes // len(workload.n_experts)
    return [min(share // size, n) for size, n in zip(workload.expert_bytes, workload.n_experts, strict=True)]


def _refuse(setup: Setup) -> None:
    """Raise BadInput if a layer's misses depend on more than its own slots."""
    if setup.scope == "global":
        raise BadInput("one bank for all layers has no slots by layer; leave out --scope global")
    if setup.policy.by_budget or isinstance(setup.policy, ScheduledPolicy):
        raise BadInput(
            f"policy {setup.policy.spec}: what a layer misses depends on other layers too; use one such as --policy lru"
        )
    if not isinstance(setup.prefetch, NoPrefetch):
        raise BadInput(f"predictor {setup.prefetch.name}: slots by layer are found without one; leave it out")


def _avoided(before: Sequence[int], after: Sequence[int], expert_bytes: Sequence[int] | None) -> float:
    weights = expert_bytes or (1,) * len(before)
    missed = _weight(before, weights)
    return 1 - (_weight(after, weights) or 0) / missed if missed else 0.0


def _weight(experts: Sequence[int], expert_bytes: Sequence[int] | None) -> int | None:
    return None if expert_bytes is None else sum(n * size for n, size in zip(experts, expert_bytes, strict=True))
