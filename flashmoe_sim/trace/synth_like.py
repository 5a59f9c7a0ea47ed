"""A trace with the expert popularity and the token overlap of another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.trace.counting import count_overlap
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.statistics import normalised_entropy, top_decile_share
from flashmoe_sim.trace.synth_kernels import draw_alike
from flashmoe_sim.trace.synth_shape import Shape, assemble, check_size, layer_draws, percent

ROUNDS = 10
SLACK = 30
FITTED_TOKENS = 2048


@dataclass(frozen=True)
class Skew:
    """What the new trace has in common with the other: as in `sim trace inspect`, over all tokens of all layers."""

    top_decile_share: float
    normalised_entropy: float
    overlap: float


@dataclass(frozen=True)
class LikeFit:
    """Skew and overlap of the measured trace, and of the new one."""

    asked: Skew
    made: Skew


def alike(
    trace: RoutingTrace,
    *,
    shape: Shape | None = None,
    tokens: int | None = None,
    prompt: int = 0,
    seed: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[RoutingTrace, LikeFit]:
    """A trace of any length in which each layer's experts are as popular as in another trace, and recur as soon.

    Each expert of a token is kept for the next with one probability; the others are drawn by weight, without repeats.
    Probability and weights are corrected, round by round, until a run of at least 2,048 tokens has the measured overlap
    and counts; the overlap cannot be less than popularity alone would cause. Nothing else is imitated: requests of two
    tokens ago have no influence, popularity is constant, layers are independent, and ranks mean nothing. An expert that
    does not occur stays out, and in a short trace chance looks like popularity.
    shape: of another model, whose layers imitate the layers at the same relative depth, with experts in a new random
        order that are as popular at the same relative rank; by default the trace's own.
    tokens: after the prompt; by default as many as the other trace has, including its prompt.
    Calls of unknown tokens are not measured.
    progress: called with the layers drawn and all.
    Raises BadInput if the top-k varies or a layer has no two tokens in a row.
    """
    if not trace.calls or not trace.top_k:
        raise BadInput(f"{trace.name or 'trace'}: has no top-k that all tokens share; cut it with --topk first")
    counts, overlaps = _measure(trace)
    if shape is None:
        n_experts = {layer: trace.n_experts[layer] for layer in trace.layers}
        shape = Shape(trace.name, n_experts, trace.top_k, trace.expert_bytes, trace.n_experts_known)
    else:
        counts, overlaps = _in_shape(shape, counts, overlaps, seed=seed)
    tokens = trace.tokens if tokens is None else tokens
    check_size(shape, tokens=tokens, prompt=prompt, seed=seed)
    experts = []
    for layer, count, overlap in zip(sorted(shape.n_experts), counts, overlaps, strict=True):
        draw = layer_draws(seed, layer, max(tokens + prompt, FITTED_TOKENS) * 2 * shape.top_k)
        expert = _fit(count, overlap, draw.reshape(-1, 2, shape.top_k))
        experts.append(expert[: tokens + prompt])
        if progress:
            progress(len(experts), len(counts))
    made = assemble(shape, experts, prompt=prompt, name=f"like {trace.name}", notes=())
    fit = LikeFit(_skew(counts, overlaps), _skew(*_measure(made)))
    asked, got = fit.asked, fit.made
    note = (
        f"synthetic, not a recording: popularity and overlap like {trace.name}, as asked (as made): top 10 % of "
        f"experts {percent(asked.top_decile_share)} ({percent(got.top_decile_share)}), entropy "
        f"{asked.normalised_entropy:.3f} ({got.normalised_entropy:.3f}), overlap {percent(asked.overlap)} "
        f"({percent(got.overlap)}); seed {seed}"
    )
    return made.with_(notes=(note,)), fit


def _in_shape(
    shape: Shape, counts: list[NDArray[np.int64]], overlaps: list[float], *, seed: int
) -> tuple[list[NDArray[np.int64]], list[float]]:
    """Counts and overlaps for a shape's layers: from the layer at the same relative depth, over its own experts."""
    layers = sorted(shape.n_experts)
    last, own = max(len(layers) - 1, 1), len(counts) - 1
    found, shares = [], []
    for depth, layer in enumerate(layers):
        source, experts = round(depth * own / last), shape.n_experts[layer]
        ranked = np.sort(counts[source])[::-1]
        places, known = ((np.arange(size) + 0.5) / size for size in (experts, len(ranked)))
        # A token's experts are distinct, so the most popular is at most in every token.
        wanted = np.minimum(np.interp(places, known, ranked), ranked.sum() * experts / len(ranked) / shape.top_k)
        place = np.argsort(layer_draws(seed, layer, experts), kind="stable")
        found.append(np.maximum(np.rint(wanted * 1000), 1).astype(np.int64)[place])
        shares.append(overlaps[source])
    return found, shares


def _fit(count: NDArray[np.int64], overlap: float, draw: NDArray[np.float64]) -> NDArray[np.int16]:
    """One layer's experts, i16 [tokens, top_k], with the popularity `count`, i64 [experts], and the overlap.

    draw: f64 [tokens, 2, top_k].
    """
    tokens, _, top_k = draw.shape
    wanted = count * (tokens * top_k / count.sum())
    weight, keep = wanted / wanted.max(), overlap
    expert = np.empty((tokens, top_k), np.int16)
    for _ in range(ROUNDS):
        draw_alike(weight, keep, draw, expert)
        made = np.bincount(expert.reshape(-1), minlength=len(count))
        # In proportion to the difference: a ratio would be biased by rare experts, whose counts vary most by chance.
        weight = weight * np.maximum(1 + (wanted - made) / (wanted + SLACK), 0.2)
        weight /= weight.max()
        keep = min(max(keep + overlap - _overlap(expert, len(count)), 0.0), 1.0)
    draw_alike(weight, keep, draw, expert)
    return expert


def _overlap(expert: NDArray[np.int16], n_experts: int) -> float:
    """Share of each token's experts that the token before it also has. expert: i16 [tokens, top_k]."""
    tokens, top_k = expert.shape
    last_token = np.full(n_experts, -1, np.int64)
    shared, compared = count_overlap(
        np.arange(tokens + 1) * top_k, np.ones(tokens, np.int32), expert.reshape(-1), last_token, np.zeros(2, np.int64)
    )
    return float(shared / compared)


def _measure(trace: RoutingTrace) -> tuple[list[NDArray[np.int64]], list[float]]:
    """For each layer, tokens that use each expert, i64 [experts], and the overlap, without calls of unknown tokens."""
    counts, overlaps = [], []
    for view in trace.by_layer:
        tokens, length = trace.n_tokens[view.call], np.diff(view.offset)
        last_token = np.full(trace.n_experts[view.layer], -1, np.int64)
        shared, compared = count_overlap(view.offset, tokens, view.expert, last_token, np.zeros(2, np.int64))
        if not compared:
            raise BadInput(
                f"{trace.name or 'trace'}: layer {view.layer} has no two tokens in a row; its overlap is not known"
            )
        known = view.expert[np.repeat((tokens > 0) & (length == tokens * trace.top_k), length)]
        counts.append(np.bincount(known, minlength=len(last_token)))
        overlaps.append(shared / compared)
    return counts, overlaps


def _skew(counts: Sequence[NDArray[np.int64]], overlaps: Sequence[float]) -> Skew:
    weights = [count.sum() for count in counts]
    values = [
        (top_decile_share(count), normalised_entropy(count), overlap)
        for count, overlap in zip(counts, overlaps, strict=True)
    ]
    return Skew(*map(float, np.average(values, axis=0, weights=weights)))
