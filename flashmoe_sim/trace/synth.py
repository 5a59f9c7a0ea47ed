"""Traces made from what is known about a workload: a hit curve, another trace, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from flashmoe_sim.io.errors import Conflict, Incomplete, unknown_name
from flashmoe_sim.trace.nulls import shuffled_null, uniform_null
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.synth_curve import CurveFit, from_curve
from flashmoe_sim.trace.synth_like import LikeFit, alike
from flashmoe_sim.trace.synth_shape import Shape, assemble, check_size

NULLS = {"uniform": uniform_null, "shuffled": shuffled_null}


def synthesize(
    *,
    curve: Mapping[int, float] | tuple[Mapping[int, float] | None, int | None] | None = None,
    like: RoutingTrace | None = None,
    null: str | None = None,
    shape: Shape | None = None,
    tokens: int | None = None,
    prompt: int = 0,
    seed: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[RoutingTrace, CurveFit | LikeFit | None]:
    """A trace made in one of three ways, and how close it came to its targets; None for a null model, which has none.

    curve: see `from_curve`; with the tokens of its run, if they are known.
    like: see `alike`; with `null`, the trace to make a null trace from, call for call.
    null: `uniform`, every expert equally likely in every token, or `shuffled`, a trace without its order.
    shape: layers and experts, if there is no trace to imitate, or in place of that trace's.
    tokens, prompt: each token is one call in every layer.
    progress: called with the layers drawn and all, as often as they will probably be drawn; not for a null model.
    Raises BadInput if the arguments leave something open or contradict each other.
    """
    points, curve_tokens = curve if isinstance(curve, tuple) else (curve, None)
    if (points is not None) + (null is not None or like is not None) != 1:
        raise Conflict("give one of a hit curve, a trace to imitate and a null model")
    if curve_tokens is not None and points is None:
        raise Incomplete("tokens of the curve without a curve; give the curve, or leave them out")
    if like is not None:
        if null is None:
            return alike(like, shape=shape, tokens=tokens, prompt=prompt, seed=seed, progress=progress)
        if shape is not None:
            raise Conflict(
                "a null model of a trace has the trace's experts; leave out the model, layers, experts, top-k"
            )
        if tokens is not None or prompt:
            raise Conflict("a null model of a trace has that trace's tokens; leave them out, or cut the trace first")
        return _null(null)(like, seed=seed), None
    if null == "shuffled":
        raise Incomplete("null model shuffled: reorders the calls of a trace; give the trace to imitate")
    if shape is None:
        raise Incomplete("layers, experts and top-k are unknown; give them, or a model")
    if tokens is None:
        raise Incomplete("the number of tokens is unknown; give it")
    if points is not None:
        return from_curve(
            points, shape, tokens=tokens, prompt=prompt, curve_tokens=curve_tokens, seed=seed, progress=progress
        )
    check_size(shape, tokens=tokens, prompt=prompt, seed=seed)
    same = np.tile(np.arange(shape.top_k, dtype=np.int16), (tokens + prompt, 1))
    every = assemble(shape, [same] * len(shape.n_experts), prompt=prompt, name=shape.name, notes=())
    return _null(str(null))(every, seed=seed).with_(phase=every.phase), None


def _null(kind: str) -> Callable[..., RoutingTrace]:
    if kind not in NULLS:
        raise unknown_name("null model", kind, NULLS)
    return NULLS[kind]
