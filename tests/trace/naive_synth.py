"""Plain twins of the kernels that draw made traces, and of the fit's count of hits."""

from __future__ import annotations

from collections.abc import Sequence

Draws = Sequence[Sequence[Sequence[float]]]


def pick(weight: Sequence[float], free: Sequence[int], fraction: float) -> int | None:
    """One of the free places, in proportion to its weight."""
    total = 0.0
    for place in free:
        total += weight[place]
    possible = [place for place in free if weight[place] > 0]
    left = fraction * total
    for place in possible:
        left -= weight[place]
        if left < 0:
            return place
    return possible[-1] if possible else None


def by_depth(
    edge: Sequence[int],
    upto: Sequence[float],
    tail: int,
    new_first: bool,
    weight: Sequence[float],
    draw: Draws,
    stack: Sequence[int],
) -> tuple[list[list[int]], list[list[int]]]:
    """The experts of every token and their depths, from two lists: those used, most recent first, and the others."""
    used: list[int] = []
    unused = list(stack)
    alike = [1.0] * len(stack)
    experts, depths = [], []
    for token in draw:
        whole = used + unused
        places: list[int] = []

        def free(begin: int, end: int, places: list[int] = places) -> list[int]:
            return [place for place in range(begin, end) if place not in places]

        for band_draw, place_draw in token:
            band = next((number for number, most in enumerate(upto) if band_draw < most), None)
            place = None
            if band is not None:
                place = pick(weight, free(edge[band], min(edge[band + 1], len(used))), place_draw)
            if place is None:
                first = len(used) if new_first and unused else min(len(used), tail)
                place = pick(alike, free(first, len(whole)), place_draw)
            if place is None:
                place = pick(alike, free(0, len(whole)), place_draw)
            assert place is not None
            places.append(place)
        asked = [whole[place] for place in places]
        experts.append(asked)
        depths.append([place if place < len(used) else -1 for place in places])
        used = asked[::-1] + [expert for expert in used if expert not in asked]
        unused = [expert for expert in unused if expert not in asked]
    return experts, depths


def alike(
    weight: Sequence[Sequence[float]],
    stretch: Sequence[int],
    edge: Sequence[int],
    pull: Sequence[float],
    keep: float,
    draw: Draws,
    top_k: int,
) -> tuple[list[list[int]], list[list[int]]]:
    """The experts of every token and their depths: those kept of the last one, then those drawn."""
    experts: list[list[int]] = []
    depths: list[list[int]] = []
    used: list[int] = []  # most recent first
    for (kept_draws, new_draws), number in zip(draw, stretch, strict=True):
        pulled = [each * pull[-1] for each in weight[number]]
        for place, expert in enumerate(used):
            pulled[expert] = weight[number][expert] * pull[sum(place >= end for end in edge)]
        before = experts[-1] if experts else []
        token = [expert for expert, chance in zip(before, kept_draws, strict=False) if chance < keep]
        while len(token) < top_k:
            drawn = pick(
                pulled, [expert for expert in range(len(pulled)) if expert not in token], new_draws[len(token)]
            )
            assert drawn is not None
            token.append(drawn)
        experts.append(token)
        depths.append([used.index(expert) if expert in used else -1 for expert in token])
        used = token[::-1] + [expert for expert in used if expert not in token]
    return experts, depths
