"""Seconds of a way of serving tokens: work is made that misses as often, and runs on the row's machine."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.belief import SD_90, ends
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.timeline.assemble import Conditions, Weights, price, weigh
from flashmoe_sim.timeline.costs import Costs
from flashmoe_sim.timeline.from_rates import made_work
from flashmoe_sim.timeline.interval import speed_draws
from flashmoe_sim.timeline.run import simulate, total_seconds
from flashmoe_sim.timeline.timing import Timing, timing_of
from flashmoe_sim.timeline.work import Work
from reports.field.prior import HitCurve
from reports.field.serving import Way

STEPS = 48
INTERVAL_STEPS = 12
IO_SPLIT = 4
TOO_MANY = 2.0  # standard deviations above the curve


@dataclass(frozen=True)
class Missed:
    """Of the requests of the layers that can miss, the share that does; of these, the share that RAM serves."""

    rate: float
    in_ram: float


class Context(NamedTuple):
    """How many tokens are in the context, and the type of their keys and values."""

    depth: int
    kv_type: str


@dataclass(frozen=True)
class Priced:
    """Tokens a second with the interval that machine and hit rate give; part_s: what a token's seconds go into."""

    tok_s: float
    lo: float
    hi: float
    missed: Missed
    part_s: dict[str, float] = field(default_factory=dict)


def priced(way: Way, curves: dict[str, HitCurve], *, hit_rate: float | None, context: Context) -> Priced:
    """How fast a way is. hit_rate: measured, or None for the curve's."""
    missed = misses(way, curves, hit_rate=hit_rate)
    timing = _Run.of(way, missed, context, steps=STEPS).timing(way.machine)
    tok_s = timing.tok_s or 0.0
    short = _Run.of(way, missed, context, steps=INTERVAL_STEPS)
    part_s = {name: 1e-3 * ms for name, ms in timing.part_ms_per_token.items()}
    draws = speed_draws(short.speed, way.machine, timing.decode_step_s, whose=None)
    lo, hi = ends(tok_s, draws)
    if hit_rate is None and _is_guess(way):
        guesses = [
            _Run.of(way, misses(way, curves, hit_rate=None, deviations=off), context, steps=INTERVAL_STEPS)
            for off in (-SD_90, SD_90)
        ]
        slow, fast = (guess.speed(way.machine) for guess in guesses)
        here = short.speed(way.machine)
        lo = tok_s * math.exp(-math.hypot(math.log(tok_s / lo), math.log(here / min(slow, here))))
        hi = tok_s * math.exp(math.hypot(math.log(hi / tok_s), math.log(max(fast, here) / here)))
    return Priced(tok_s, lo, hi, missed, part_s)


def misses(way: Way, curves: dict[str, HitCurve], *, hit_rate: float | None, deviations: float = 0.0) -> Missed:
    """How often a way misses, and how much of that RAM serves.

    A measured hit rate far above what the bank can have counts what RAM serves as hits.
    """
    if not way.far_layers:
        return Missed(0.0, 1.0)
    rate = 1 - (hits(way, curves, deviations=deviations) if hit_rate is None else hit_rate)
    if (
        hit_rate is not None
        and 0 < way.ram_share < 1
        and way.share > 0
        and hit_rate > hits(way, curves, deviations=TOO_MANY)
    ):
        alone = 1 - hits(way, curves)
        return Missed(alone, 1 - rate / alone)
    if way.ram_share >= 1:
        return Missed(rate, 1.0)
    if way.ram_share <= 0 or rate <= 0:
        return Missed(rate, 0.0)
    alone, together = (
        1 - curves["lru"].hit_rate(share, model=way.name, deviations=deviations)
        for share in (way.share, min(way.share + way.ram_share, 1.0))
    )
    return Missed(rate, 1 - together / alone if alone > 0 else 1.0)


def hits(way: Way, curves: dict[str, HitCurve], *, deviations: float = 0.0) -> float:
    """The share of requests that hit, by the curve."""
    if way.kind == "none" or way.share <= 0:
        return 0.0
    if way.kind == "uniform":
        return min(way.share, 1.0)
    if way.fixed_share:
        fixed = curves["held-out"].hit_rate(way.fixed_share, model=way.name, deviations=deviations)
        ring = (way.share - way.fixed_share) / max(1 - way.fixed_share, 1e-9)
        return 1 - (1 - fixed) * (1 - curves["lru"].hit_rate(ring, model=way.name, deviations=deviations))
    return curves[way.kind].hit_rate(way.share, model=way.name, deviations=deviations)


def _is_guess(way: Way) -> bool:
    return bool(way.far_layers) and (way.kind in ("lru", "held-out", "hindsight") or 0 < way.ram_share < 1)


class _Run(NamedTuple):
    """Work of a way of serving, which costs something else on every machine."""

    work: Work
    weights: Weights
    conditions: Conditions

    @classmethod
    def of(cls, way: Way, missed: Missed, context: Context, *, steps: int) -> _Run:
        conditions = Conditions(
            way.execution,
            direct_io=way.direct_io and not way.execution.in_place,
            depth=context.depth,
            kv_type=context.kv_type,
            program=way.program,
        )
        weights = weigh(way.model, tuple(way.model.layers.values()), conditions)
        return cls(_work(way, missed, steps), weights, conditions)

    def timing(self, machine: Machine) -> Timing:
        timing = timing_of(simulate(self.work, self._costs(machine), self.conditions.execution), self.work)
        if timing.tok_s is None:
            raise BadInput(f"machine {machine.name}: a token takes no time on it")
        return timing

    def speed(self, machine: Machine) -> float:
        """Tokens a second."""
        return INTERVAL_STEPS / total_seconds(self.work, self._costs(machine), self.conditions.execution)

    def _costs(self, machine: Machine) -> Costs:
        return price(self.weights, machine, self.conditions, io_split=IO_SPLIT)


def _work(way: Way, missed: Missed, steps: int) -> Work:
    """Decoded tokens whose first layers miss as often as said, and whose other layers never do."""
    layers, top_k = len(way.model.layers), way.model.top_k
    work = made_work(layers=layers, top_k=top_k, misses_per_call=0.0, steps=steps)
    if not way.far_layers or missed.rate <= 0:
        return work
    far = made_work(
        layers=way.far_layers,
        top_k=top_k,
        misses_per_call=top_k * missed.rate,
        page_cache_share=min(max(missed.in_ram, 0.0), 1.0),
        steps=steps,
    )

    def spread(of_far: NDArray[np.int32]) -> NDArray[np.int32]:
        of_all = np.zeros((steps, layers), np.int32)
        of_all[:, : way.far_layers] = of_far.reshape(steps, way.far_layers)
        return of_all.ravel()

    return replace(work, misses=spread(far.misses), warm=spread(far.warm))
