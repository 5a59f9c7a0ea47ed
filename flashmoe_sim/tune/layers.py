"""How many slots each layer should get: the fewest bytes missed in the same memory.

No engine in `systems/` has an option for slots by layer: slot banks take one number for all, hot caches and the global
LRUs share their bytes out by rules of their own, and placements move whole layers. What is gained here is what a patch
of such an engine would gain.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import ScheduledPolicy
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.capacity import capacities, layer_slots
from flashmoe_sim.residency.counts import Counts
from flashmoe_sim.residency.curve import one_pass_policy, pool_curve
from flashmoe_sim.residency.many import plan_jobs
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.tune.knapsack import cheapest

STEPS_A_DOUBLING = 8  # sizes that are replayed for a policy without a one-pass curve


@dataclass(frozen=True)
class LayerBanks:
    """Slots by layer, beside the bank that was asked for, in the same memory.

    setup: what was asked. budget_bytes: in experts where their bytes are not known.
    layers: their numbers; the tuples have one entry for each. expert_bytes: None where they are not known.
    slots, misses: of the best bank by layer. asked_slots, asked_misses: of the bank asked for.
    gap: by how much the cost may miss the optimum, bytes; 0 if it is the optimum.
    sizes: `all`, or `some` if the misses of only some sizes were counted, so that sizes between them were not chosen.
    """

    trace: str
    setup: Setup
    budget_bytes: int
    layers: tuple[int, ...]
    expert_bytes: tuple[int, ...] | None
    slots: tuple[int, ...]
    misses: tuple[int, ...]
    asked_slots: tuple[int, ...]
    asked_misses: tuple[int, ...]
    gap: float
    sizes: str

    @property
    def bank(self) -> Bank:
        return Bank(by_layer=tuple(zip(self.layers, self.slots, strict=True)))

    @property
    def miss_bytes(self) -> int | None:
        return _bytes(self.misses, self.expert_bytes)

    @property
    def asked_miss_bytes(self) -> int | None:
        return _bytes(self.asked_misses, self.expert_bytes)

    @property
    def avoided(self) -> float:
        """Share of the bytes missed that slots by layer avoid, or of the misses where no bytes are known."""
        before = self.asked_miss_bytes if self.expert_bytes else sum(self.asked_misses)
        after = self.miss_bytes if self.expert_bytes else sum(self.misses)
        return 1 - (after or 0) / before if before else 0.0

    def as_rows(self) -> list[dict[str, Any]]:
        """A row for every layer."""
        sizes = self.expert_bytes or (None,) * len(self.layers)
        columns = (self.layers, sizes, self.asked_slots, self.slots, self.asked_misses, self.misses)
        names = ("layer", "expert_bytes", "asked_slots", "slots", "asked_misses", "misses")
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

    def as_dict(self) -> dict[str, Any]:
        """Both banks and what they miss, as `sim curve --allocate --json` prints them."""
        return {
            "trace": self.trace,
            "policy": self.setup.policy.spec,
            "contract": self.setup.contract,
            "asked_bank": str(self.setup.bank),
            "bank": str(self.bank),
            "budget_bytes": self.budget_bytes if self.expert_bytes else None,
            "asked_misses": sum(self.asked_misses),
            "misses": sum(self.misses),
            "asked_miss_bytes": self.asked_miss_bytes,
            "miss_bytes": self.miss_bytes,
            "avoided": self.avoided,
            "gap": self.gap,
            "sizes": self.sizes,
            "layers": self.as_rows(),
        }


def allocate(
    workload: Workload, setup: Setup, *, least: int | None = None, cost_of_miss: Sequence[float] | None = None
) -> LayerBanks:
    """Share the memory of the bank of `setup` out by layer, so that its policy misses the fewest bytes.

    least: slots that every layer keeps; by default what a token asks for, or fewer if the bank asked for has fewer.
        Under the contracts of fixed slots every layer keeps room for its largest call as well.
    cost_of_miss: of each layer, in any unit, such as seconds; by default its expert's bytes.
    The policy's misses in a layer depend on that layer's slots alone, so the replay of what is found misses exactly
    what is promised. The bank asked for is among the choices, so nothing is lost.
    Raises BadInput for a setup in which they do not, for a bank that does not fit the workload, and for a budget that
    does not hold the least slots.
    """
    _refuse(setup)
    sizes = workload.expert_bytes
    weights = sizes or (1,) * len(workload.n_experts)
    capacities(workload, setup)
    asked = _asked_slots(workload, setup.bank)
    budget = setup.bank.budget_bytes or sum(n * size for n, size in zip(asked, weights, strict=True))
    curves, exact = miss_curves(workload, setup, asked)
    top_k = workload.trace.top_k or (workload.geometry.top_k if workload.geometry else 0)
    floor = min(top_k or 1, *asked) if least is None else least
    each = cost_of_miss or weights
    costs = [curve * cost for curve, cost in zip(curves, each, strict=True)]
    for cost in costs:
        cost[: min(floor, len(cost) - 1)] = np.inf
    found = cheapest(costs, weights, budget)
    if found is None:
        raise BadInput(
            f"bank {setup.bank}: does not hold {floor} slots of every layer and the largest calls; give a larger bank"
        )
    return LayerBanks(
        workload.trace.name,
        setup,
        budget,
        workload.trace.layers,
        sizes,
        found.slots,
        tuple(int(curve[n]) for curve, n in zip(curves, found.slots, strict=True)),
        tuple(asked),
        tuple(int(curve[n]) for curve, n in zip(curves, asked, strict=True)),
        found.gap,
        "all" if exact else "some",
    )


def miss_curves(workload: Workload, setup: Setup, asked: Sequence[int]) -> tuple[list[NDArray[np.float64]], bool]:
    """What each layer misses at every size, f64 by slots, and whether every size was counted.

    A size is infinite if it cannot hold the layer's largest call, or was not counted. One pass counts every size, where
    the policy allows one; else replays count the sizes of a ladder, of 8 for each doubling, and those of `asked`.
    """
    curves = [np.full(n + 1, np.inf) for n in workload.n_experts]
    wanted = set(ladder(max(workload.n_experts))) | set(asked)
    exact = one_pass_policy(setup.policy, setup.contract)
    if exact:
        profile = workload.profile(setup.policy).pools
        smallest = []
        for curve, pool, seen in zip(curves, workload.layer_pools, profile, strict=True):
            passed = pool_curve(pool, setup.policy, seen)
            smallest.append(passed.smallest)
            sizes = np.arange(passed.smallest, len(curve))
            curve[sizes] = passed.counts(sizes)[:, tally.MISSES]
        exact = setup.contract != "atomic" or max(smallest) == 1
        wanted = {size for size in wanted if size < max(smallest) and not exact}
    for size, counts in _replayed(workload, setup, sorted(wanted)).items():
        for curve, misses in zip(curves, counts.table[:, tally.MISSES], strict=True):
            place = min(size, len(curve) - 1)
            curve[place] = min(curve[place], misses)
    return curves, exact


def ladder(most: int) -> list[int]:
    """Sizes from 1 to `most`: up to 8 every one, from there 8 for each doubling, and the last."""
    step = [max(1, 1 << (size.bit_length() - STEPS_A_DOUBLING.bit_length())) for size in range(1, most + 1)]
    return [size for size in range(1, most + 1) if size % step[size - 1] == 0 or size == most]


def _replayed(workload: Workload, setup: Setup, sizes: Sequence[int]) -> dict[int, Counts]:
    """The counts of banks of so many slots of each layer, without those that cannot hold the largest call."""
    setups = {replace(setup, bank=Bank(slots=size)): size for size in sizes}
    found: dict[int, Counts] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for part in pool.map(lambda job: job(), plan_jobs(workload, list(setups), refused={})):
            for one, counts in part.items():
                size = setups[one]
                found[size] = found[size].joined(counts) if size in found else counts
    return found


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


def _bytes(misses: Sequence[int], expert_bytes: Sequence[int] | None) -> int | None:
    return None if expert_bytes is None else sum(n * size for n, size in zip(misses, expert_bytes, strict=True))
