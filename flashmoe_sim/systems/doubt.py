"""How unlike a trace the text of a user may be: draws of how much longer its misses take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from flashmoe_sim.machines.belief import Draws, errors, moved, normals
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.trace.bundled import catalog

# The experts used by a micro-batch of a recorded prompt over those used by one of decoded tokens of the same trace: 90
# % of the cases in the bundled traces with both, of 4 to 128 tokens, with equal weight for each trace.
# The middle is 1.4.
MADE_MISSES = (1.0, 2.4)
SHARED = math.sqrt(0.5)  # of how unlike a text is: what recency and profiles have in common


def text_doubt(
    workload: Workload,
    parts: Mapping[str, float],
    waits: Sequence[str],
    *,
    made: bool,
    profiled: bool,
    hit_rate: float,
) -> Draws:
    """Draws of the logarithm of a speed on another text over the speed on this trace: f64 [512].

    parts: seconds by what a token waits for. waits: of these, what lasts as long as there are misses. made: whether the
    trace was made from another model's. profiled: whether experts were chosen by a profile of the first half of the
    trace, which is of the same text as the second one. A recorded trace that is not bundled is the user's own text.
    The odds of a hit differ as those of bundled traces and their parts do, see `python -m reports.errors`.
    """
    known = errors()["hits"]
    others = made or workload.trace.name in catalog()
    if not others or not 0 < hit_rate < 1:
        return np.zeros_like(normals("text"))
    odds = known["text_sd"] * normals("text")
    if made:
        odds = odds + known["made_sd"] * normals("made")
    if profiled:
        own = moved("profile", known["profile_lo"], known["profile_hi"])
        odds = SHARED * odds + own
    hits = 1 / (1 + np.exp(-(math.log(hit_rate / (1 - hit_rate)) + odds)))
    return _slower(parts, waits, (1 - hits) / (1 - hit_rate))


def prompt_doubt(parts: Mapping[str, float], *, made: bool) -> Draws:
    """Likewise of a prompt that is made of decoded tokens, which use fewer experts than a real one."""
    few, many = MADE_MISSES if made else (1.0, 1.0)
    return _slower(parts, ("read", "upload", "cpu"), np.exp(moved("prompt", math.log(few), math.log(many))))


def _slower(parts: Mapping[str, float], waits: Sequence[str], misses: Draws) -> Draws:
    """Draws of the logarithm of a speed if there are so many times as many misses."""
    waited = sum(parts[group] for group in waits)
    total = sum(parts.values())
    return -np.log((total - waited + waited * misses) / total) if total else np.zeros_like(misses)
