"""Decode speed of systems from an empty to a full context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import Replays, at_setting

SHARES = (0, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1)  # of the context


def by_depth(
    workload: Workload,
    case: Case,
    systems: Sequence[System],
    *,
    borrowed: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """schema.BY_DEPTH: rows of each system, in order of the depth.

    The room for the context is the same at every depth, so only what attention reads changes. Empty if the case has no
    context, or what attention of its model reads is not known.
    """
    if not case.context or case.model.attention is None:
        return []
    depths = sorted({round(share * case.context) for share in SHARES})
    rows, replays = [], Replays()
    for number, system in enumerate(systems):
        for place, depth in enumerate(depths):
            if progress is not None:
                progress(number * len(depths) + place, len(systems) * len(depths))
            one = at_setting(workload, replace(case, depth=depth), system, borrowed=borrowed, replays=replays)
            speed = {"tok_s": one.tok_s, "tok_s_lo": one.tok_s_lo, "tok_s_hi": one.tok_s_hi}
            rows.append({"setting": system.spec, "depth": depth} | speed)
    return rows
