"""The model of a synthetic trace, and the assembly of its layers' drawn experts into a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import OutOfRange, TooLarge
from flashmoe_sim.trace.calls import ID_MAX
from flashmoe_sim.trace.check import MOST_EXPERTS
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, RoutingTrace

MOST_REFS = 1 << 28


@dataclass(frozen=True)
class Shape:
    """The experts of each layer by layer number, and how many of them a token uses.

    n_experts_known: False if `n_experts` was inferred, as in `RoutingTrace`.
    Raises BadInput for a top-k larger than a layer, and for more layers or experts than ids.
    """

    name: str
    n_experts: Mapping[int, int]
    top_k: int
    expert_bytes: Mapping[int, int] | None = None
    n_experts_known: bool = True

    def __post_init__(self) -> None:
        if not self.n_experts or max(self.n_experts) > ID_MAX:
            raise OutOfRange(f"{len(self.n_experts)} layers; expected 1 to {ID_MAX + 1}")
        fewest, most = min(self.n_experts.values()), max(self.n_experts.values())
        if fewest < 1 or most > ID_MAX + 1:
            raise OutOfRange(f"{fewest if fewest < 1 else most} experts; expected 1 to {ID_MAX + 1}")
        if (experts := sum(self.n_experts.values())) > MOST_EXPERTS:
            raise TooLarge(
                f"{len(self.n_experts):,} layers of {experts:,} experts together; expected at most {MOST_EXPERTS:,}"
            )
        if not 1 <= self.top_k <= fewest:
            raise OutOfRange(f"top-k {self.top_k} of {fewest} experts; expected 1 to {fewest}")


def plain_shape(*, layers: int, n_experts: int, top_k: int) -> Shape:
    """A model of which nothing else is known: equal layers, numbered from 0."""
    return Shape(f"{layers} x {n_experts} experts, top-{top_k}", dict.fromkeys(range(layers), n_experts), top_k)


def check_size(shape: Shape, *, tokens: int, prompt: int, seed: int) -> None:
    """Raise BadInput for too few or too many tokens, and for a negative seed."""
    if tokens < 1 or prompt < 0:
        raise OutOfRange(f"{tokens} tokens after a prompt of {prompt}; expected at least 1, and a prompt of 0 or more")
    if seed < 0:
        raise OutOfRange(f"seed {seed}; expected 0 or a positive number")
    refs = (tokens + prompt) * len(shape.n_experts) * shape.top_k
    if refs > MOST_REFS:
        raise TooLarge(f"{tokens + prompt:,} tokens make {refs:,} references; expected at most {MOST_REFS:,}")


def assemble(
    shape: Shape, experts: Sequence[NDArray[np.int16]], *, prompt: int, name: str, notes: Sequence[str]
) -> RoutingTrace:
    """A trace with one call per token and layer, and the first `prompt` tokens marked as prompt.

    experts: by layer in ascending order, i16 [tokens, top_k].
    """
    layers = np.array(sorted(shape.n_experts), np.int16)
    tokens = len(experts[0])
    calls = tokens * len(layers)
    step = np.repeat(np.arange(tokens, dtype=np.int32), len(layers))
    return RoutingTrace(
        layer=np.tile(layers, tokens),
        n_tokens=np.ones(calls, np.int32),
        offset=np.arange(calls + 1, dtype=np.int64) * shape.top_k,
        expert=np.stack(experts, axis=1).reshape(-1),
        n_experts=dict(shape.n_experts),
        n_experts_known=shape.n_experts_known,
        top_k=shape.top_k,
        phase=np.where(step < prompt, PHASE_PROMPT, PHASE_DECODE).astype(np.uint8),
        step=step,
        expert_bytes=shape.expert_bytes,
        format="synth",
        name=name,
        notes=tuple(notes),
    )


def layer_draws(seed: int, layer: int, count: int) -> NDArray[np.float64]:
    """The first `count` random fractions of a layer, f64 [count] in [0, 1): PCG64's raw output, the same everywhere."""
    raw = np.random.PCG64([seed, layer]).random_raw(count)
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53
