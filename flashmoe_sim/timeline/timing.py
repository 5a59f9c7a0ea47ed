"""What a timeline comes to: speeds, percentiles, and what the time of a token went into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.timeline.names import PARTS, RESOURCES, STALLS
from flashmoe_sim.timeline.run import Timeline
from flashmoe_sim.timeline.work import Work
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, PHASE_UNKNOWN

WARMED_UP = 0.95  # of the cold installs of the run


@dataclass(frozen=True, eq=False)
class Timing:
    """Speeds of one run. A speed is None where no such step passed time, or its tokens are not known.

    Decode steps are those of that phase; all steps where the recording tells no phase of any.

    step: i32 [steps], the number of each step. phase: u8 [steps], of its first call. tokens: i64 [steps], the most that
        any of its calls had. step_s: f64 [steps].
    total_s: seconds of the whole run.
    tok_s: tokens of the decode steps / their seconds. tok_s_p50: the median over decode steps of tokens / seconds.
    warm_up_steps: the first decode steps, up to the one by which 95 % of the run's cold installs are done, at most half
        of them. tok_s_warm_up, tok_s_steady: the speed of these, and of the others.
    step_ms_p50, step_ms_p95, step_ms_p99: of the decode steps, between neighbours in proportion; None without any.
    prompt_tok_s: tokens of the prompt steps / their seconds.
    busy_share: of each resource, over the whole run.
    seconds_per_token: by names.PARTS, over the decode steps; they add up to 1 / tok_s.
    """

    step: NDArray[np.int32]
    phase: NDArray[np.uint8]
    tokens: NDArray[np.int64]
    step_s: NDArray[np.float64]
    total_s: float
    decode_steps: int
    tok_s: float | None
    tok_s_p50: float | None
    warm_up_steps: int
    tok_s_warm_up: float | None
    tok_s_steady: float | None
    step_ms_p50: float | None
    step_ms_p95: float | None
    step_ms_p99: float | None
    prompt_tok_s: float | None
    busy_share: dict[str, float]
    seconds_per_token: dict[str, float] | None

    @property
    def stall_s_per_token(self) -> dict[str, float] | None:
        """Of `seconds_per_token`, those in which the unit that computes waits, by cause."""
        return self.seconds_per_token and {name: self.seconds_per_token[name] for name in STALLS}

    def as_json(self) -> dict[str, Any]:
        """Everything but the arrays of steps."""
        arrays = ("step", "phase", "tokens", "step_s")
        summary = {name: value for name, value in vars(self).items() if name not in arrays}
        return summary | {"stall_s_per_token": self.stall_s_per_token}


def timing(work: Work, timeline: Timeline) -> Timing:
    """Sum up the timeline of this work."""
    first = np.flatnonzero(np.diff(work.step, prepend=-1 if not len(work.step) else work.step[0] - 1))
    last = np.append(first[1:], len(work.step))[: len(first)] - 1
    phase = work.phase[first]
    tokens = np.maximum.reduceat(work.n_tokens, first).astype(np.int64) if len(first) else np.zeros(0, np.int64)
    step_s = np.diff(timeline.end[last], prepend=0.0)
    decode = np.flatnonzero(phase == PHASE_DECODE) if (phase != PHASE_UNKNOWN).any() else np.arange(len(first))
    prompt = np.flatnonzero(phase == PHASE_PROMPT)
    warm_up = _warm_up(np.add.reduceat(work.cold, first) if len(first) else work.cold, decode)
    ms = np.quantile(1000 * step_s[decode], [0.50, 0.95, 0.99]).tolist() if len(decode) else [None] * 3
    timed = decode[(tokens[decode] > 0) & (step_s[decode] > 0)]
    decode_tokens = int(tokens[decode].sum())
    parts = np.add.reduceat(timeline.parts, first, axis=0)[decode].sum(axis=0) if len(first) else []
    total_s = timeline.total_s
    return Timing(
        step=work.step[first],
        phase=phase,
        tokens=tokens,
        step_s=step_s,
        total_s=total_s,
        decode_steps=len(decode),
        tok_s=_speed(tokens, step_s, decode),
        tok_s_p50=float(np.median(tokens[timed] / step_s[timed])) if len(timed) else None,
        warm_up_steps=warm_up,
        tok_s_warm_up=_speed(tokens, step_s, decode[:warm_up]),
        tok_s_steady=_speed(tokens, step_s, decode[warm_up:]),
        step_ms_p50=ms[0],
        step_ms_p95=ms[1],
        step_ms_p99=ms[2],
        prompt_tok_s=_speed(tokens, step_s, prompt),
        busy_share={
            name: float(busy) / total_s if total_s else 0.0 for name, busy in zip(RESOURCES, timeline.busy, strict=True)
        },
        seconds_per_token={name: float(part) / decode_tokens for name, part in zip(PARTS, parts, strict=True)}
        if decode_tokens
        else None,
    )


def _speed(tokens: NDArray[np.int64], step_s: NDArray[np.float64], steps: NDArray[np.intp]) -> float | None:
    done, seconds = int(tokens[steps].sum()), float(step_s[steps].sum())
    return done / seconds if done and seconds else None


def _warm_up(cold: NDArray[np.int32], decode: NDArray[np.intp]) -> int:
    """How many decode steps the warm-up takes; cold: cold installs of each step, prompts included."""
    so_far = np.cumsum(cold)
    if not len(cold) or not so_far[-1]:
        return 0
    warmed_up = int(np.searchsorted(so_far, WARMED_UP * so_far[-1]))
    return min(int(np.searchsorted(decode, warmed_up, side="right")), len(decode) // 2)
