"""Kernels that count over a trace, call by call, and the counts over one layer's calls."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import jit
from flashmoe_sim.trace.routing import LayerView


@jit
def count_requests(offset: Any, expert: Any, last_call: Any, first: Any, union: Any, requests: Any) -> None:
    """Distinct experts of every call of a layer (`union`), and calls that request each expert (`requests`).

    offset: i64 [calls + 1]. expert: i16 [references]. union: i32 [calls]. requests: i64 [experts].
    last_call: i64 [experts], filled with -1. first: i64 [experts], set to the first reference to each that occurs.
    """
    for call in range(len(offset) - 1):
        distinct = 0
        for reference in range(np.uint64(offset[call]), np.uint64(offset[call + 1])):  # unsigned: no test for < 0
            e = expert[reference]
            if last_call[e] != call:
                if last_call[e] < 0:
                    first[e] = reference
                last_call[e] = call
                requests[e] += 1
                distinct += 1
        union[call] = distinct


@jit
def count_reuse(offset: Any, expert: Any, stamp: Any, last_call: Any, requested: Any, histogram: Any, now: int) -> int:
    """Add every repeated request of a layer to the histogram of reuse distances; return the number of first uses.

    The distance of a request is the number of other experts in the layer that were used more recently when its call
    begins; the experts of one call are ordered by their first reference. If residency is looked up for a whole call, an
    LRU bank of C slots holds exactly the requests with distance < C.

    offset: i64 [calls + 1]. expert: i16 [references]. stamp, last_call: i64 [experts], filled with -1; requested: i16
    [experts], scratch. histogram: i64 [experts].
    now: the layer's requests before these calls; if there are any, `stamp` is as they left it.
    """
    first_uses = 0
    for call in range(len(offset) - 1):
        distinct = 0
        for reference in range(offset[call], offset[call + 1]):
            e = expert[reference]
            if last_call[e] != call:
                last_call[e] = call
                requested[distinct] = e
                distinct += 1
        for place in range(distinct):
            mine = stamp[requested[place]]
            if mine < 0:
                first_uses += 1
                continue
            newer = 0
            for other in range(len(stamp)):
                newer += stamp[other] > mine
            histogram[newer] += 1
        for place in range(distinct):
            stamp[requested[place]] = now + place
        now += distinct
    return first_uses


@jit
def count_overlap(
    offset: Any, n_tokens: Any, expert: Any, last_token: Any, state: Any, repeats: Any
) -> tuple[int, int]:
    """Count distinct experts of a layer's tokens that the layer's previous token also used, and how many were compared.

    A call with unknown tokens is skipped, and the token after it has no previous one. A call without tokens changes
    nothing.
    offset: i64 [calls + 1]. n_tokens: i32 [calls]. expert: i16 [references].
    last_token: i64 [experts], filled with -1. state: i64 [2], zeros: tokens so far, and whether the next token follows
    one; both carry over to the layer's next calls. repeats: i32 [calls], to which the references of each call are added
    that name an expert again within one token.
    """
    shared, compared, token = 0, 0, state[0]
    follows = state[1] != 0
    for call in range(len(offset) - 1):
        length, tokens = offset[call + 1] - offset[call], n_tokens[call]
        if length == 0:
            continue
        if tokens < 1 or length % tokens != 0:
            follows = False
            continue
        width = length // tokens
        for number in range(tokens):
            token += 1
            begin = offset[call] + number * width
            for reference in range(begin, begin + width):
                e = expert[reference]
                if last_token[e] == token:
                    repeats[call] += 1
                    continue
                if follows:
                    compared += 1
                    shared += last_token[e] == token - 1
                last_token[e] = token
            follows = True
    state[0], state[1] = token, follows
    return shared, compared


@jit
def count_aliased(offset: Any, expert: Any, slot: Any, seen: Any, taken: Any, aliased: Any) -> None:
    """Per call, the distinct experts whose slot already belongs to another distinct expert of the same call.

    offset: i64 [calls + 1]. expert, slot: i16 [references]. aliased: i32 [calls], zeros.
    seen: i64 [experts], taken: i64 [slots], both filled with -1. Negative slots belong to nobody.
    """
    for call in range(len(offset) - 1):
        for reference in range(offset[call], offset[call + 1]):
            e, s = expert[reference], slot[reference]
            if seen[e] == call:
                continue
            seen[e] = call
            if s < 0:
                continue
            if taken[s] == call:
                aliased[call] += 1
            taken[s] = call


class LayerCounts:
    """The counts of one layer after some of its calls.

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
        earlier = int(self.requests.sum())
        union, repeats = np.zeros((2, len(view.call)), np.int32)
        scratch = np.zeros(self.n_experts, np.int16)
        count_requests(view.offset, view.expert, fresh(self.n_experts), fresh(self.n_experts), union, self.requests)
        self.unions += np.bincount(union, minlength=self.n_experts + 1)
        self.first_uses += int(
            count_reuse(view.offset, view.expert, self._stamp, fresh(self.n_experts), scratch, self.reuse, earlier)
        )
        shared, compared = count_overlap(view.offset, n_tokens, view.expert, self._last_token, self._token, repeats)
        self.shared, self.compared = self.shared + int(shared), self.compared + int(compared)
        self.calls, self.refs = self.calls + len(view.call), self.refs + len(view.expert)
        self.tokens += int(n_tokens.sum(dtype=np.int64))


def fresh(size: int) -> NDArray[np.int64]:
    """What the counting kernels expect before they have seen anything, i64 [size]."""
    return np.full(size, -1, dtype=np.int64)
