"""What a timeline means for a person: tokens a second, how long steps take, and what they wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.timeline.names import PARTS, RESOURCES
from flashmoe_sim.timeline.run import Timeline
from flashmoe_sim.timeline.work import Work
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT

COLD_SHARE = 0.95


@dataclass(frozen=True, eq=False)
class Timing:
    """Speed and its causes; of the decoded steps, or of all where no phase is known.

    tok_s: tokens a second. warm_up_tok_s, steady_tok_s: of the first steps, up to that by which 95 % of all installs
    into empty slots are done but at most half of them, and of the rest; None where there are none.
    step_ms_p50, step_ms_p95, step_ms_p99: quantiles of a step. prompt_tok_s: None where the trace has no prompt.
    busy_share: of each of names.RESOURCES, of the whole run. part_ms_per_token: of each of names.PARTS.
    step_s: f64 [steps], seconds of every step; decode_step_s: of those that the speed is of.
    """

    tok_s: float
    warm_up_tok_s: float | None
    steady_tok_s: float | None
    step_ms_p50: float
    step_ms_p95: float
    step_ms_p99: float
    prompt_tok_s: float | None
    busy_share: dict[str, float]
    part_ms_per_token: dict[str, float]
    total_s: float
    step_s: NDArray[np.float64]
    decode_step_s: NDArray[np.float64]

    @property
    def tok_s_p50(self) -> float:
        """Tokens a second at the median step, if all were like it."""
        return self.tok_s * float(self.decode_step_s.mean()) * 1e3 / self.step_ms_p50 if self.step_ms_p50 else np.inf

    def as_json(self) -> dict[str, Any]:
        return {
            "tok_s": self.tok_s,
            "tok_s_p50": self.tok_s_p50,
            "ms_per_token": 1e3 / self.tok_s,
            "warm_up_tok_s": self.warm_up_tok_s,
            "steady_tok_s": self.steady_tok_s,
            "prompt_tok_s": self.prompt_tok_s,
            "step_ms": {"p50": self.step_ms_p50, "p95": self.step_ms_p95, "p99": self.step_ms_p99},
            "ms_per_token_by_part": self.part_ms_per_token,
            "busy_share": self.busy_share,
            "total_s": self.total_s,
        }


def timing_of(timeline: Timeline, work: Work) -> Timing:
    """Read speed and causes off a timeline."""
    _, first, step = np.unique(work.step, return_index=True, return_inverse=True)
    steps = len(first)
    wall = np.diff(timeline.end, prepend=0.0)
    step_s = np.bincount(step, wall, steps).astype(np.float64)
    tokens = np.maximum.reduceat(work.n_tokens, first).astype(np.float64)
    phase = work.phase[first]
    decoded = phase == PHASE_DECODE
    if not decoded.any():
        decoded = np.ones(steps, np.bool_)
    cold = np.cumsum(np.bincount(step, work.cold, steps))
    warm_up = decoded & (cold - np.bincount(step, work.cold, steps) < COLD_SHARE * cold[-1])
    warm_up &= np.cumsum(decoded) <= decoded.sum() // 2
    prompt = phase == PHASE_PROMPT
    of_decoded = decoded[step]
    decode_tokens = tokens[decoded].sum()
    p50, p95, p99 = (float(q) * 1e3 for q in np.quantile(step_s[decoded], [0.5, 0.95, 0.99]))
    parts = timeline.parts[of_decoded].sum(axis=0) / max(decode_tokens, 1)

    def speed(which: NDArray[np.bool_]) -> float | None:
        return float(tokens[which].sum() / seconds) if (seconds := step_s[which].sum()) else None

    return Timing(
        tok_s=speed(decoded) or np.inf,
        warm_up_tok_s=speed(warm_up),
        steady_tok_s=speed(decoded & ~warm_up),
        step_ms_p50=p50,
        step_ms_p95=p95,
        step_ms_p99=p99,
        prompt_tok_s=speed(prompt),
        busy_share={name: float(busy / timeline.total_s) for name, busy in zip(RESOURCES, timeline.busy, strict=True)},
        part_ms_per_token={name: float(part) * 1e3 for name, part in zip(PARTS, parts, strict=True)},
        total_s=timeline.total_s,
        step_s=step_s,
        decode_step_s=step_s[decoded],
    )
