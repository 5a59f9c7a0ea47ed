"""Null traces: a trace without its order, or also without its popular experts.

The draws are the raw 64-bit outputs of PCG64, whose stream numpy keeps from version to version, so a seed yields the
same null trace everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import allocating
from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.trace.calls import ranges
from flashmoe_sim.trace.routing import RoutingTrace, offsets


def uniform_null(trace: RoutingTrace, *, seed: int = 1) -> RoutingTrace:
    """The same calls with other experts: in every call each distinct expert is replaced, all experts being equally
    likely.

    Calls, tokens, steps, gate weights and the repeats within a call stay, so that a call requests as many distinct
    experts as before and a token none twice. The experts of different calls are independent.
    """
    draw = _draws(seed, trace.refs)
    layers = list(trace.layers)
    n_experts = np.array([trace.n_experts[layer] for layer in layers], np.int64)
    expert = np.empty_like(trace.expert)
    if trace.refs:
        _relabel(trace.offset, trace.expert, np.searchsorted(layers, trace.layer), n_experts, draw, expert)
    return _null(trace, "uniform", expert=expert)


def shuffled_null(trace: RoutingTrace, *, seed: int = 1) -> RoutingTrace:
    """The same calls in another order: each layer's calls, with tokens and weights, are shuffled among its places.

    Every expert is requested as often as before; only the order is lost.
    """
    draw = _draws(seed, trace.calls)
    source = np.empty(trace.calls, np.int64)
    for view in trace.by_layer:
        source[view.call] = view.call[np.argsort(draw[view.call], kind="stable")]
    length = np.diff(trace.offset)[source]
    offset = offsets(length)
    reference = ranges(trace.offset[source], length)
    tokens = {name: getattr(trace, name) for name in ("n_tokens", "n_text")}
    tokens = {name: None if counts is None else counts[source].copy() for name, counts in tokens.items()}
    weight = None if trace.weight is None else trace.weight[reference]
    return _null(trace, "shuffled", expert=trace.expert[reference], weight=weight, offset=offset, **tokens)


def _draws(seed: int, count: int) -> NDArray[np.uint64]:
    if seed < 0:
        raise OutOfRange(f"seed {seed}: expected 0 or a positive number")
    return np.random.PCG64(seed).random_raw(count)


def _null(trace: RoutingTrace, kind: str, **changes: Any) -> RoutingTrace:
    """The trace with these changes, and without the fields that describe the recorded run."""
    recorded = dict.fromkeys(("slot", "resident", "phase", "sequence"))
    notes = (*trace.notes, f"{kind} null trace: not a recording")
    return trace.with_(**recorded, **changes, step=trace.steps, name=f"{trace.name} ({kind})", notes=notes)


@allocating
def _relabel(offset: Any, expert: Any, row: Any, n_experts: Any, draw: Any, out: Any) -> None:
    """Set `out` to the experts of each call under the call's own random injection.

    row: i64 [calls], the layer's place in n_experts, i64 [layers]. draw: u64 [references].

    The injections are the first steps of Fisher-Yates shuffles of one deck per layer, which need not be sorted between
    calls. The place is the upper half of the draw times the number of places: no place is likelier than another by more
    than 2^-32.
    """
    most = n_experts.max()
    deck = np.empty((len(n_experts), most), np.int64)
    for layer in range(len(n_experts)):
        deck[layer] = np.arange(most)
    last_call = np.full((len(n_experts), most), -1, np.int64)
    renamed = np.zeros((len(n_experts), most), np.int64)
    for call in range(len(offset) - 1):
        layer = row[call]
        dealt = 0
        for r in range(offset[call], offset[call + 1]):
            e = expert[r]
            if last_call[layer, e] != call:
                last_call[layer, e] = call
                left = n_experts[layer] - dealt
                place = dealt + np.int64(((draw[r] >> np.uint64(32)) * np.uint64(left)) >> np.uint64(32))
                deck[layer, dealt], deck[layer, place] = deck[layer, place], deck[layer, dealt]
                renamed[layer, e] = deck[layer, dealt]
                dealt += 1
            out[r] = renamed[layer, e]
