"""CSV from tracers for llama.cpp that number tokens.

With the header `phase,token,layer,rank,expert`, a row per expert (Cartaz/llama.cpp-vulkan-moe); or without a header,
`position,layer,id0,id1,…`, a row per token and layer, where tokens of the prompt have negative positions
(tools/moe-trace of thecodacus/llama.cpp, 380d831). Tokens of a batch are consecutive, layer after layer, so the first
batch shows how many tokens a pass had.

Some of these tools read the strided view of the top-k experts as contiguous: all ids after the first token of a batch
are then wrong. Such a file can be recognised: the first tokens of a batch name every expert once.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.notes import MISREAD, Note
from flashmoe_sim.trace.calls import run_starts
from flashmoe_sim.trace.csv_rows import TextColumn, read_rows
from flashmoe_sim.trace.lines import numbered_lines, trace_name
from flashmoe_sim.trace.plain_csv import PHASES
from flashmoe_sim.trace.request_calls import trace_of_requests
from flashmoe_sim.trace.requests import DEFAULTS, ReadOptions, Request
from flashmoe_sim.trace.routing import PHASE_PROMPT, RoutingTrace
from flashmoe_sim.trace.source import open_bytes
from flashmoe_sim.trace.token_rows import TokenRows, requests_of_rows
from flashmoe_sim.trace.totals import totals_of

FORMAT = "moe-trace-csv"
HEADER = ["phase", "token", "layer", "rank", "expert"]
MOST_TOKENS = (1 << 31) - 1


def read(path: Path, options: ReadOptions = DEFAULTS) -> RoutingTrace:
    """Read a trace; see `trace_of_requests`. A prompt that follows a decoded token begins another request.

    Raises BadInput with the line number for a malformed row, unless lenient; and for a matrix of counts.
    """
    with open_bytes(path) as stream:
        _, first = next(numbered_lines(stream, path=path))
        header = first.decode("utf-8", "replace").strip().lower().split(",")
        named = header == HEADER
        if not named:
            header = ["position", "layer", *(f"id{rank}" for rank in range(len(header) - 2))]
        columns = _columns(header)
        rows = read_rows(
            stream, options, path=path, number=2, header=header, columns=columns, first=b"" if named else first
        )
    value = {name: values.astype(np.int64) for name, values in rows.values.items()}
    if named:
        prompt, position = value["phase"] == PHASE_PROMPT, value["token"]
        expert, rank = value["expert"][:, np.newaxis], value["rank"]
    else:
        prompt, position = value["position"] < 0, value["position"]
        expert, rank = np.stack([value[name] for name in header[2:]], axis=1), None
        if len(np.unique(position)) == len(position) and len(np.unique(value["layer"])) > 1:
            raise totals_of(path, f"lines of {len(header)} numbers, no two of one token")
    request = np.zeros(len(prompt), np.int64)
    request[1:] = np.cumsum(prompt[1:] & ~prompt[:-1])
    table = TokenRows(request, position, value["layer"], expert, rank)
    chunk = _batch(table.layer, position, prompt)
    hints = replace(options.hints, prefill_chunk=options.hints.prefill_chunk or chunk)
    layers, requests = requests_of_rows(table, prompt, hints=hints, where=path.name)
    misread = _misread(requests, chunk)
    options = replace(options, hints=replace(hints, moe_layers=hints.moe_layers or layers))
    return trace_of_requests(
        requests,
        format=FORMAT,
        name=trace_name(path),
        options=options,
        notes=(*misread, *rows.notes),
    )


def _columns(header: list[str]) -> list[TextColumn]:
    known = {
        "phase": TextColumn("phase", words=PHASES),
        "token": TextColumn("token", high=MOST_TOKENS),
        "position": TextColumn("position", low=-MOST_TOKENS, high=MOST_TOKENS),
    }
    return [known.get(name, TextColumn(name)) for name in header]


def _batch(layer: NDArray[np.int64], position: NDArray[np.int64], prompt: NDArray[np.bool_]) -> int | None:
    """The most consecutive prompt tokens in one layer; None without a prompt."""
    starts = run_starts(layer, prompt)
    tokens = np.maximum.reduceat(position, starts) - np.minimum.reduceat(position, starts) + 1
    return int(tokens[prompt[starts]].max(initial=0)) or None


def _misread(requests: list[Request], chunk: int | None) -> tuple[str, ...]:
    """A note if, in every layer, the first batch of a prompt names each expert once before any twice."""
    for request in requests:
        ids = request.expert[: min(request.prompt, chunk or 0)]
        experts = int(request.expert.max()) + 1
        tokens, layers, k = ids.shape
        if experts < 2 * k or tokens * k < experts:
            continue
        first = np.sort(ids.transpose(1, 0, 2).reshape(layers, -1)[:, :experts], axis=1)
        if (first == np.arange(experts)).all():
            return (
                Note(
                    MISREAD,
                    f"{request.where}: the first {-(-experts // k)} prompt tokens name each of {experts} experts once "
                    "in every layer: the recorder took strided ids for contiguous ones; all but the first token of "
                    "a batch are wrong",
                ),
            )
    return ()
