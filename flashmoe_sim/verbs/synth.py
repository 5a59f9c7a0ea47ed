"""`sim trace synth`: a workload made without a recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from warnings import warn

from flashmoe_sim.options import option_field
from flashmoe_sim.verbs.base import Message, Stages, stage
from flashmoe_sim.verbs.trace_file import TraceFile, WrittenTrace

if TYPE_CHECKING:
    from flashmoe_sim.residency.workload import Workload
    from flashmoe_sim.trace.synth_curve import CurveFit
    from flashmoe_sim.trace.synth_like import LikeFit
    from flashmoe_sim.verbs.base import Progress
    from flashmoe_sim.verbs.given import Load, Model, Trace


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

    def made(self, progress: Progress | None = None) -> Synthesized:
        """Make the trace."""
        from flashmoe_sim.geometry.recordings import find_shape
        from flashmoe_sim.residency.workload import prepare
        from flashmoe_sim.trace.synth import synthesize
        from flashmoe_sim.trace.synth_curve import check_hit_points, read_hit_points
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


@dataclass(frozen=True, kw_only=True)
class SynthFile(TraceFile, Synth):
    """Make a trace, and write it."""

    reads: ClassVar[bool] = True
    help: ClassVar[str] = """Make a trace from what is known about a workload.

    With --curve, LRU hits as often as the points say, within half a percentage point (contract atomic, a bank for each
    layer). A curve that stops rising below 100% belongs to a short run: its largest banks miss only first uses, whose
    number is limited. --tokens and --prompt, or else --curve-tokens, must then match that run. For other policies the
    trace says little: no expert stays popular in it.

    With --like, experts are as popular, and recur in the next token as often, as in TRACE, for any number of tokens;
    with --model, in that model's layers. With --null they are drawn by chance: only where real routing differs from it
    can a policy gain.

    \b
    Example:  sim trace synth --curve 16:0.588,32:0.728,64:0.818 --tokens 500 \\
              --model qwen3.5-35b-a3b:ud-iq2_m --topk 4 --out made.parquet
    """

    def run(self, stages: Stages | None = None, load: Load | None = None, message: Message = warn) -> WrittenTrace:
        """Make the trace, and write it."""
        from flashmoe_sim.trace.load import load_trace
        from flashmoe_sim.trace.synth_curve import read_hit_points

        question = self
        if self.curve is not None and not isinstance(self.curve, Mapping):
            points = read_hit_points(self.curve)
            if 0 < (most := max(points.values())) <= 0.01:
                message(
                    f"{self.curve}: hits {most:.2%} at most; a column hit_pct is in per cent, a column hit_rate is "
                    "0 to 1"
                )
            question = replace(question, curve=points)
        if self.like is not None:
            question = replace(question, like=(load or load_trace)(str(self.like)))
        found = question.made(stage(stages, "making a trace"))
        trace = found.workload.trace
        fit = {} if found.fit is None else {"fit": asdict(found.fit)}
        return WrittenTrace({**self.write(trace, stages), "notes": list(trace.notes), **fit}, trace.notes)
