"""Random traces, and traces written out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from flashmoe_sim.trace.routing import RoutingTrace, infer_n_experts

Call = tuple[int, Sequence[int]]


def trace_of(
    *calls: Call, n_tokens: Sequence[int] | None = None, slots: Sequence[Sequence[int]] | None = None, **fields: object
) -> RoutingTrace:
    """A trace of (layer, experts) calls, of one token each unless said."""
    layer = np.array([layer for layer, _ in calls], dtype=np.int16)
    expert = np.array([expert for _, experts in calls for expert in experts], dtype=np.int16)
    offset = np.cumsum([0, *(len(experts) for _, experts in calls)], dtype=np.int64)
    given = {
        "n_tokens": np.array(n_tokens or [1] * len(calls), dtype=np.int32),
        "n_experts": infer_n_experts(layer, expert),
        "slot": None if slots is None else np.array([one for some in slots for one in some], dtype=np.int16),
    }
    return RoutingTrace(layer=layer, offset=offset, expert=expert, **{**given, **fields})  # type: ignore[arg-type]


@st.composite
def random_traces(draw: st.DrawFn, *, plain: bool = False) -> RoutingTrace:
    """Traces of up to 40 calls; `plain` ones hold nothing that the runtime's layout cannot."""
    calls = draw(st.integers(0 if not plain else 1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    experts = draw(st.integers(1, 12))
    width = rng.integers(1, 5, calls)
    tokens = rng.integers(1, 4, calls).astype(np.int32)
    offset = np.cumsum([0, *(width * tokens)], dtype=np.int64)
    references = int(offset[-1])
    layer = rng.integers(0, 4, calls).astype(np.int16)
    expert = rng.integers(0, experts, references).astype(np.int16)

    def maybe(values: np.ndarray) -> np.ndarray | None:
        return values if draw(st.booleans()) else None

    slot = maybe(rng.integers(0, 6, references).astype(np.int16))
    if plain:
        top_k = int(width[0]) if len(set(width.tolist())) == 1 else 0
        return RoutingTrace(layer, tokens, offset, expert, infer_n_experts(layer, expert), top_k=top_k, slot=slot)
    by_layer = {int(number): int(rng.integers(1, 1 << 40)) for number in range(4)}
    return RoutingTrace(
        layer=layer,
        n_tokens=tokens * draw(st.sampled_from([0, 1])),
        offset=offset,
        expert=expert,
        n_experts=dict.fromkeys(range(4), experts),
        n_experts_known=draw(st.booleans()),
        top_k=draw(st.integers(0, 8)),
        weight=maybe(rng.random(references, dtype=np.float32)),
        slot=slot,
        resident=maybe(rng.integers(0, 2, references).astype(np.uint8)),
        phase=maybe(rng.integers(0, 3, calls).astype(np.uint8)),
        sequence=maybe(rng.integers(0, 3, calls).astype(np.int32)),
        step=maybe(np.sort(rng.integers(0, 9, calls)).astype(np.int32)),
        expert_bytes=draw(st.sampled_from([None, {}, by_layer])),
        dense_bytes=draw(st.sampled_from([None, {}, by_layer])),
        format=draw(st.sampled_from(["", "runtime-jsonl"])),
        name=draw(st.text(max_size=8)),
        notes=tuple(draw(st.lists(st.text(max_size=8), max_size=2))),
    )


@st.composite
def model_traces(draw: st.DrawFn, *, most: int = 4) -> list[RoutingTrace]:
    """Traces of one model, of unequal lengths: missing calls, prompts of several tokens, several passes in a step."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    layers, experts = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    width = draw(st.integers(1, 4))
    prompts, recorded, ragged = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())

    def one(number: int) -> RoutingTrace:
        rows = []  # of (step, layer, tokens, width)
        for step in range(int(rng.integers(1, 12))):
            tokens = int(rng.integers(1, 5)) if prompts and step < 3 else 1
            for _ in range(1 + (recorded and rng.random() < 0.2)):
                rows += [
                    (step, layer, 0 if ragged and rng.random() < 0.1 else tokens, width + (ragged and step == 1))
                    for layer in range(layers)
                    if rng.random() < 0.8
                ]
        rows += [(12, layer, 1, width) for layer in range(layers)]
        step, layer, tokens, each = (np.array(column) for column in zip(*rows, strict=True))
        offset = np.cumsum([0, *(each * np.maximum(tokens, 1))], dtype=np.int64)
        references = int(offset[-1])

        def maybe(values: np.ndarray) -> np.ndarray | None:
            return values if draw(st.booleans()) else None

        return RoutingTrace(
            layer=layer.astype(np.int16),
            n_tokens=tokens.astype(np.int32),
            offset=offset,
            expert=rng.integers(0, experts, references).astype(np.int16),
            n_experts=dict.fromkeys(range(layers), experts),
            n_experts_known=draw(st.booleans()),
            top_k=draw(st.sampled_from([0, width])),
            weight=maybe(rng.random(references, dtype=np.float32)),
            slot=maybe(rng.integers(0, 6, references).astype(np.int16)),
            phase=maybe(np.where(step < 3, 1, 2).astype(np.uint8)),
            sequence=maybe((step // 5).astype(np.int32)),
            step=(step + 7 * (rng.random() < 0.5)).astype(np.int32) if recorded else None,
            name=f"part {number}",
        )

    return [one(number) for number in range(draw(st.integers(1, most)))]
