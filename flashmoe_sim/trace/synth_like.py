"""A trace with the expert popularity and the token overlap of another one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Incomplete
from flashmoe_sim.io.sections import rate
from flashmoe_sim.trace.counting import count_overlap, fresh
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.statistics import normalised_entropy, top_decile_share
from flashmoe_sim.trace.synth_kernels import depths_of, draw_alike
from flashmoe_sim.trace.synth_shape import Shape, assemble, check_size, layer_draws

ROUNDS = 20
SLACK = 30
FITTED_TOKENS = 2048
STRETCH_TOKENS, FEWEST, MOST = 128, 4, 8  # of a stretch with its own popularity, and how many there are
CHANCE = 0.15  # requests of an expert for which its own popularity in a stretch and that of the whole trace count alike
BANKS = (8, 4, 2)  # one over the share of the experts that an LRU bank holds, whose hits are fitted
LEAST_SHARE = 3e-3  # of the requests: a smaller difference is chance
STEP = 0.4
KEEP_STEP = 1.5  # the weights sharpen from round to round, which raises the overlap
MOST_PULL = 100.0


@dataclass(frozen=True)
class Skew:
    """What the new trace has in common with the other: as in `sim trace inspect`, over all tokens of all layers."""

    top_decile_share: float
    normalised_entropy: float
    overlap: float


@dataclass(frozen=True, eq=False)
class _Measured:
    """One layer of a trace. count: i64 [experts], tokens that use each; of_stretch: i64 [stretches, experts], the same.

    overlap: share of each token's experts that the token before it also has. hits: f64 [banks], in LRU banks of
    `_edges` slots, of the requests that are no first use.
    """

    count: NDArray[np.int64]
    of_stretch: NDArray[np.int64]
    overlap: float
    hits: NDArray[np.float64]


@dataclass(frozen=True)
class LikeFit:
    """Skew and overlap of the measured trace, and of the new one."""

    asked: Skew
    made: Skew


def alike(
    trace: RoutingTrace,
    *,
    shape: Shape | None = None,
    other: RoutingTrace | None = None,
    share: float = 1.0,
    tokens: int | None = None,
    prompt: int = 0,
    seed: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[RoutingTrace, LikeFit]:
    """A trace of any length in which each layer's experts are as popular as in another trace, and recur as soon.

    Popularity changes with each of four to eight stretches of the trace, as in the other one. Each expert of a token is
    kept for the next with one probability; the others are drawn without repeats, by a weight times a factor for how
    recently they were used. Probability, weights and factors are corrected, round by round, until a run of at least
    2,048 tokens has the measured overlap, counts and LRU hits. Nothing else is imitated: layers are independent, and
    ranks mean nothing. An expert that does not occur stays out, and in a short trace chance looks like popularity.
    shape: of another model, whose layers imitate the layers at the same relative depth, with experts in a new random
        order that are as popular at the same relative rank; by default the trace's own.
    other: a second trace, which is imitated in part; it needs a shape. share: the weight of the first one.
    tokens: after the prompt; by default as many as the other trace has, including its prompt.
    Calls of unknown tokens are not measured.
    progress: called with the layers drawn and all.
    Raises BadInput if the top-k varies or a layer has no two tokens in a row.
    """
    if not trace.calls or not trace.top_k:
        raise Incomplete(f"{trace.name or 'trace'}: has no top-k that all tokens share; cut it with --topk first")
    shorter = min(one.tokens for one in (trace, other) if one is not None)
    stretches = min(max(shorter // STRETCH_TOKENS, FEWEST), MOST)
    layers = _measure(trace, stretches)
    if shape is None:
        n_experts = {layer: trace.n_experts[layer] for layer in trace.layers}
        shape = Shape(trace.name, n_experts, trace.top_k, trace.expert_bytes, trace.n_experts_known)
    else:
        layers = _in_shape(shape, layers, seed=seed)
    if other is not None:
        others = _in_shape(shape, _measure(other, stretches), seed=seed)
        layers = [_mixed(*pair, share) for pair in zip(layers, others, strict=True)]
    tokens = trace.tokens if tokens is None else tokens
    check_size(shape, tokens=tokens, prompt=prompt, seed=seed)
    top_k, length = shape.top_k, tokens + prompt

    def fitted(layer: int, measured: _Measured) -> NDArray[np.int16]:
        draw = layer_draws(seed, layer, max(length, FITTED_TOKENS) * 2 * top_k)
        return _fit(measured, draw.reshape(-1, 2, top_k), length)

    experts = []
    with ThreadPoolExecutor(os.cpu_count()) as executor:
        for expert in executor.map(fitted, sorted(shape.n_experts), layers):
            experts.append(expert)
            if progress:
                progress(len(experts), len(layers))
    made = assemble(shape, experts, prompt=prompt, name=f"like {trace.name}", notes=())
    fit = LikeFit(_skew(layers), _skew(_measure(made, stretches)))
    target, got = fit.asked, fit.made
    note = (
        f"synthetic, not a recording: popularity and overlap like {trace.name}, as asked (as made): top 10% of "
        f"experts {rate(target.top_decile_share)} ({rate(got.top_decile_share)}), entropy "
        f"{target.normalised_entropy:.3f} ({got.normalised_entropy:.3f}), overlap {rate(target.overlap)} "
        f"({rate(got.overlap)}); seed {seed}"
    )
    return made.with_(notes=(note,)), fit


def _in_shape(shape: Shape, layers: Sequence[_Measured], *, seed: int) -> list[_Measured]:
    """What is measured, for a shape's layers: from the layer at the same relative depth, over its own experts.

    An expert's share of a stretch is that of the expert at the same relative rank.
    """
    numbers = sorted(shape.n_experts)
    last, own = max(len(numbers) - 1, 1), len(layers) - 1
    found = []
    for depth, layer in enumerate(numbers):
        source, experts = layers[round(depth * own / last)], shape.n_experts[layer]
        order = np.argsort(-source.count, kind="stable")
        ranked = source.count[order]
        places, known = ((np.arange(size) + 0.5) / size for size in (experts, len(ranked)))
        # A token's experts are distinct, so the most popular is at most in every token.
        wanted = np.minimum(np.interp(places, known, ranked), ranked.sum() * experts / len(ranked) / shape.top_k)
        nearest = order[(places * len(ranked)).astype(np.int64)]
        share = source.of_stretch[:, nearest] / np.maximum(source.count[nearest], 1)
        place = np.argsort(layer_draws(seed, layer, experts), kind="stable")
        count, of_stretch = (np.rint(each * 1000).astype(np.int64) for each in (wanted, wanted * share))
        found.append(_Measured(np.maximum(count, 1)[place], of_stretch[:, place], source.overlap, source.hits))
    return found


def _mixed(one: _Measured, other: _Measured, share: float) -> _Measured:
    """The mean of two layers with equally many experts. share: the weight of the first one.

    Of hits it is the mean of the logarithms of the odds: 50% and 90% make 75%, in equal shares.
    """

    def mixed(of_one: Any, of_other: Any) -> Any:
        return share * of_one + (1 - share) * of_other

    stretches = [_shares(each.of_stretch, each.count / each.count.sum()) for each in (one, other)]
    of_stretch = np.rint(mixed(*stretches) * one.count.sum() / len(one.of_stretch)).astype(np.int64)
    hits = [np.clip(each.hits, LEAST_SHARE, 1 - LEAST_SHARE) for each in (one, other)]
    odds = _narrow(np.exp(mixed(*(np.log(_wide(each / (1 - each))) for each in hits))))
    count = np.maximum(of_stretch.sum(axis=0), 1)
    return _Measured(count, of_stretch, mixed(one.overlap, other.overlap), odds / (1 + odds))


def _fit(measured: _Measured, draw: NDArray[np.float64], tokens: int) -> NDArray[np.int16]:
    """One layer's experts with what was measured, i16 [tokens, top_k]. draw: f64 [tokens or more, 2, top_k]."""
    most, _, top_k = draw.shape
    n_experts, edge = len(measured.count), _edges(len(measured.count), top_k)
    stretches, popularity = len(measured.of_stretch), measured.count / measured.count.sum()
    stretch = _stretch_of(most, stretches)
    chance = CHANCE * n_experts / measured.count.sum()
    share = (_shares(measured.of_stretch, popularity) + chance * popularity) / (1 + chance)
    wanted = np.minimum(share, 1 / top_k) * np.bincount(stretch, minlength=stretches)[:, None] * top_k
    weight, keep, pull = wanted / wanted.max(), measured.overlap, np.ones(len(edge) + 1)
    expert, depth = np.empty((2, most, top_k), np.int16)
    for _ in range(ROUNDS):
        draw_alike(weight, stretch, edge, pull, keep, draw, expert, depth)
        made = _of_stretches(expert, stretch, n_experts, stretches)
        # In proportion to the difference: a ratio would be biased by rare experts, whose counts vary most by chance.
        weight = weight * np.maximum(1 + (wanted - made) / (wanted + SLACK / stretches), 0.2)
        weight /= weight.max()
        overlap = _overlap(expert, n_experts)
        target, got = (
            np.diff(hits, prepend=0.0, append=1.0) + LEAST_SHARE for hits in (measured.hits, _hits(depth, edge))
        )
        if keep > 0:  # which then decides what a token has of the last one
            target[0] = got[0]
        pull = pull * _narrow(_wide(target / got) ** STEP)
        pull = np.clip(pull / pull[-1], 1 / MOST_PULL, MOST_PULL)
        keep = min(max(keep + KEEP_STEP * (measured.overlap - overlap), 0.0), 1.0)
    made_expert, its_depth = np.empty((2, tokens, top_k), np.int16)
    draw_alike(weight, _stretch_of(tokens, stretches), edge, pull, keep, draw[:tokens], made_expert, its_depth)
    return made_expert


def _wide(values: NDArray[np.float64]) -> NDArray[np.longdouble]:
    """As exact as the processor can: NumPy's powers and logarithms of f64 differ between processors in the last bit,
    on which a draw may turn, and with it all that follow."""
    return values.astype(np.longdouble)


def _narrow(values: NDArray[np.longdouble]) -> NDArray[np.float64]:
    return values.astype(np.float64)


def _stretch_of(tokens: int, stretches: int) -> NDArray[np.int64]:
    """The stretch that each token is in: they have equal length."""
    return np.arange(tokens, dtype=np.int64) * stretches // tokens


def _shares(of_stretch: NDArray[np.int64], popularity: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each expert's share of the requests of every stretch; of one without any, its share of all."""
    total = of_stretch.sum(axis=1, keepdims=True)
    return np.where(total > 0, of_stretch / np.maximum(total, 1), popularity)


def _of_stretches(
    expert: NDArray[np.int16], stretch: NDArray[np.int64], n_experts: int, stretches: int
) -> NDArray[np.int64]:
    """Tokens that use each expert, i64 [stretches, experts]. expert: i16 [tokens, top_k]."""
    key = stretch[:, None] * n_experts + expert
    return np.bincount(key.reshape(-1), minlength=stretches * n_experts).reshape(stretches, n_experts)


def _edges(n_experts: int, top_k: int) -> NDArray[np.int64]:
    """The slots of the LRU banks whose hits are fitted: a token's experts, and BANKS, which hold at least these."""
    return np.maximum(np.array([0, *(n_experts // share for share in BANKS)], np.int64), top_k)


def _hits(depth: NDArray[np.int16], edge: NDArray[np.int64]) -> NDArray[np.float64]:
    """Hits in LRU banks of these sizes, as shares of the requests that are no first use: f64 [banks]."""
    upto = np.bincount(depth.reshape(-1).astype(np.intp) + 1, minlength=edge[-1] + 1)[1:].cumsum()
    shares: NDArray[np.float64] = upto[edge - 1] / max(upto[-1], 1)
    return shares


def _overlap(expert: NDArray[np.int16], n_experts: int) -> float:
    """Share of each token's experts that the token before it also has. expert: i16 [tokens, top_k]."""
    tokens, top_k = expert.shape
    each, repeats = np.ones(tokens, np.int32), np.zeros(tokens, np.int32)
    offset, flat = np.arange(tokens + 1) * top_k, expert.reshape(-1)
    shared, compared = count_overlap(offset, each, flat, fresh(n_experts), np.zeros(2, np.int64), repeats)
    return float(shared / compared)


def _measure(trace: RoutingTrace, stretches: int) -> list[_Measured]:
    """Every layer of a trace, without calls of unknown tokens; popularity by stretch."""
    found = []
    for view in trace.by_layer:
        tokens, length = trace.n_tokens[view.call], np.diff(view.offset)
        n_experts = trace.n_experts[view.layer]
        state, repeats = np.zeros(2, np.int64), np.zeros(len(tokens), np.int32)
        shared, compared = count_overlap(view.offset, tokens, view.expert, fresh(n_experts), state, repeats)
        if not compared:
            raise Incomplete(
                f"{trace.name or 'trace'}: layer {view.layer} has no two tokens in a row; its overlap is not known"
            )
        known = view.expert[np.repeat((tokens > 0) & (length == tokens * trace.top_k), length)].reshape(-1, trace.top_k)
        distinct = known[(np.diff(np.sort(known, axis=1), axis=1) > 0).all(axis=1)]
        depth = np.empty(distinct.shape, np.int16)
        depths_of(np.ascontiguousarray(distinct), n_experts, depth)
        of_stretch = _of_stretches(known, _stretch_of(len(known), stretches), n_experts, stretches)
        hits = _hits(depth, _edges(n_experts, trace.top_k))
        found.append(_Measured(of_stretch.sum(axis=0), of_stretch, shared / compared, hits))
    return found


def _skew(layers: Sequence[_Measured]) -> Skew:
    weights = [layer.count.sum() for layer in layers]
    values = [(top_decile_share(layer.count), normalised_entropy(layer.count), layer.overlap) for layer in layers]
    return Skew(*map(float, np.average(values, axis=0, weights=weights)))
