"""Seconds from a known hit or miss rate: synthetic work misses at that rate, and runs on a machine like a replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.drafts import Drafts
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import Incomplete, OutOfRange
from flashmoe_sim.machines.belief import ANY_ENGINE, Draws, Whose, ends, learnt_times
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.timeline.assemble import Conditions, DoesNotFit, Weights, price, room_for_pages, weigh
from flashmoe_sim.timeline.from_replay import draws_of
from flashmoe_sim.timeline.rates import Rate
from flashmoe_sim.timeline.run import simulate
from flashmoe_sim.timeline.timing import Timing, timing_of
from flashmoe_sim.timeline.work import Costs, Work
from flashmoe_sim.trace.routing import PHASE_DECODE

STEPS = 512


@dataclass(frozen=True, eq=False)
class RatePrediction:
    """The predicted speed of a rate on a machine.

    top_k, misses_per_call: of the synthetic routed calls.
    page_cache_share: share of the misses that are in the page cache, which serves them or in which they are computed;
        None if every expert is resident.
    draw: gives `draws`, which take longer than all else.
    """

    rate: Rate
    top_k: int
    misses_per_call: float
    page_cache_share: float | None
    timing: Timing
    tok_s: float
    draw: Callable[[], Draws]

    @cached_property
    def draws(self) -> Draws:
        """Of the logarithm of the speed over tok_s, see `machines.belief`."""
        return self.draw()

    @property
    def tok_s_lo(self) -> float:
        return ends(self.tok_s, self.draws)[0]

    @property
    def tok_s_hi(self) -> float:
        return ends(self.tok_s, self.draws)[1]

    @property
    def error(self) -> float | None:
        """Signed: predicted over measured, less 1."""
        measured = self.rate.measured_tok_s
        return None if measured is None else self.tok_s / measured - 1

    def as_row(self) -> dict[str, Any]:
        """schema.PREDICTED."""
        rate = self.rate
        return {
            "source": rate.where,
            "bank": None if rate.bank is None else str(rate.bank),
            "bank_slots": None if rate.bank is None else rate.bank.slots,
            "bank_bytes": None if rate.bank is None else rate.bank.budget_bytes,
            "top_k": self.top_k,
            "hit_rate": 1 - self.misses_per_call / self.top_k,
            "misses_per_call": self.misses_per_call,
            "page_cache_share": self.page_cache_share,
            "tok_s": self.tok_s,
            "tok_s_lo": self.tok_s_lo,
            "tok_s_hi": self.tok_s_hi,
            "ms_per_token": 1e3 / self.tok_s,
            "measured_tok_s": rate.measured_tok_s,
            "measured_tok_s_lo": rate.tok_s_lo,
            "measured_tok_s_hi": rate.tok_s_hi,
            "error": self.error,
            "does_not_fit": None,
        }


class DraftedPass(NamedTuple):
    """A pass with drafts: its tokens, how many of them become text, and the distinct experts of a call.

    text, union: on average.
    """

    tokens: int
    text: float
    union: float


def verified(drafts: Drafts | None, *, top_k: int, experts: int) -> DraftedPass | None:
    """What a pass with these drafts verifies, if the tokens are routed independently; None without drafts.

    Real unions are smaller, since tokens in a row share experts: a trace has them exactly.
    """
    if drafts is None:
        return None
    tokens = drafts.count + 1
    return DraftedPass(tokens, drafts.text_tokens, experts * (1 - (1 - top_k / experts) ** tokens))


def made_work(
    *,
    layers: int,
    top_k: int,
    misses_per_call: float,
    page_cache_share: float = 0.0,
    steps: int = STEPS,
    seed: int = 1,
    verified: DraftedPass | None = None,
) -> Work:
    """Synthetic decoding, pass by pass, with a routed call in each layer; it misses as often as a table says.

    All requests are equally likely to miss: the misses of a call are binomial, with the total over all calls fixed by
    misses_per_call. page_cache_share: likewise for the misses that the page cache serves.
    No miss counts as installed. Installs take time only if the CPU computes misses, and such systems do not install
    misses.
    verified: what a pass verifies; by default its one token.
    """
    calls = steps * layers
    draws = np.random.default_rng(seed)
    tokens, text = 1, np.ones(steps, np.int64)
    requests = np.full(calls, top_k, np.int64)
    if verified is not None:
        tokens, text = verified.tokens, _evenly(verified.text, steps)
        requests = _evenly(verified.union, calls)
        misses_per_call *= verified.union / top_k
    misses = _draw(draws, requests, min(round(misses_per_call * calls), int(requests.sum())))
    warm = _draw(draws, misses, round(page_cache_share * int(misses.sum())))
    nothing = np.zeros(0, np.int64)
    return Work(
        row=np.tile(np.arange(layers, dtype=np.int32), steps),
        step=np.repeat(np.arange(steps, dtype=np.int32), layers),
        n_tokens=np.full(calls, tokens, np.int32),
        n_text=np.repeat(text, layers).astype(np.int32),
        drafted=np.full(calls, tokens - 1, np.int32),
        refs=np.full(calls, top_k * tokens, np.int32),
        requests=requests.astype(np.int32),
        misses=misses.astype(np.int32),
        warm=warm.astype(np.int32),
        cold=np.zeros(calls, np.int32),
        installs=np.zeros(calls, np.int32),
        phase=np.full(calls, PHASE_DECODE, np.uint8),
        ahead_after=nothing,
        ahead_row=nothing.astype(np.int32),
        ahead_warm=nothing.astype(np.uint8),
        ahead_cold=nothing.astype(np.uint8),
        ahead_used=nothing,
    )


def predict(
    rates: Sequence[Rate],
    geometry: ModelGeometry,
    machine: Machine,
    conditions: Conditions,
    *,
    bank: Bank | None = None,
    top_k: int | None = None,
    io_split: int = 4,
    whose: Whose | None = ANY_ENGINE,
) -> list[RatePrediction]:
    """The decode speed of each rate on a machine.

    bank, top_k: for rates without their own; by default a bank that takes no memory, and the model's experts per token.
    whose: the engine, whose error counts.
    The page cache's share of the misses is an estimate, see `page_cache_share`.
    Raises DoesNotFit if a bank does not fit the machine, BadInput if a call cannot miss that often or the model routes
    fewer experts.
    """
    weights = weigh(geometry, tuple(geometry.layers.values()), conditions)
    return [
        _predict(
            replace(rate, bank=rate.bank or bank, top_k=rate.top_k or top_k or geometry.top_k),
            geometry,
            weights,
            machine,
            conditions,
            io_split,
            whose,
        )
        for rate in rates
    ]


def page_cache_share(
    geometry: ModelGeometry, weights: Weights, machine: Machine, conditions: Conditions, bank: Bank | None, where: str
) -> float:
    """An estimate of the share of misses that the page cache serves, if only a rate is known.

    It assumes that all experts outside the bank are equally likely to miss, and that the page cache holds as many of
    them as fit beside the bank: min(1, its bytes / bytes of the experts outside the bank). Real misses favour recently
    read experts, so the true share is higher; until the page cache has filled it is lower.
    """
    inside = 0
    if bank is not None:
        slots = sum(layer.expert_bytes * bank.slots_of(layer.n_experts) for layer in weights.layers)
        inside = slots + (bank.budget_bytes or 0)
    if not conditions.execution.reads:
        inside = geometry.routed_bytes
    try:
        room = room_for_pages(weights, machine, conditions, bank=str(bank or "none"), bank_bytes=inside)
    except DoesNotFit as error:
        raise DoesNotFit(error.found, where=where, advice=error.advice) from None
    outside = geometry.routed_bytes - inside
    return 1.0 if room and outside <= 0 else min(1.0, room / max(outside, 1))


def _predict(
    rate: Rate,
    geometry: ModelGeometry,
    weights: Weights,
    machine: Machine,
    conditions: Conditions,
    io_split: int,
    whose: Whose | None,
) -> RatePrediction:
    assert rate.top_k is not None
    most = min(layer.n_experts for layer in weights.layers)
    if not 1 <= rate.top_k <= most:
        raise OutOfRange(f"{rate.where}: {rate.top_k} experts a token; {geometry.name} has {most} a layer")
    if 0 < geometry.top_k < rate.top_k:
        raise OutOfRange(
            f"{rate.where}: {rate.top_k} experts a token; {geometry.name} routes at most {geometry.top_k}; "
            "give its number with a column topk or --topk"
        )
    misses = rate.misses(rate.top_k)
    share = page_cache_share(geometry, weights, machine, conditions, rate.bank, rate.where)
    made = made_work(
        layers=len(weights.layers),
        top_k=rate.top_k,
        misses_per_call=misses,
        page_cache_share=share,
        verified=verified(conditions.drafts, top_k=rate.top_k, experts=most),
    )
    work = conditions.execution.computed(made)
    costs = price(weights, machine, conditions, io_split=io_split).slower(1 / learnt_times(machine, whose))
    timeline = simulate(work, costs, conditions.execution)
    timing = timing_of(timeline, work)
    if timing.tok_s is None:
        raise Incomplete(f"machine {machine.name}: a token takes no time on it; give it layer_us or weights_gb_s")

    def draw() -> Draws:
        def costs_on(other: Machine) -> Costs:
            return price(weights, other, conditions, io_split=io_split)

        return draws_of(work, timing, machine, conditions.execution, costs_on, whose=whose)

    return RatePrediction(
        rate, rate.top_k, misses, share if conditions.execution.reads else None, timing, timing.tok_s, draw
    )


def _draw(draws: np.random.Generator, of: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    """Draw `total` items from these bins, all items equally likely; return the number from each bin."""
    return draws.multivariate_hypergeometric(of, total, method="marginals")


def _evenly(mean: float, count: int) -> NDArray[np.int64]:
    """Whole numbers with this mean, as even as they can be: i64 [count]."""
    upto: NDArray[np.int64] = np.rint(mean * np.arange(count + 1)).astype(np.int64)
    return upto[1:] - upto[:-1]


@dataclass(frozen=True)
class Unfit:
    """A row of a table whose bank does not fit the machine, and the reason."""

    rate: Rate
    reason: str

    def as_row(self) -> dict[str, Any]:
        """schema.PREDICTED, as far as it is known."""
        rate = self.rate
        return {
            "bank": None if rate.bank is None else str(rate.bank),
            "top_k": rate.top_k,
            "hit_rate": rate.hit_rate,
            "misses_per_call": rate.misses_per_call,
            "measured_tok_s": rate.measured_tok_s,
            "measured_tok_s_lo": rate.tok_s_lo,
            "measured_tok_s_hi": rate.tok_s_hi,
            "does_not_fit": self.reason,
        }


def predict_rates(
    rates: Sequence[Rate],
    geometry: ModelGeometry,
    machine: Machine,
    conditions: Conditions,
    *,
    bank: Bank | None = None,
    top_k: int | None = None,
    io_split: int = 4,
) -> list[RatePrediction | Unfit]:
    """Predict each rate; bank and top_k are of rates without their own.

    Raises DoesNotFit if no bank fits the machine.
    """
    rows: list[RatePrediction | Unfit] = []
    unfit: DoesNotFit | None = None
    for rate in rates:
        try:
            rows += predict([rate], geometry, machine, conditions, bank=bank, top_k=top_k, io_split=io_split)
        except DoesNotFit as error:
            unfit = unfit or error
            resolved = replace(rate, bank=rate.bank or bank, top_k=rate.top_k or top_k or geometry.top_k)
            rows.append(Unfit(resolved, error.message))
    if unfit is not None and not any(isinstance(row, RatePrediction) for row in rows):
        raise unfit
    return rows
