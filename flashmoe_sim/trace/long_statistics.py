"""Statistics of a trace that is read in chunks, with memory that does not grow with its length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.trace.chunk import Chunk, Last, LongTrace, steps_after
from flashmoe_sim.trace.layer_counts import LayerCounts
from flashmoe_sim.trace.routing import PHASE_PROMPT
from flashmoe_sim.trace.statistics import TraceStatistics, aliased_by_call, check_asked, summary

NO_PROMPT_SHARE = "prompt share: left out, since phases that were not recorded follow from all steps at once"
NO_STEPS = "steps: left out, since their numbers do not ascend"


def inspect_chunks(trace: LongTrace, *, banks: Sequence[int] = ()) -> tuple[TraceStatistics, list[str]]:
    """The statistics of `inspect`, and a line for each that is None because it needs the whole trace.

    Raises what `inspect` raises.
    """
    head = trace.head
    layers = [LayerCounts(layer, head.n_experts[layer]) for layer in head.layers]
    prompt_tokens = np.zeros(len(layers), np.int64)
    aliased, last, steps, ascending = 0, Last(), 0, True
    any_phase = uncounted = False
    for chunk in trace.read():
        if not chunk.calls:
            continue
        for view, counted in zip(chunk.by_layer, layers, strict=True):
            counted.add(view, chunk.n_tokens[view.call])
        aliased += int(aliased_by_call(chunk).sum())
        step = steps_after(chunk, last)
        change = np.diff(step, prepend=step[0] if not last.calls else last.step)
        ascending = ascending and not (change < 0).any()
        steps += int(np.count_nonzero(change)) + (not last.calls)
        last = Last(int(chunk.layer[-1]), int(step[-1]), last.calls + chunk.calls)
        if chunk.phase is not None:
            prompt = chunk.phase == PHASE_PROMPT
            any_phase |= bool(chunk.phase.any())
            uncounted |= bool((chunk.n_tokens[prompt & chunk.has_refs] == 0).any())
            prompt_tokens += _by_layer(chunk, chunk.n_tokens * prompt)
    check_asked(head.name, last.calls, banks)
    tokens = np.array([counted.tokens for counted in layers])
    busiest = int(np.argmax(tokens))
    told = any_phase and not uncounted and tokens[busiest] > 0
    found = summary(
        head,
        layers,
        steps=steps if ascending else None,
        aliased_refs=aliased if head.slot is not None else None,
        prompt_share=float(prompt_tokens[busiest] / tokens[busiest]) if told else None,
        phases_recorded=any_phase,
        banks=banks,
    )
    return found, [*([] if head.phase is not None else [NO_PROMPT_SHARE]), *([] if ascending else [NO_STEPS])]


def _by_layer(chunk: Chunk, values: NDArray[np.int32]) -> NDArray[np.int64]:
    row = np.searchsorted(chunk.layers, chunk.layer)
    return np.bincount(row, values, len(chunk.layers)).astype(np.int64)
