"""The most likely experts of a table of scores."""

from __future__ import annotations

from typing import Any

from flashmoe_sim._jit import jit


@jit
def take_best(score: Any, width: int, out: Any, at: int) -> int:
    """Write the experts with the `width` largest scores above 0 to `out` from `at` on, the best first; where to go on.

    score: i64 [experts], those taken are set to 0. Equal scores: the lower expert number.
    """
    for _ in range(width):
        best = 0
        for expert in range(len(score)):
            best = max(best, score[expert])
        if best == 0:
            break
        expert = 0
        while score[expert] != best:
            expert += 1
        score[expert] = 0
        out[at] = expert
        at += 1
    return at
