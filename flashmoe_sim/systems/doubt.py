"""How unlike a trace the text of a user may be: draws of how much longer its misses take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from flashmoe_sim.machines.belief import DRAWS, Draws, errors, moved, normals
from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.trace.bundled import catalog


class OtherText:
    """How much longer misses take on another text than on this trace.

    waits: what a token waits for because of misses. made: whether the trace was made from another model's. profiled:
    whether experts were chosen by a profile of the first half of the trace, which is of the same text as the second
    one. A recorded trace that is not bundled is the user's own text.
    `reports/field/errors.py` measures on bundled traces and their parts how widely the odds of a hit spread.
    """

    def __init__(
        self, workload: Workload, waits: Sequence[str], *, made: bool, profiled: bool, hit_rate: float
    ) -> None:
        self.waits, known = waits, errors()["hits"]
        self.times = np.ones(DRAWS)
        if not (made or workload.trace.name in catalog()) or not 0 < hit_rate < 1:
            return
        odds = known["text_sd"] * normals("text")
        if made:
            odds = odds + known["made_sd"] * normals("made")
        if profiled:
            shared = estimate("text.shared").value
            odds = shared * odds + moved(normals("profile"), known["profile_lo"], known["profile_hi"])
        hits = 1 / (1 + np.exp(-(math.log(hit_rate / (1 - hit_rate)) + odds)))
        self.times = (1 - hits) / (1 - hit_rate)

    def draws(self, parts: Mapping[str, float]) -> Draws:
        """The logarithm of a speed on the other text over the one with these seconds by part: f64 [512]."""
        return _slower(parts, self.waits, self.times)


def prompt_doubt(parts: Mapping[str, float], *, made: bool) -> Draws:
    """Likewise of a prompt that is made of decoded tokens, which use fewer experts than a real one."""
    misses = estimate("text.prompt_misses")
    few, many = (misses.lo, misses.hi) if made else (1.0, 1.0)
    return _slower(parts, ("read", "upload", "cpu"), np.exp(moved(normals("prompt"), math.log(few), math.log(many))))


def _slower(parts: Mapping[str, float], waits: Sequence[str], misses: Draws) -> Draws:
    """Draws of the logarithm of a speed if there are so many times as many misses."""
    waited = sum(parts[group] for group in waits)
    total = sum(parts.values())
    return -np.log((total - waited + waited * misses) / total) if total else np.zeros_like(misses)
