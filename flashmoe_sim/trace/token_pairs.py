"""Per-token pair lists: one JSON line per token, `[[layer, expert], ...]`, layer after layer, in router-rank order.

Source: the collectors of nvmoe (`traces/*.tokens.jsonl`), which record decoded tokens only.
"""

from __future__ import annotations

from array import array
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Malformed
from flashmoe_sim.trace.calls import ID_MAX, pair_array, run_starts, uniform_top_k, with_end
from flashmoe_sim.trace.lines import MAX_LINE_BYTES, Skipped, json_lines, line_blocks, trace_name
from flashmoe_sim.trace.requests import DEFAULTS, ReadOptions
from flashmoe_sim.trace.routing import PHASE_DECODE, RoutingTrace, infer_n_experts
from flashmoe_sim.trace.source import open_bytes

TO_SPACES = bytes.maketrans(b"[],", b"   ")


def read(path: Path, options: ReadOptions = DEFAULTS) -> RoutingTrace:
    """Read a trace: one call per layer of a line, one step per line, every token decoded.

    An incomplete last line without its newline is dropped and noted.
    Raises BadInput with the line number for any other malformed line, unless lenient.
    """
    flat, width = array("h"), array("q")  # of all tokens: an array per token would take more memory than its pairs
    skipped, lines = Skipped(path, lenient=options.lenient), 0
    with open_bytes(path) as stream:
        for block in line_blocks(stream, path=path, first_line=1, progress=options.progress):
            if (plain := _plain(block)) is not None:
                flat.frombytes(plain[0].tobytes())
                width.extend(plain[1])
            else:
                for _, pairs in json_lines(BytesIO(block), _token, skipped=skipped, before=lines):
                    flat.frombytes(pairs.tobytes())
                    width.append(len(pairs))
            lines += block.count(b"\n")
    if not width:
        raise Malformed(f"{path}: holds no complete token; expected lines of [layer, expert] pairs")
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


def _plain(block: bytes) -> tuple[NDArray[np.int16], list[int]] | None:
    """The pairs of whole lines, i16 [pairs, 2], and how many each has; None if a line is not written as usual.

    Four times as fast as a parser of JSON. Its numbers are right if they are written as the lines are.
    """
    import orjson

    text = block.replace(b", ", b",").removesuffix(b"\n")
    lines = block.splitlines(keepends=True)
    if text.translate(None, b"0123456789[],\n") or max(map(len, lines)) > MAX_LINE_BYTES:
        return None
    numbers = np.fromstring(text.translate(TO_SPACES), np.int64, sep=" ")
    pairs = numbers[: len(numbers) // 2 * 2].reshape(-1, 2)
    if orjson.dumps(pairs, option=orjson.OPT_SERIALIZE_NUMPY) != text.replace(b"]]\n[[", b"],["):
        return None
    width = [line.count(b"[") - 1 for line in lines]
    token = np.repeat(np.arange(len(width)), width)
    starts = run_starts(pairs[:, 0], token)
    runs = np.sort(token[starts] * (ID_MAX + 1) + pairs[starts, 0])
    if pairs.max() > ID_MAX or (runs[1:] == runs[:-1]).any():
        return None
    return pairs.astype(np.int16), width


def _token(line: bytes) -> NDArray[np.int16]:
    """The pairs of one line, i16 [pairs, 2]; raises ValueError, saying what is wrong with it."""
    import orjson

    pairs = pair_array(orjson.loads(line))
    layers = pairs[run_starts(pairs[:, 0]), 0].tolist()
    if len(set(layers)) != len(layers):
        apart = min(layer for layer in layers if layers.count(layer) > 1)
        raise ValueError(f"the experts of layer {apart} are not next to each other")
    return pairs
