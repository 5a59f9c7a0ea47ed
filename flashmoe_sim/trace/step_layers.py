"""One JSON document of a request: a list of steps, each an object of layers, each the experts of every token.

`[{"0":null,"1":[[3,0],[0,2]]},{"0":null,"1":[[2,3]]}]`: the first step is the whole prompt, the others a token or more
each; layers without routing are null. Source: the data set core12345/MoE_expert_selection_trace.
"""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import numpy as np

from flashmoe_sim.io.errors import Malformed, shown
from flashmoe_sim.trace.calls import ID_MAX, token_ids
from flashmoe_sim.trace.cut import shown_layers
from flashmoe_sim.trace.lines import trace_name
from flashmoe_sim.trace.requests import DEFAULTS, ReadOptions
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, RoutingTrace, uniform_trace
from flashmoe_sim.trace.source import read_json

FORMAT = "step-layers"


def read(path: Path, options: ReadOptions = DEFAULTS) -> RoutingTrace:
    """Read a trace: a call for every layer of a step. lenient changes nothing: one document has no lines to skip.

    Raises BadInput, naming step and layer, for anything but lists of expert ids, and for mixed top-k.
    """
    steps = read_json(path, progress=options.progress)
    calls: list[tuple[int, int, int]] = []  # step, layer, tokens
    experts = array("h")
    unrouted: set[int] = set()
    width = 0
    for number, step in enumerate(steps):
        where = f"{path}: step {number}"
        if not isinstance(step, dict):
            raise Malformed(f"{where} is {shown(step, 40)}; expected an object of layers")
        for key, layer, tokens in sorted((_layer(key, where), key, tokens) for key, tokens in step.items()):
            if tokens is None:
                unrouted.add(key)
                continue
            width = _append(experts, tokens, width, where=f"{where}, layer {layer}")
            calls.append((number, key, len(tokens)))
    if not calls:
        raise Malformed(f"{path}: no layer of any step has routing; record it again")
    step_of, layer_of, n_tokens = (np.array(column) for column in zip(*calls, strict=True))
    silent = unrouted - set(layer_of.tolist())
    notes = ["the first step is assumed to be the prompt, read at once"] if n_tokens[0] > 1 else []
    if silent:
        notes.append(f"layers without routing: {shown_layers(silent)}")
    return uniform_trace(
        layer_of,
        n_tokens,
        np.frombuffer(experts, np.int16),
        width,
        phase=np.where((step_of == 0) & (n_tokens[0] > 1), PHASE_PROMPT, PHASE_DECODE).astype(np.uint8),
        step=step_of.astype(np.int32),
        format=FORMAT,
        name=trace_name(path),
        notes=tuple(notes),
    )


def _layer(key: str, where: str) -> int:
    if not key.isascii() or not key.isdecimal() or len(key) > 5 or int(key) > ID_MAX:
        raise Malformed(f"{where} has layer {shown(key, 40)}; expected a number 0 to {ID_MAX}")
    return int(key)


def _append(experts: array[int], tokens: Any, width: int, *, where: str) -> int:
    """Add the ids of a call, and return how many each token has; raises BadInput for anything else."""
    try:
        ids, found = token_ids(tokens)
    except ValueError as error:
        raise Malformed(f"{where}: {error}") from None
    if not ids or found != (width or found):
        listed = f"{width} and {found}" if ids else "no"
        raise Malformed(f"{where}: tokens of {listed} experts (mixed top-k); expected one number")
    experts.extend(ids)
    return found
