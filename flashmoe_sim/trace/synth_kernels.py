"""Kernels that draw the experts of one layer, token by token, from given random fractions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import allocating, inlined


@inlined
def _pick(weight: Any, taken: Any, begin: int, end: int, fraction: float) -> int:
    """Draw one of the places begin..end-1 that are not taken, by weight; -1 if there is none."""
    total = 0.0
    for place in range(begin, end):
        if not taken[place]:
            total += weight[place]
    left = fraction * total
    picked = -1
    for place in range(begin, end):
        if not taken[place] and weight[place] > 0.0:
            picked = place
            left -= weight[place]
            if left < 0.0:
                break
    return picked


class Bands(NamedTuple):
    """Bands of places in a list of experts ordered by last use, and the tail beyond them.

    edge: i64 [bands + 1], where each band begins, and the end. upto: f64 [bands], cumulative probabilities of the
    bands; the rest is the tail's. A band has only the places of experts used before, drawn by `weight`, f64 [experts];
    if it has none left, the tail is used instead: with equal probability, the experts not used before and, unless
    new_first, those at place `tail` and beyond. If no expert is new any more, new_first makes no difference.
    """

    edge: NDArray[np.int64]
    upto: NDArray[np.float64]
    tail: int
    new_first: bool
    weight: NDArray[np.float64]


@allocating
def draw_by_depth(bands: Any, draw: Any, stack: Any, expert: Any, depth: Any) -> None:
    """Draw every token's experts by their place in the list ordered by last use, as it was before the token.

    draw: f64 [tokens, top_k, 2], which band and which place. stack: i16 [experts], the list, at first unused experts in
    random order; updated.
    expert: i16 [tokens, top_k]. depth: i16 [tokens, top_k], the place of each, -1 for a first use.
    """
    edge, upto, tail, new_first, weight = bands
    experts, top_k = len(stack), expert.shape[1]
    alike = np.ones(experts, np.float64)
    taken = np.zeros(experts, np.bool_)
    held = 0
    for token in range(len(draw)):
        new = deepest = 0
        for rank in range(top_k):
            band = 0
            while band < len(upto) and draw[token, rank, 0] >= upto[band]:
                band += 1
            fraction = draw[token, rank, 1]
            place = -1
            if band < len(upto):
                place = _pick(weight, taken, edge[band], min(edge[band + 1], held), fraction)
            if place < 0:
                begin = held if new_first and held < experts else min(held, tail)
                place = _pick(alike, taken, begin, experts, fraction)
            if place < 0:
                place = _pick(alike, taken, 0, experts, fraction)
            taken[place] = True
            expert[token, rank] = stack[place]
            depth[token, rank] = place if place < held else -1
            new += place >= held
            deepest = max(deepest, place)
        at = deepest
        for place in range(deepest, -1, -1):
            if taken[place]:
                taken[place] = False
            else:
                stack[at] = stack[place]
                at -= 1
        for rank in range(top_k):
            stack[top_k - 1 - rank] = expert[token, rank]
        held += new


@allocating
def draw_alike(
    weight: Any, stretch: Any, edge: Any, pull: Any, keep: float, draw: Any, expert: Any, depth: Any
) -> None:
    """Draw every token's experts: each of the last token's with probability `keep`, the rest by weight and last use.

    weight: f64 [stretches, experts], in each at least top_k above 0. stretch: i64 [tokens], which a token is in.
    edge: i64 [bands - 1], where bands of places in the list ordered by last use end; the last band has the places
    beyond, and the experts not used before. pull: f64 [bands], by which the weight of an expert there is multiplied.
    draw: f64 [tokens, 2, top_k], which experts are kept and which are drawn. expert: i16 [tokens, top_k], the kept ones
    first. depth: i16 [tokens, top_k], the place of each in the list before the token, -1 for a first use.
    """
    experts, top_k = weight.shape[1], expert.shape[1]
    pulled, upto = np.empty(experts, np.float64), np.zeros(experts + 1, np.float64)
    stack, place = np.empty(experts, np.int64), np.full(experts, -1, np.int64)
    used = 0
    held = np.empty(top_k, np.int64)  # the token's experts so far, ascending
    for token in range(len(draw)):
        row = weight[stretch[token]]
        if token == 0 or stretch[token] != stretch[token - 1]:
            for i in range(experts):
                pulled[i] = row[i] * pull[-1]
            _pull(row, edge, pull, stack, 0, used, pulled)
        else:  # the last token's experts are in front, and every other is at most top_k places further back
            _pull(row, edge, pull, stack, 0, min(top_k, used), pulled)
            for band in range(len(edge)):
                _pull(row, edge, pull, stack, edge[band], min(edge[band] + top_k, used), pulled)
        total = 0.0
        for i in range(experts):
            total += pulled[i]
            upto[i + 1] = total
        n = 0
        if token > 0:
            for rank in range(top_k):
                if draw[token, 0, rank] < keep:
                    expert[token, n] = expert[token - 1, rank]
                    _insert(held, n, expert[token, n])
                    n += 1
        for rank in range(n, top_k):
            expert[token, rank] = _pick_besides(pulled, upto, held[:rank], draw[token, 1, rank])
            _insert(held, rank, expert[token, rank])
        used = _to_the_front(stack, place, used, expert[token], depth[token])


@inlined
def _pull(row: Any, edge: Any, pull: Any, stack: Any, begin: int, end: int, pulled: Any) -> None:
    """Set the pulled weights of the experts at places begin..end-1 of the list."""
    band = 0
    for at in range(begin, end):
        while band < len(edge) and at >= edge[band]:
            band += 1
        pulled[stack[at]] = row[stack[at]] * pull[band]


@allocating
def depths_of(expert: Any, experts: int, depth: Any) -> None:
    """The place of every token's experts in the list ordered by last use, before the token; -1 for a first use.

    expert: i16 [tokens, top_k], distinct in each token. depth: i16 [tokens, top_k].
    """
    stack, place = np.empty(experts, np.int64), np.full(experts, -1, np.int64)
    used = 0
    for token in range(len(expert)):
        used = _to_the_front(stack, place, used, expert[token], depth[token])


@inlined
def _to_the_front(stack: Any, place: Any, used: int, expert: Any, depth: Any) -> int:
    """Write the places of a token's experts, and move them to the front of the list, the last one first.

    stack: i64 [experts], the first `used` of them the list. place: i64 [experts], where each is; -1 if it is not there.
    Returns how many are used.
    """
    deepest, new = -1, 0
    for rank in range(len(expert)):
        depth[rank] = place[expert[rank]]
        deepest = max(deepest, place[expert[rank]])
        new += place[expert[rank]] < 0
        place[expert[rank]] = -2
    begin = used - 1 if new > 0 else deepest
    at = begin + new
    for before in range(begin, -1, -1):
        if place[stack[before]] >= 0:
            stack[at] = stack[before]
            place[stack[at]] = at
            at -= 1
    for rank in range(len(expert)):
        stack[len(expert) - 1 - rank] = expert[rank]
        place[expert[rank]] = len(expert) - 1 - rank
    return used + new


@inlined
def _insert(held: Any, n: int, place: int) -> None:
    """Insert a place into the first n of `held`, which ascend."""
    at = n
    while at > 0 and held[at - 1] > place:
        held[at] = held[at - 1]
        at -= 1
    held[at] = place


@inlined
def _pick_besides(weight: Any, upto: Any, held: Any, fraction: float) -> int:
    """Draw one of the places that are not held, by weight. upto: f64 [places + 1], the weights before each place."""
    total = upto[-1]
    for place in held:
        total -= weight[place]
    left = max(fraction * total, 0.0)  # rounding may leave less than nothing beside a few heavy places
    for place in held:
        if upto[place] > left:
            break
        left += weight[place]
    picked: int = np.searchsorted(upto, left, side="right") - 1
    while picked < len(weight) and (weight[picked] == 0.0 or _is_in(held, picked)):  # sums are rounded
        picked += 1
    if picked == len(weight):
        picked -= 1
        while weight[picked] == 0.0 or _is_in(held, picked):
            picked -= 1
    return picked


@inlined
def _is_in(held: Any, picked: int) -> bool:
    found = False
    for place in held:
        found |= place == picked
    return found
