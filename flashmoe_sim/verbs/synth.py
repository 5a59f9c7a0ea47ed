"""`sim trace synth`: a workload made without a recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flashmoe_sim.options import option_field

if TYPE_CHECKING:
    from flashmoe_sim.residency.workload import Workload
    from flashmoe_sim.trace.synth_curve import CurveFit
    from flashmoe_sim.trace.synth_like import LikeFit
    from flashmoe_sim.verbs.base import Progress
    from flashmoe_sim.verbs.given import Model, Trace


@dataclass(frozen=True, eq=False)
class Synthesized:
    """A made trace with its model, and how close it came to its targets; None for a null model, which has none."""

    workload: Workload
    fit: CurveFit | LikeFit | None


@dataclass(frozen=True, kw_only=True)
class Synth:
    """Make a trace from a hit curve, another trace or chance, like `sim trace synth`.

    docs/guides/what-if.md explains.

    >>> made = synth(curve={16: 0.588, 32: 0.728, 64: 0.818}, layers=40, experts=256, top_k=4, tokens=500)
    >>> replay(made, bank=32, contract="atomic")["hit_rate"].round(3).item()
    0.728

    The result is described in `.trace.notes`.
    Raises BadInput for missing or contradictory arguments, and for a curve that no such trace can have.
    """

    curve: str | Path | Mapping[int, float] | None = option_field(
        None,
        "POINTS",
        "LRU hit rates by slots of a layer: 16:0.588,32:72.8%, or a published table with a column bank or slots, "
        "and one hit_pct or hit_rate.",
    )
    curve_tokens: int | None = option_field(
        None, "R", "Tokens of the run behind the curve, prompt included; default: as many as the trace has."
    )
    like: Trace | None = option_field(None, "TRACE", "Imitate the popularity and the token overlap of this trace.")
    null: str | None = option_field(
        None,
        "KIND",
        "uniform: every expert equally likely; shuffled: the calls of --like, each layer's in another order.",
    )
    model: Model | None = option_field(None, "SPEC", "The model, for layers, experts and top-k.")
    layers: int | None = option_field(None, "L", "Without a model: the number of layers.")
    experts: int | None = option_field(None, "N", "Without a model: the experts per layer.")
    top_k: int | None = option_field(None, "K", "Experts per token, if not the model's.", flag="--topk")
    tokens: int | None = option_field(None, "T", "Tokens to decode; with --like as many as TRACE has.")
    prompt: int = option_field(0, "P", "Prompt tokens before them, also one per call.")
    seed: int = option_field(1, "N", "Seed of the random draws.")

    def run(self, progress: Progress | None = None) -> Synthesized:
        """Make the trace."""
        from flashmoe_sim.geometry.shape import find_shape
        from flashmoe_sim.residency.workload import prepare
        from flashmoe_sim.trace.hit_points import check_hit_points, read_hit_points
        from flashmoe_sim.trace.synth import synthesize
        from flashmoe_sim.verbs.given import workload_of

        curve = self.curve
        if curve is not None:
            curve = check_hit_points(curve.items()) if isinstance(curve, Mapping) else read_hit_points(curve)
        other = None if self.like is None else workload_of(self.like)
        made, fit = synthesize(
            curve=(curve, self.curve_tokens),
            like=None if other is None else other.trace,
            null=self.null,
            shape=find_shape(self.model, layers=self.layers, n_experts=self.experts, top_k=self.top_k),
            tokens=self.tokens,
            prompt=self.prompt,
            seed=self.seed,
            progress=progress,
        )
        return Synthesized(workload_of(made, self.model) if other is None else prepare(made, other.geometry), fit)
