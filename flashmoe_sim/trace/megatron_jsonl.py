"""The output of Megatron-LM's `--moe-routing-trace-path`: an object per layer, step and rank, in a file per rank.

`{"step":0,"stage":"pre_dispatch","block":"decoder","layer":3,"rank":0,"num_tokens":2,"topk":2,"top_indices":[[4,9],[9,1]]}`

A step is a pass over the model; a token's ids ascend unless a graph-safe sink wrote them. Concatenated files of several
ranks are joined step by step. Source: megatron/core/transformer/moe/router_trace.py@059f0f5.
"""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flashmoe_sim.io import strict_json
from flashmoe_sim.io.errors import Malformed, shown
from flashmoe_sim.io.files import BOM
from flashmoe_sim.trace.calls import ID_MAX, ranges, run_starts, token_ids
from flashmoe_sim.trace.lines import Skipped, json_lines, trace_name
from flashmoe_sim.trace.requests import DEFAULTS, ReadOptions
from flashmoe_sim.trace.routing import RoutingTrace, uniform_trace
from flashmoe_sim.trace.source import open_bytes

FORMAT = "megatron-jsonl"
MOST_STEP = (1 << 31) - 1
LONGEST_LINE = 64 << 20


class Record(NamedTuple):
    """One line: what it belongs to, and its tokens."""

    step: int
    layer: int
    rank: int
    tokens: int
    ids: list[int]

    @property
    def top_k(self) -> int:
        return len(self.ids) // self.tokens


def read(path: Path, options: ReadOptions = DEFAULTS) -> RoutingTrace:
    """Read a trace: a call for every step and layer, with the tokens of all ranks in order.

    Records of multi-token prediction (block `mtp`) are left out. Steps are counted from 0 in ascending order.
    Raises BadInput with the line number for a malformed line, unless lenient.
    """
    skipped = Skipped(path, lenient=options.lenient)
    keys: list[tuple[int, int, int, int]] = []  # step, layer, rank, tokens
    experts, width = array("h"), array("q")
    first: dict[tuple[int, int, int], int] = {}  # the line of a step, layer and rank
    mtp = top_k = top_k_line = 0
    with open_bytes(path) as stream:
        records = json_lines(stream, _record, skipped=skipped, progress=options.progress, most_bytes=LONGEST_LINE)
        for number, record in records:
            if record is None:
                mtp += 1
                continue
            if not record.tokens:
                continue
            top_k, top_k_line = (top_k, top_k_line) if top_k else (record.top_k, number)
            if record.top_k != top_k:
                skipped.line(
                    number, f"tokens of {record.top_k} experts, but of {top_k} in line {top_k_line} (mixed top-k)"
                )
            elif (before := first.setdefault(record[:3], number)) != number:
                skipped.line(
                    number,
                    f"step {record.step}, layer {record.layer} of rank {record.rank} is also in line {before}; "
                    "expected once: give two recordings as two files, of training with one microbatch a step",
                )
            else:
                keys.append((record.step, record.layer, record.rank, record.tokens))
                experts.extend(record.ids)
                width.append(len(record.ids))
    if not keys:
        raise Malformed(f"{path}: holds no routed tokens; record it with --moe-routing-trace-path")
    step, layer, rank, tokens = (np.array(column, np.int64) for column in zip(*keys, strict=True))
    order = np.lexsort((rank, layer, step))
    ranks = len(np.unique(rank))
    if ranks > 1 and _all_alike(keys, experts, width):
        order = order[rank[order] == rank.min()]
    length = np.frombuffer(width, np.int64)
    begin = np.cumsum(length) - length
    expert = np.frombuffer(experts, np.int16)[ranges(begin[order], length[order])]
    step, layer, tokens = step[order], layer[order], tokens[order]
    starts = run_starts(step, layer)
    notes = ["experts of a token may be in ascending order: the router-rank order is not recorded for sure"]
    if mtp:
        notes.append(f"{mtp:,} records of multi-token prediction left out")
    if ranks > 1 and len(order) < len(keys):
        notes.append(f"{ranks} ranks with the same tokens: taken once")
    elif ranks > 1:
        notes.append(f"{ranks} ranks joined step by step: each is assumed to hold its own tokens")
    return uniform_trace(
        layer[starts],
        np.add.reduceat(tokens, starts),
        expert,
        top_k,
        step=np.unique(step[starts], return_inverse=True)[1].astype(np.int32),
        format=FORMAT,
        name=trace_name(path),
        notes=(*notes, *skipped.notes()),
    )


def _all_alike(keys: list[tuple[int, int, int, int]], experts: array[int], width: array[int]) -> bool:
    """Whether all ranks have the same ids for every step and layer, as in tensor parallelism."""
    content: dict[int, list[Any]] = {}
    at = 0
    for (step, layer, rank, _), length in zip(keys, width, strict=True):
        content.setdefault(rank, []).append((step, layer, experts[at : at + length].tobytes()))
        at += length
    first, *others = (sorted(records) for records in content.values())
    return all(records == first for records in others)


def _record(line: bytes) -> Record | None:
    """Read one line; None for multi-token prediction. Raises ValueError, saying what is wrong with it."""
    record = strict_json.loads(line.removeprefix(BOM))
    if not isinstance(record, dict):
        raise ValueError(f"{shown(record, 40)}; expected an object")
    if record.get("block") == "mtp":
        return None
    layer = _whole(record, "layer", ID_MAX)
    tokens = record.get("top_indices")
    try:
        ids, top_k = token_ids(tokens)
    except ValueError as error:
        raise ValueError(f"top_indices: {error}") from None
    if sum(map(len, map(set, tokens or ()))) < len(ids):
        twice = next(token for token in tokens if len(set(token)) < len(token))  # type: ignore[union-attr]
        raise ValueError(f"a token of {shown(twice, 40)} names an expert twice, which a router never does")
    for key, found in (("num_tokens", len(tokens or ())), ("topk", top_k or None)):
        if found is not None and key in record and record[key] != found:
            raise ValueError(f"{key} is {shown(record[key], 40)}, but top_indices has {found}")
    step = _whole(record, "step", MOST_STEP)
    rank = _whole(record, "rank", MOST_STEP) if "rank" in record else 0
    return Record(step, layer, rank, len(tokens or ()), ids)


def _whole(record: dict[str, Any], key: str, most: int) -> int:
    value = record.get(key)
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{key} is {shown(value, 40)}; expected a whole number 0 to {most}")
    return value
