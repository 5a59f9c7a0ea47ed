"""Experts pinned before the run: those that a profile trace requests most often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.parameters import Choices
from flashmoe_sim.policies.base import Candidates, ProfiledPolicy


@dataclass(frozen=True)
class Static(ProfiledPolicy):
    """Pin the experts of each layer that a profile requests most, by default the same trace.

    An expert counts once for each routed call that asks for it, under `sequential` too, whose rows count references:
    where calls are wide, other experts might hit more of these.

    profile: empty for the trace itself (hindsight), `first-N` for its first N steps, or the file or bundled name of
        another trace with the same layers and experts. Its path has no ':' or ','. The whole trace is replayed in any
        case, and experts that the profile never requests are not pinned.
    ties_by: for equal counts, `id` prefers the lower expert number, `first-seen` the earlier request (the runtime's
    estimator).
    """

    name: ClassVar[str] = "static"
    ties: ClassVar[str] = "lower expert number, or by first request"
    source: ClassVar[str] = "the patched runtime's cache estimator, uniform per-layer bank"
    choices: ClassVar[Choices] = {"ties_by": ("id", "first-seen")}
    hindsight: ClassVar[bool] = True
    textbook: ClassVar[str] = "most-requested"

    ties_by: str = "id"

    def pinned(self, candidates: Candidates) -> list[NDArray[np.bool_]]:
        masks = []
        for count, seen, slots in zip(candidates.counts, candidates.first_seen, candidates.slots, strict=True):
            mask = np.zeros(len(count), np.bool_)
            mask[self.order(count, seen)[:slots]] = True
            masks.append(mask & (count > 0))
        return masks

    def order(self, count: NDArray[np.int64], first_seen: NDArray[np.int64]) -> NDArray[np.int64]:
        """The experts of a layer in the order of pinning, i64 [experts]."""
        return np.lexsort((first_seen if self.ties_by == "first-seen" else np.arange(len(count)), -count))


@dataclass(frozen=True)
class StaticGlobal(ProfiledPolicy):
    """Pin the experts with the most requests per byte over all layers, up to the budget.

    profile: as for `static`.
    """

    name: ClassVar[str] = "static:global"
    ties: ClassVar[str] = "larger count, smaller bytes, larger layer, larger expert number"
    source: ClassVar[str] = "the patched runtime's cache estimator, global bank under a byte budget"
    hindsight: ClassVar[bool] = True
    pooled: ClassVar[bool] = True
    by_budget: ClassVar[bool] = True

    def pinned(self, candidates: Candidates) -> list[NDArray[np.bool_]]:
        counts, sizes = candidates.counts, candidates.expert_bytes
        order = sorted(
            (
                (int(count) / size, int(count), -size, row, expert)
                for row, (layer_counts, size) in enumerate(zip(counts, sizes, strict=True))
                for expert, count in enumerate(layer_counts)
                if count
            ),
            reverse=True,
        )
        masks = [np.zeros(len(layer_counts), np.bool_) for layer_counts in counts]
        left = candidates.budget_bytes
        for _, _, _, row, expert in order:
            if sizes[row] <= left:
                left -= sizes[row]
                masks[row][expert] = True
        return masks
