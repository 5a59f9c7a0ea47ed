"""A timeline's summary for people: tokens a second, how sure they are, how long steps take, and what they wait for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.machines.anchors import SPEED_SD
from flashmoe_sim.machines.belief import (
    ANY_ENGINE,
    DRAWS,
    Draws,
    Whose,
    drawn,
    error_draws,
    moved,
    normals,
    unknown,
)
from flashmoe_sim.machines.machine import SIZES, Machine
from flashmoe_sim.timeline.names import PARTS, RESOURCES, STALLS
from flashmoe_sim.timeline.run import Timeline
from flashmoe_sim.timeline.work import Kinds, Work
from flashmoe_sim.trace.calls import run_starts
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, PHASE_UNKNOWN

COLD_SHARE = 0.95


@dataclass(frozen=True, eq=False)
class Timing:
    """Speed and its causes, over the decoded steps, or all steps if no phase is known.

    step: i32 [steps], the number of each step. phase: u8 [steps], of its first call. tokens: i64 [steps], of text, the
        most of any of its calls. step_s: f64 [steps]. decode: i64, the places of the decoded steps; decode_step_s: f64,
        their seconds.
    tok_s: tokens of text a second; like every speed, over the steps whose tokens are known; None if there are none, or
        they take no time. tok_s_p50: the median of these steps' tokens a second.
    warm_up_steps: the number of first steps in which 95% of all installs into empty slots are done, but at most half
        of all steps. warm_up_tok_s, steady_tok_s: the speed of these steps and of the rest.
    step_ms_p50, step_ms_p95, step_ms_p99: quantiles of a step's time, interpolated linearly; None without steps.
    prompt_tok_s: tokens a second of the prompt.
    busy_share: each resource's busy share of the whole run, by names.RESOURCES.
    part_ms_per_token: by names.PARTS, adding up to 1000 / tok_s; empty if no tokens are known.
    """

    step: NDArray[np.int32]
    phase: NDArray[np.uint8]
    tokens: NDArray[np.int64]
    step_s: NDArray[np.float64]
    decode: NDArray[np.int64]
    decode_step_s: NDArray[np.float64]
    total_s: float
    tok_s: float | None
    tok_s_p50: float | None
    warm_up_steps: int
    warm_up_tok_s: float | None
    steady_tok_s: float | None
    step_ms_p50: float | None
    step_ms_p95: float | None
    step_ms_p99: float | None
    prompt_tok_s: float | None
    busy_share: dict[str, float]
    part_ms_per_token: dict[str, float]

    @property
    def stall_ms_per_token(self) -> dict[str, float]:
        """The entries of `part_ms_per_token` in which the computing unit waits, by cause."""
        return {name: ms for name, ms in self.part_ms_per_token.items() if name in STALLS}

    def as_json(self) -> dict[str, Any]:
        """Everything but the arrays of steps."""
        return {
            "tok_s": self.tok_s,
            "tok_s_p50": self.tok_s_p50,
            "ms_per_token": 1e3 / self.tok_s if self.tok_s else None,
            "warm_up_steps": self.warm_up_steps,
            "warm_up_tok_s": self.warm_up_tok_s,
            "steady_tok_s": self.steady_tok_s,
            "prompt_tok_s": self.prompt_tok_s,
            "steps": len(self.decode_step_s),
            "step_ms": {"p50": self.step_ms_p50, "p95": self.step_ms_p95, "p99": self.step_ms_p99},
            "ms_per_token_by_part": self.part_ms_per_token,
            "stall_ms_per_token": self.stall_ms_per_token,
            "busy_share": self.busy_share,
            "total_s": self.total_s,
        }


class Speeds(NamedTuple):
    """The speeds of a `Timing`, and where the time goes; as there."""

    tok_s: float | None
    prompt_tok_s: float | None
    part_ms_per_token: dict[str, float]


def speeds_of(
    kinds: Mapping[int, tuple[Kinds, int] | None], parts_of: Callable[[Kinds], NDArray[np.float64]]
) -> Speeds:
    """Speeds from kinds of calls, as in `Work.timed_kinds`. parts_of: their seconds by names.PARTS, f64 [N_PARTS]."""
    speed, decoded = dict[int, float | None](), dict[str, float]()
    for phase, of_phase in kinds.items():
        speed[phase] = None
        if of_phase is not None:
            parts, tokens = parts_of(of_phase[0]), of_phase[1]
            seconds = float(parts.sum())
            speed[phase] = tokens / seconds if seconds else None
            if phase == PHASE_DECODE:
                decoded = dict(zip(PARTS, (1e3 * parts / tokens).tolist(), strict=True))
    return Speeds(speed[PHASE_DECODE], speed[PHASE_PROMPT], decoded)


def timing_of(timeline: Timeline, work: Work) -> Timing:
    """Speed and causes from a timeline."""
    first = run_starts(work.step)
    step, phase = work.step[first], work.phase[first]
    tokens = _by_step(np.maximum, work.n_text, first).astype(np.int64)
    step_s = np.diff(timeline.end[np.append(first[1:], len(work.step)) - 1] if len(first) else [], prepend=0.0)
    decode = np.flatnonzero(phase == PHASE_DECODE) if (phase != PHASE_UNKNOWN).any() else np.arange(len(step))
    warm_up = _warm_up(_by_step(np.add, work.cold, first), decode)
    ms = np.quantile(1e3 * step_s[decode], [0.50, 0.95, 0.99]).tolist() if len(decode) else [None] * 3
    known = decode[tokens[decode] > 0]
    timed = known[step_s[known] > 0]
    decode_tokens = int(tokens[known].sum())
    parts_s = _by_step(np.add, timeline.parts, first)[known].sum(axis=0).tolist() if decode_tokens else []
    return Timing(
        step=step,
        phase=phase,
        tokens=tokens,
        step_s=step_s,
        decode=decode,
        decode_step_s=step_s[decode],
        total_s=timeline.total_s,
        tok_s=_speed(tokens, step_s, decode),
        tok_s_p50=float(np.median(tokens[timed] / step_s[timed])) if len(timed) else None,
        warm_up_steps=warm_up,
        warm_up_tok_s=_speed(tokens, step_s, decode[:warm_up]),
        steady_tok_s=_speed(tokens, step_s, decode[warm_up:]),
        step_ms_p50=ms[0],
        step_ms_p95=ms[1],
        step_ms_p99=ms[2],
        prompt_tok_s=_speed(tokens, step_s, np.flatnonzero(phase == PHASE_PROMPT)),
        busy_share={
            name: busy / timeline.total_s if timeline.total_s else 0.0
            for name, busy in zip(RESOURCES, timeline.busy.tolist(), strict=True)
        },
        part_ms_per_token={name: 1e3 * part / decode_tokens for name, part in zip(PARTS, parts_s, strict=False)},
    )


def _by_step(sum_up: np.ufunc, of_calls: NDArray[Any], first: NDArray[np.intp]) -> NDArray[Any]:
    return sum_up.reduceat(of_calls, first) if len(first) else of_calls[:0]


def _speed(tokens: NDArray[np.int64], step_s: NDArray[np.float64], steps: NDArray[np.intp]) -> float | None:
    known = steps[tokens[steps] > 0]
    done, seconds = int(tokens[known].sum()), float(step_s[known].sum())
    return done / seconds if done and seconds else None


def _warm_up(cold: NDArray[Any], decode: NDArray[np.intp]) -> int:
    """How many decoded steps the warm-up takes; cold: installs into empty slots in each step, prompts included."""
    so_far = np.cumsum(cold)
    if not len(cold) or not so_far[-1]:
        return 0
    warmed_up = int(np.searchsorted(so_far, COLD_SHARE * so_far[-1]))
    return min(int(np.searchsorted(decode, warmed_up, side="right")), len(decode) // 2)


BLOCK_STEPS = 16
RESAMPLES = 400
NO_TIME = 10.0  # times as fast: the end of an interval at which nothing would take time, so that no speed follows
CHECKED = 8  # draws at which the surface is compared with the model itself


def speed_draws(
    speed_on: Callable[[Machine], float],
    machine: Machine,
    step_s: NDArray[np.float64],
    *,
    whose: Whose | None = ANY_ENGINE,
) -> Draws:
    """Draws of the logarithm of a run's speed over its prediction: f64 [512].

    speed_on: the speed predicted on a machine, in any unit.
    step_s: f64 [steps], seconds of the decoded steps, resampled in blocks of 16 steps, to preserve the correlation of
        neighbouring steps.
    whose: the engine, whose error counts; None: no engine's.
    A run differs from its prediction by the machine's numbers, by the error of its engine, by the trace's chance, and,
    like the runs of a fit, by SPEED_SD.
    """
    run = SPEED_SD * normals(f"run {'' if whose is None else whose.setting}")
    return _machine_draws(speed_on, machine) + error_draws(machine, whose) + _luck(_resampled(step_s)) + run


def _machine_draws(value_on: Callable[[Machine], float], machine: Machine) -> Draws:
    """Draws of the logarithm of what a machine makes of a value.

    The value is computed with each quantity at the ends of its interval, one at a time, and in CHECKED draws of all
    together; how far the sum of the single moves is from these is added as an error. Where nothing would take time, the
    value is NO_TIME times that of the machine.
    """
    vary = {path: q for path, q in machine.quantities() if path not in SIZES and q.lo != q.hi}
    found = np.zeros(DRAWS)
    if not vary:
        return found
    here = math.log(value_on(machine))

    def off_on(other: Machine) -> float:
        try:
            return math.log(value_on(other)) - here
        except ZeroDivisionError:
            return math.log(NO_TIME)

    for path, quantity in vary.items():
        at_ends = (off_on(machine.varied(path, end)) for end in (quantity.lo, quantity.hi))
        found += moved(unknown(machine, path), *at_ends)
    off = [off_on(drawn(machine, vary, draw)) - found[draw] for draw in range(0, DRAWS, DRAWS // CHECKED)]
    return found + math.sqrt(sum(one * one for one in off) / CHECKED) * normals("surface")


def _luck(times: NDArray[np.float64]) -> Draws:
    """Draws of the logarithm of a speed from the resamplings of its times."""
    slow, fast = np.quantile(times[1:], [0.95, 0.05])
    return moved(normals("trace"), float(np.log(times[0] / slow)), float(np.log(times[0] / fast)))


def _resampled(step_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean step, and the mean of each resampling: f64 [1 + RESAMPLES].

    Source: moving-block bootstrap (Kuensch 1989, Annals of Statistics 17, 3).
    """
    steps = len(step_s)
    block = min(BLOCK_STEPS, steps)
    if steps < 2 or not step_s.any():
        return np.ones(1 + RESAMPLES)
    starts = np.random.default_rng(1).integers(0, steps - block + 1, (RESAMPLES, -(-steps // block)))
    sums = np.concatenate([[0.0], np.cumsum(step_s)])
    means = (sums[starts + block] - sums[starts]).sum(axis=1) / (block * starts.shape[1])
    return np.concatenate([[step_s.mean()], means])
