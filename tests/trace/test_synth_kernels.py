"""The kernels that draw made traces: by hand, and against their plain twins."""

from __future__ import annotations

import numpy as np
import pytest

from flashmoe_sim.trace.synth_kernels import Bands, depths_of, draw_alike, draw_by_depth
from tests.trace import naive_synth as naive


def by_depth(edge, upto, tail, new_first, weight, draw, stack):  # type: ignore[no-untyped-def]
    expert, depth = np.full((2, *draw.shape[:2]), -9, np.int16)
    draw_by_depth(Bands(edge, upto, tail, new_first, weight), draw, stack.copy(), expert, depth)
    return expert.tolist(), depth.tolist()


def test_by_depth_by_hand() -> None:
    # Experts 3 1 0 2 in the order of nothing known; bands 0..1 (half of the probability) and 2..3 (a quarter).
    edge, upto = np.array([0, 2, 4]), np.array([0.5, 0.75])
    draw = np.array(
        [
            [[0.1, 0.0], [0.9, 0.9]],  # none used, so the tail: of all four the first, 3; of 1 0 2 the last, 2
            [[0.6, 0.9], [0.4, 0.6]],  # used: 2 3. No place 2 yet, so new: of 1 0 the second, 0. Place 1: 3
            [[0.6, 0.0], [0.6, 0.0]],  # used: 3 0 2. Place 2: 2. The band is empty then, so new: 1
            [[0.0, 0.0], [0.0, 0.0]],  # used: 1 2 3 0. Place 0: 1; of what is left of the band, 2
            [[0.8, 0.4], [0.8, 0.4]],  # used: 2 1 3 0. The tail, nothing new: from place 3 on 0, then of all the second
        ]
    )
    stack = np.array([3, 1, 0, 2], np.int16)
    expert, depth = by_depth(edge, upto, 3, True, np.ones(4), draw, stack)
    assert expert == [[3, 2], [0, 3], [2, 1], [1, 2], [0, 1]]
    assert depth == [[-1, -1], [-1, 1], [2, -1], [0, 1], [3, 1]]


@pytest.mark.parametrize("seed", range(60))
def test_the_twin_by_depth(seed: int) -> None:
    rng = np.random.default_rng(seed)
    experts = int(rng.integers(1, 24))
    top_k = int(rng.integers(1, min(experts, 8) + 1))
    inner = np.sort(rng.integers(1, experts + 1, rng.integers(0, 4)))
    edge = np.unique(np.concatenate([[0], inner, [rng.integers(1, experts + 1)]]))
    upto = np.sort(rng.random(len(edge) - 1)) * rng.choice([0.5, 0.95, 1.0])
    arguments = (
        edge,
        upto,
        int(rng.integers(0, experts)),
        bool(rng.integers(2)),
        1.0 / (np.arange(experts) + top_k),
        rng.random((40, top_k, 2)),
        rng.permutation(experts).astype(np.int16),
    )
    plain = [part.tolist() if isinstance(part, np.ndarray) else part for part in arguments]
    assert by_depth(*arguments) == naive.by_depth(*plain)


def test_alike_by_hand() -> None:
    draw = np.array(
        [
            [[0.0, 0.0], [0.0, 0.99]],  # the first token keeps nothing: expert 0, and the last that has weight
            [[0.6, 0.4], [0.9, 0.3]],  # 2 is kept and comes first; of 0 and 1, at 0.3 of a weight of 4, expert 1
        ]
    )
    expert, depth = np.zeros((2, 2, 2), np.int16)
    of_one = np.array([[1.0, 3.0, 4.0, 0.0]]), np.zeros(2, np.int64), np.empty(0, np.int64), np.ones(1)
    draw_alike(*of_one, 0.5, draw, expert, depth)
    assert expert.tolist() == [[0, 2], [2, 1]]
    assert depth.tolist() == [[-1, -1], [0, -1]]


def test_recency_by_hand() -> None:
    """Of 0 and 1, weight 4 and 2, the one used last counts a quarter: 1 to 2. In the second stretch 0 has no weight."""
    weight, draw = np.array([[4.0, 2.0], [0.0, 2.0]]), np.array([[[0.9], [0.1]], [[0.9], [0.4]], [[0.9], [0.1]]])
    expert, depth = np.zeros((2, 3, 1), np.int16)
    stretch, edge, pull = np.array([0, 0, 1]), np.array([1]), np.array([0.25, 1.0])
    draw_alike(weight, stretch, edge, pull, 0.0, draw, expert, depth)
    assert expert[:, 0].tolist() == [0, 1, 1]
    assert depth[:, 0].tolist() == [-1, -1, 0]


@pytest.mark.parametrize("seed", range(40))
def test_the_twin_alike(seed: int) -> None:
    rng = np.random.default_rng(seed)
    experts = int(rng.integers(1, 24))
    top_k = int(rng.integers(1, min(experts, 8) + 1))
    weight = rng.random((3, experts)) ** 3
    weight[:, rng.permutation(experts)[top_k:][::2]] = 0
    keep, draw = float(rng.choice([0, rng.random(), 1])), rng.random((50, 2, top_k))
    stretch, edge = np.sort(rng.integers(0, 3, 50)), np.sort(rng.integers(0, experts + 1, rng.integers(0, 4)))
    pull = rng.random(len(edge) + 1) + 0.01
    expert, depth = np.zeros((2, 50, top_k), np.int16)
    draw_alike(weight, stretch, edge, pull, keep, draw, expert, depth)
    plain = (part.tolist() for part in (weight, stretch, edge, pull))
    assert (expert.tolist(), depth.tolist()) == naive.alike(*plain, keep, draw.tolist(), top_k)
    measured = np.zeros_like(depth)
    depths_of(expert, experts, measured)
    assert (measured == depth).all()
