"""Per-token pair lists: one JSON line per token, `[[layer, expert], ...]`, layer after layer, in router-rank order.

Source: the collectors of nvmoe (`traces/*.tokens.jsonl`), which record decoded tokens only.
"""

from __future__ import annotations

from array import array
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.trace.calls import pair_array, run_starts, uniform_top_k, with_end
from flashmoe_sim.trace.lines import Skipped, json_lines, trace_name
from flashmoe_sim.trace.requests import DEFAULTS, ReadOptions
from flashmoe_sim.trace.routing import PHASE_DECODE, RoutingTrace, infer_n_experts
from flashmoe_sim.trace.source import open_bytes


def read(path: Path, options: ReadOptions = DEFAULTS) -> RoutingTrace:
    """Read a trace: one call per layer of a line, one step per line, every token decoded.

    An incomplete last line without its newline is dropped and noted.
    Raises BadInput with the line number for any other malformed line, unless lenient.
    """
    flat, width = array("h"), array("q")  # of all tokens: an array per token would take more memory than its pairs
    skipped = Skipped(path, lenient=options.lenient)
    with open_bytes(path) as stream:
        for _, pairs in json_lines(stream, _token, skipped=skipped, progress=options.progress):
            flat.frombytes(pairs.tobytes())
            width.append(len(pairs))
    if not width:
        raise BadInput(f"{path}: holds no complete token; expected lines of [layer, expert] pairs")
    pairs = np.frombuffer(flat, np.int16).reshape(-1, 2)
    token = np.repeat(np.arange(len(width), dtype=np.int32), np.frombuffer(width, np.int64))
    layer, expert = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
    starts = run_starts(layer, token)
    offset = with_end(starts, len(expert))
    n_tokens = np.ones(len(starts), dtype=np.int32)
    return RoutingTrace(
        layer=layer[starts],
        n_tokens=n_tokens,
        offset=offset,
        expert=expert,
        n_experts=infer_n_experts(layer, expert),
        top_k=uniform_top_k(offset, n_tokens),
        phase=np.full(len(starts), PHASE_DECODE, dtype=np.uint8),
        step=token[starts],
        format="token-pairs",
        name=trace_name(path),
        notes=skipped.notes(),
    )


def _token(line: bytes) -> NDArray[np.int16]:
    """The pairs of one line, i16 [pairs, 2]; raises ValueError, saying what is wrong with it."""
    import orjson

    pairs = pair_array(orjson.loads(line))
    layers = pairs[run_starts(pairs[:, 0]), 0].tolist()
    if len(set(layers)) != len(layers):
        apart = min(layer for layer in layers if layers.count(layer) > 1)
        raise ValueError(f"the experts of layer {apart} are not next to each other")
    return pairs
