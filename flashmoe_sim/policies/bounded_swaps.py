"""A hot set that changes by a bounded number of swaps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.policies.base import Candidates, ScheduledPolicy
from flashmoe_sim.trace.routing import RoutingTrace


@dataclass(frozen=True)
class BoundedSwaps(ScheduledPolicy):
    """Load a profile's most used experts, then swap a few residents of each layer for experts used more since.

    Under either scope the budget is the total of all banks. The experts of all layers are loaded by use in the profile
    until the first that does not fit, so that a layer's number of residents never changes. Then every reference counts
    1. After every few windows (steps without a call of more than 64 tokens), each layer pairs its most used absent
    expert with its least used resident, the second with the second, and so on while the gain in use is enough. The
    pairs of all layers that gain most are swapped, and all counts decay. Swapped experts count as prefetched.

    The engine starts no swaps while the last ones are on their way; here they always arrive in time.

    profile_steps: the first steps of the trace that are its profile; 0: the whole trace, in hindsight.
    every: windows between swaps.
    swaps: the most experts swapped at once, in all layers together.
    gain: how much more an absent expert must be used than the resident.
    least: how much an absent expert must be used at all.
    decay: what counts are multiplied by after every round of swaps.
    """

    name: ClassVar[str] = "bounded-swaps"
    ties: ClassVar[str] = "lower layer, then lower expert number"
    source: ClassVar[str] = "Niko1221/Strata: src/program/generate.cpp@0083bb7a, adaptive_tier.cpp@00974d25"
    hindsight: ClassVar[bool] = True
    by_budget: ClassVar[bool] = True
    preloaded: ClassVar[bool] = True

    profile_steps: int = 0
    every: int = 4
    swaps: int = 96
    gain: float = 1.5
    least: float = 2.0
    decay: float = 0.7

    def __post_init__(self) -> None:
        for name, least in (("profile_steps", 0), ("every", 1), ("swaps", 0), ("gain", 0), ("least", 0), ("decay", 0)):
            if not least <= (value := getattr(self, name)) < 2**31:
                raise OutOfRange(f"policy bounded-swaps: {name}={value} is not {least} or more")
        if self.decay > 1:
            raise OutOfRange(f"policy bounded-swaps: decay={self.decay} is not in 0..1")

    def schedule(
        self, trace: RoutingTrace, key: NDArray[np.uint32], candidates: Candidates
    ) -> Iterator[tuple[int, NDArray[np.bool_]]]:
        n_experts = [len(counts) for counts in candidates.counts]
        key_row = np.repeat(np.arange(len(n_experts)), n_experts)
        ends = np.append(np.flatnonzero(np.diff(trace.steps)) + 1, trace.calls)[: trace.calls]
        begins = np.append(0, ends)[:-1]
        profile_end = trace.offset[ends[min(self.profile_steps or len(ends), len(ends)) - 1]] if len(ends) else 0
        resident = first_fill(np.bincount(key[:profile_end], minlength=len(key_row)), key_row, candidates)
        yield 0, resident
        wide = np.maximum.reduceat(trace.n_tokens, begins) > MOST_TOKENS if len(ends) else np.zeros(0, np.bool_)
        use = np.zeros(len(key_row))
        windows = zip(begins[~wide].tolist(), ends[~wide].tolist(), strict=True)
        for number, (begin, end) in enumerate(windows, start=1):
            np.add.at(use, key[trace.offset[begin] : trace.offset[end]], 1.0)
            if number % self.every == 0:
                self._swap(resident, use, key_row)
                use *= self.decay
                yield end, resident

    def _swap(self, resident: NDArray[np.bool_], use: NDArray[np.float64], key_row: NDArray[np.int64]) -> None:
        """Exchange residents, bool [keys], for keys used more."""
        found = []
        for keys in np.split(np.arange(len(use)), np.flatnonzero(np.diff(key_row)) + 1):
            absent, there = keys[~resident[keys] & (use[keys] >= self.least)], keys[resident[keys]]
            absent = absent[np.argsort(-use[absent], kind="stable")]
            there = there[np.argsort(use[there], kind="stable")]
            for new, old in zip(absent.tolist(), there.tolist(), strict=False):
                if use[new] < use[old] + self.gain:
                    break
                found.append((use[old] - use[new], new, old))
        for _, new, old in sorted(found)[: self.swaps]:
            resident[new], resident[old] = True, False

    def slots_taken(self, candidates: Candidates, held: NDArray[np.int64]) -> NDArray[np.int64]:
        return held


MOST_TOKENS = 64  # of a window: more are a prompt's batch, which counts nothing


def first_fill(uses: NDArray[np.int64], key_row: NDArray[np.int64], candidates: Candidates) -> NDArray[np.bool_]:
    """The most used keys that fit the budget before the first that does not: bool [keys]."""
    ranked = np.argsort(-uses, kind="stable")
    taken = np.cumsum(np.asarray(candidates.expert_bytes)[key_row[ranked]])
    resident = np.zeros(len(uses), np.bool_)
    resident[ranked[taken <= candidates.budget_bytes]] = True
    return resident
