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
        return RoutingTrace(layer, tokens, offset, expert, infer_n_experts(layer, expert), slot=slot)
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
