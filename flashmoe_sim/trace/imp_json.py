"""The output of imp's `diagnostics.moe_expert_trace`: a JSON document of decoded tokens, a record per token and layer.

`{"top_k":2,"trace":[[1,3,0],[2,1,2]]}`: a record is a layer and its experts, in the order in which they were computed;
or all numbers are in one list, which `top_k` divides. Source: kekzl/imp tools/analysis/expert_cache_sim.py@6e67989.
"""

from __future__ import annotations

from array import array
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Incomplete, Malformed, shown
from flashmoe_sim.trace.calls import check_whole, run_starts
from flashmoe_sim.trace.lines import trace_name
from flashmoe_sim.trace.requests import DEFAULTS, ReadOptions
from flashmoe_sim.trace.routing import PHASE_DECODE, RoutingTrace, uniform_trace
from flashmoe_sim.trace.source import read_json
from flashmoe_sim.trace.totals import totals_of

FORMAT = "imp-json"
MOST_APART = 4  # layers from one with experts to the next
KEYS = ("trace", "entries", "data")


def read(path: Path, options: ReadOptions = DEFAULTS) -> RoutingTrace:
    """Read a trace: a call for every record, a step for every token. lenient changes nothing: there are no lines.

    Consecutive records of one layer are one call: tokens of several sequences.
    Raises BadInput, naming the record, for mixed top-k, a repeated expert, and a list that cannot be divided into
    records; and for a matrix of counts: lists, without top_k, whose first numbers hardly recur.
    """
    document = read_json(path, progress=options.progress)
    top_k = options.hints.top_k
    if isinstance(document, dict):
        top_k = top_k or document.get("top_k")
        document = next((document[key] for key in KEYS if isinstance(document.get(key), list)), None)
    table = _table(path, document, top_k)
    layer, expert = table[:, 0], table[:, 1:]
    if top_k is None and _hardly_recurs(layer):
        raise totals_of(path, f"{len(layer)} lists of {table.shape[1]} numbers, whose first numbers are no layers")
    ranked = np.sort(expert, axis=1)
    if (twice := (ranked[:, 1:] == ranked[:, :-1]).any(axis=1)).any():
        record = int(twice.argmax())
        raise Malformed(
            f"{path}: record {record} is {shown(table[record].tolist())}, which names an expert twice; a router never "
            "does: check top_k"
        )
    starts = run_starts(layer) if (layer != layer[0]).any() else np.arange(len(layer))
    tokens = np.diff(np.append(starts, len(layer)))
    together = (f"up to {tokens.max()} tokens in a pass: records of a layer in a row are of several sequences",)
    return uniform_trace(
        layer[starts],
        tokens,
        np.ascontiguousarray(expert).reshape(-1),
        expert.shape[1],
        phase=np.full(len(starts), PHASE_DECODE, np.uint8),
        format=FORMAT,
        name=trace_name(path),
        notes=("prompts are not in the recording: decoded tokens alone", *(together if tokens.max() > 1 else ())),
    )


def _hardly_recurs(layer: NDArray[np.int16]) -> bool:
    """Whether most layers are there once, unless they are the layers of one token, in order."""
    steps = np.unique(np.diff(layer))
    one_token = len(steps) <= 1 and ((steps >= 1) & (steps <= MOST_APART)).all()
    return 2 * len(np.unique(layer)) > len(layer) and not one_token


def _table(path: Path, records: Any, top_k: Any) -> NDArray[np.int16]:
    """The records, i16 [records, 1 + k]: layer and experts."""
    if not isinstance(records, list) or not records:
        raise Malformed(f"{path}: {' / '.join(KEYS)} holds no records; expected lists of a layer and its experts")
    if isinstance(records[0], list):
        widths = {len(record) if isinstance(record, list) else 1 for record in records}
        numbers = list(chain.from_iterable(record for record in records if isinstance(record, list)))
    elif type(top_k) is not int or top_k < 1:
        raise Incomplete(
            f"{path}: {len(records):,} numbers, but no top_k to divide them into records; give --top-k to "
            "`sim trace import`"
        )
    else:
        widths, numbers = {1 + top_k}, records
    if len(widths) > 1 or min(widths) < 2:
        listed = " and ".join(str(width - 1) for width in sorted(widths)[:3])
        raise Malformed(f"{path}: records of {listed} experts (mixed top-k); expected a single top-k")
    width = widths.pop()
    if len(numbers) % width:
        raise Malformed(
            f"{path}: {len(numbers):,} numbers do not divide into records of a layer and {width - 1} experts; check "
            "top_k"
        )
    try:
        check_whole(numbers)
    except ValueError as error:
        raise Malformed(f"{path}: {error}") from None
    return np.frombuffer(array("h", numbers), np.int16).reshape(-1, width)
