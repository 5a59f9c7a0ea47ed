"""Kernels that count over a trace, call by call."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import jit


@jit
def count_requests(
    offset: NDArray[np.int64],
    expert: NDArray[np.int16],
    last_call: NDArray[np.int64],
    first: NDArray[np.int64],
    union: NDArray[np.int32],
    requests: NDArray[np.int64],
) -> None:
    """Distinct experts of every call of a layer (`union`), and calls that request each expert (`requests`).

    last_call: i64 [experts], filled with -1.
    first: i64 [experts], set to the first reference to each expert that occurs.
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
def count_reuse(
    offset: NDArray[np.int64],
    expert: NDArray[np.int16],
    stamp: NDArray[np.int64],
    last_call: NDArray[np.int64],
    requested: NDArray[np.int16],
    histogram: NDArray[np.int64],
    now: int,
) -> int:
    """Add every repeated request of a layer to the histogram of reuse distances; return the number of first uses.

    The distance of a request is the number of other experts in the layer that were used more recently when its call
    begins; the experts of one call are ordered by their first reference. If residency is looked up for a whole call, an
    LRU bank of C slots holds exactly the requests with distance < C.

    stamp, last_call: i64 [experts], filled with -1; requested: i16 [experts], scratch. histogram: i64 [experts].
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
    offset: NDArray[np.int64],
    n_tokens: NDArray[np.int32],
    expert: NDArray[np.int16],
    last_token: NDArray[np.int64],
    state: NDArray[np.int64],
) -> tuple[int, int]:
    """Count distinct experts of a layer's tokens that the layer's previous token also used, and how many were compared.

    A call with unknown tokens is skipped, and the token after it has no previous one. A call without tokens changes
    nothing.
    last_token: i64 [experts], filled with -1. state: i64 [2], zeros: tokens so far, and whether the next token follows
    one; both carry over to the layer's next calls.
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
                    continue
                if follows:
                    compared += 1
                    shared += last_token[e] == token - 1
                last_token[e] = token
            follows = True
    state[0], state[1] = token, follows
    return shared, compared


@jit
def count_aliased(
    offset: NDArray[np.int64],
    expert: NDArray[np.int16],
    slot: NDArray[np.int16],
    seen: NDArray[np.int64],
    taken: NDArray[np.int64],
    aliased: NDArray[np.int32],
) -> None:
    """Per call, the distinct experts whose slot already belongs to another distinct expert of the same call.

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


@jit
def count_repeats(
    offset: NDArray[np.int64],
    n_tokens: NDArray[np.int32],
    expert: NDArray[np.int16],
    last_token: NDArray[np.int64],
    repeats: NDArray[np.int32],
) -> None:
    """Per call, the references that name an expert again within one token; calls with unknown tokens are skipped.

    last_token: i64 [experts], filled with -1.
    """
    token = 0
    for call in range(len(offset) - 1):
        length, tokens = offset[call + 1] - offset[call], n_tokens[call]
        if tokens < 1 or length % tokens != 0:
            continue
        width = length // tokens
        for number in range(tokens):
            token += 1
            begin = offset[call] + number * width
            for reference in range(begin, begin + width):
                e = expert[reference]
                repeats[call] += last_token[e] == token
                last_token[e] = token
