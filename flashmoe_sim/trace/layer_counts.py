"""Counts over one layer's calls, added a part of the trace at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.trace.counting import count_overlap, count_requests, count_reuse
from flashmoe_sim.trace.routing import LayerView


class LayerCounts:
    """One layer after some of its calls.

    unions: i64 [experts + 1], calls by their distinct experts. requests: i64 [experts], calls that request each.
    reuse: i64 [experts], requests by reuse distance, except `first_uses`.
    shared, compared: as counted by `count_overlap`. tokens: of all calls.
    """

    def __init__(self, layer: int, n_experts: int) -> None:
        self.layer, self.n_experts = layer, n_experts
        self.calls = self.refs = self.tokens = self.first_uses = self.shared = self.compared = 0
        self.unions, self.requests, self.reuse = (np.zeros(n_experts + more, np.int64) for more in (1, 0, 0))
        self._stamp, self._last_token, self._token = fresh(n_experts), fresh(n_experts), np.zeros(2, np.int64)

    def add(self, view: LayerView, n_tokens: NDArray[np.int32]) -> None:
        """Add the next calls of the layer. n_tokens: i32 [calls]."""
        earlier, union = int(self.requests.sum()), np.zeros(len(view.call), np.int32)
        scratch = np.zeros(self.n_experts, np.int16)
        count_requests(view.offset, view.expert, fresh(self.n_experts), fresh(self.n_experts), union, self.requests)
        self.unions += np.bincount(union, minlength=self.n_experts + 1)
        self.first_uses += int(
            count_reuse(view.offset, view.expert, self._stamp, fresh(self.n_experts), scratch, self.reuse, earlier)
        )
        shared, compared = count_overlap(view.offset, n_tokens, view.expert, self._last_token, self._token)
        self.shared, self.compared = self.shared + int(shared), self.compared + int(compared)
        self.calls, self.refs = self.calls + len(view.call), self.refs + len(view.expert)
        self.tokens += int(n_tokens.sum(dtype=np.int64))


def fresh(size: int) -> NDArray[np.int64]:
    """What the counting kernels expect before they have seen anything, i64 [size]."""
    return np.full(size, -1, dtype=np.int64)
