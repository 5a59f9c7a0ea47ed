"""Experts pinned before the run, chosen by how often a profile trace asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.policies.base import Candidates, PinningPolicy


@dataclass(frozen=True)
class Static(PinningPolicy):
    """Pin the most requested experts of each layer, by hindsight on the same trace; nothing moves."""

    name: ClassVar[str] = "static"
    ties: ClassVar[str] = "lower expert number"
    source: ClassVar[str] = "the patched runtime's cache estimator, uniform per-layer bank"
    hindsight: ClassVar[bool] = True

    def pinned(self, candidates: Candidates) -> list[NDArray[np.bool_]]:
        return [_top(count, slots) for count, slots in zip(candidates.counts, candidates.slots, strict=True)]


@dataclass(frozen=True)
class StaticGlobal(PinningPolicy):
    """Pin the experts with the most requests per byte over all layers, as many as the budget holds."""

    name: ClassVar[str] = "static:global"
    ties: ClassVar[str] = "larger count, smaller bytes, larger layer, larger expert number"
    source: ClassVar[str] = "the patched runtime's cache estimator, global bank under a byte budget"
    hindsight: ClassVar[bool] = True

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


def _top(count: NDArray[np.int64], slots: int) -> NDArray[np.bool_]:
    mask = np.zeros(len(count), np.bool_)
    best: Sequence[int] = np.lexsort((np.arange(len(count)), -count))[:slots].tolist()
    mask[best] = True
    return mask & (count > 0)
