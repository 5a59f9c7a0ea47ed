"""Plain CSV: one row per reference, columns named by the header in any order.

Required: `layer`, `expert`. Optional: `step` or `token`, `seq` or `call`, `rank`, `weight`, `slot`, `phase` (prompt or
decode), `sequence`, `n_tokens`. Rows are in the order in which they happened. Consecutive rows with the same step, call
and layer are one routed call; without a step or call column a call therefore begins when the layer changes. A step is
a pass of the engine over all of its tokens, so a new phase or sequence begins no call within it, unless steps are
counted from the start again there. Other columns are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Incomplete, Malformed
from flashmoe_sim.trace.calls import run_starts, uniform_top_k, with_end
from flashmoe_sim.trace.csv_rows import Rows, TextColumn, read_rows
from flashmoe_sim.trace.lines import excerpt, numbered_lines, trace_name
from flashmoe_sim.trace.requests import DEFAULTS, ReadOptions
from flashmoe_sim.trace.routing import (
    PHASE_DECODE,
    PHASE_PROMPT,
    PHASE_UNKNOWN,
    RoutingTrace,
    infer_n_experts,
)
from flashmoe_sim.trace.source import open_bytes
from flashmoe_sim.trace.totals import OF_A_STEP, refuse_totals

MOST = (1 << 31) - 1
PHASES = {"prompt": PHASE_PROMPT, "prefill": PHASE_PROMPT, "decode": PHASE_DECODE, "unknown": PHASE_UNKNOWN}
COLUMNS = {
    column.name: column
    for column in (
        TextColumn("layer"),
        TextColumn("expert"),
        TextColumn("step", high=MOST - 1),  # the number of steps is one higher
        TextColumn("call", high=MOST),
        TextColumn("rank"),
        TextColumn("weight", real=True),
        TextColumn("slot"),
        TextColumn("phase", words=PHASES),
        TextColumn("sequence", high=MOST),
        TextColumn("n_tokens", high=MOST),
    )
}
SYNONYMS = {"token": "step", "seq": "call"}
OWNERS = ("sequence", "phase")


def read(path: Path, options: ReadOptions = DEFAULTS) -> RoutingTrace:
    """Read a trace. Steps are numbered from 0 in the order of the rows.

    n_tokens comes from the column if there is one, else from the number of first ranks in the call, else from the
    hints' top-k. If there are only layers and experts, and the length of every call is a multiple of the most common
    length, that length is one token. Else it is 1 for each request in the call, or 0 (unknown) if an expert occurs
    twice in one of them, whose ranks were not recorded.
    Raises BadInput with the line number for a malformed row, unless lenient or it is a torn last line; for ranks of a
    token that are not in order, values that change within a call, or steps that are out of order; and for counts.
    """
    with open_bytes(path) as stream:
        header, number = _header(path, stream)
        columns = [COLUMNS[name] for name in header if name in COLUMNS]
        unread = [name for name in header if name not in COLUMNS]
        columns += [TextColumn(name, real=True) for name in unread if name in OF_A_STEP]
        rows = read_rows(stream, options, path=path, number=number, header=header, columns=columns)
    refuse_totals(path, rows.values, unread, ordered=not {"step", "call"}.isdisjoint(header))
    top_k = None if options.hints.model else options.hints.top_k  # only part of a model's experts may be recorded
    return trace_of_rows(rows, header, path=path, top_k=top_k, format="plain-csv", name=trace_name(path))


def trace_of_rows(
    rows: Rows, header: Sequence[str], *, path: Path, top_k: int | None, format: str, name: str
) -> RoutingTrace:
    """The trace of rows with columns of COLUMNS; see `read`. header: all columns, including ignored ones."""
    value = rows.values
    owners = [name for name in OWNERS if name in value and _apart(value, name)]
    starts = run_starts(*(value[name] for name in (*owners, "step", "call", "layer") if name in value))
    alone = not {"step", "call", "n_tokens"} & value.keys() and bool((value["layer"] == value["layer"][0]).all())
    if alone:
        starts = _token_starts(path, value, starts, top_k)
    layer, expert = value["layer"].astype(np.int16), value["expert"].astype(np.int16)
    offset = with_end(starts, len(expert))
    n_tokens = _tokens_of_calls(path, rows, offset, top_k)

    phase = sequence = None
    if "phase" in value:
        phase = np.where(_several(value["phase"], starts), PHASE_UNKNOWN, value["phase"][starts]).astype(np.uint8)
    if "sequence" in value and not _several(value["sequence"], starts).any():
        sequence = value["sequence"][starts].astype(np.int32)

    def per_reference(name: str, dtype: Any) -> NDArray[Any] | None:
        return value[name].astype(dtype) if name in value else None

    return RoutingTrace(
        layer=layer[starts],
        n_tokens=n_tokens,
        offset=offset,
        expert=expert,
        n_experts=infer_n_experts(layer, expert),
        top_k=uniform_top_k(offset, n_tokens),
        weight=per_reference("weight", np.float32),
        slot=per_reference("slot", np.int16),
        phase=phase,
        sequence=sequence,
        step=_steps(path, rows, starts) if "step" in value else None,
        format=format,
        name=name,
        notes=(*_notes(header, value, n_tokens, alone=alone), *_pass_notes(value, starts, owners), *rows.notes),
    )


def _token_starts(
    path: Path, value: dict[str, NDArray[Any]], starts: NDArray[np.int64], top_k: int | None
) -> NDArray[np.int64]:
    """Where each token of a single layer begins, i64: without steps, nothing says which of them shared a pass."""
    count = len(value["layer"])
    if "rank" in value:
        return np.union1d(starts, np.flatnonzero(value["rank"] == value["rank"].min()))
    if top_k is not None:
        return np.concatenate([np.arange(begin, end, top_k) for begin, end in pairwise(with_end(starts, count))])
    if count == 1:
        return starts
    raise Incomplete(
        f"{path}: all rows are of layer {value['layer'][0]}, and nothing says where a token ends; give --top-k K to "
        "`sim trace import`, or a column step or rank"
    )


def _apart(value: dict[str, NDArray[Any]], name: str) -> bool:
    """Whether a change in a column of OWNERS begins a call.

    It does not in an engine's own steps, whose numbers never go back, or if rows have several layers and no steps.
    """
    if "call" in value:
        return True
    changes = value[name][1:] != value[name][:-1]
    if "step" in value:
        return bool((changes & (value["step"][1:] < value["step"][:-1])).any())
    return bool((value["layer"] == value["layer"][0]).all())


def _header(path: Path, stream: Any) -> tuple[list[str], int]:
    """The columns' names, synonyms replaced, and the number of the line after them; lines with # are skipped."""
    for number, line in numbered_lines(stream, path=path):
        if not line.strip() or line.startswith(b"#"):
            continue
        names = [name.strip().lower() for name in line.decode("utf-8-sig", "replace").strip().split(",")]
        names = [SYNONYMS.get(name, name) for name in names]
        if twice := sorted(name for name, times in Counter(names).items() if times > 1):
            raise Malformed(f"{path}: line {number}: two columns mean {excerpt(twice[0])}; keep one")
        if missing := {"layer", "expert"} - set(names):
            raise Malformed(f"{path}: line {number}: no column {min(missing)!r}; layer and expert are required")
        return names, number + 1
    raise Malformed(f"{path}: has no header; expected a line with the columns layer and expert")


def _pass_notes(value: dict[str, NDArray[Any]], starts: NDArray[np.int64], owners: Sequence[str]) -> Iterator[str]:
    """What was assumed about the passes of the engine."""
    for name, mixed in (
        ("sequence", "tokens of several requests: requests are not kept apart"),
        ("phase", "prompt and decoded tokens: their phase is unknown"),
    ):
        if name in value and (count := int(_several(value[name], starts).sum())):
            yield f"{count:,} of the calls have {mixed}"
    if "call" in value or "step" not in value:
        return
    if "sequence" in owners:
        yield "each request counts its own steps: which requests shared a pass is not known, and none do here"
    begins = run_starts(*(value[name][starts] for name in (*owners, "step")))
    calls = np.diff(with_end(begins, len(starts)))
    run = np.repeat(np.arange(len(begins)), calls)
    layers = np.bincount(np.unique(run << 16 | value["layer"][starts]) >> 16)
    if count := int((calls > layers).sum()):
        yield (
            f"{count:,} of the steps go over the layers more than once: taken as several passes; if each is one pass, "
            "sort the rows by step, then by layer"
        )


def _several(values: NDArray[Any], starts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which calls have more than one value."""
    several: NDArray[np.bool_] = np.maximum.reduceat(values, starts) != np.minimum.reduceat(values, starts)
    return several


def _tokens_of_calls(path: Path, rows: Rows, offset: NDArray[np.int64], top_k: int | None) -> NDArray[np.int32]:
    value, starts, length = rows.values, offset[:-1], np.diff(offset)
    if "n_tokens" in value:
        tokens = value["n_tokens"][starts]
        changed = value["n_tokens"] != np.repeat(tokens, length)
        _refuse(path, rows, np.flatnonzero(changed), "n_tokens changes within a call")
        uneven = length % np.maximum(tokens, 1) != 0
        _refuse(path, rows, starts[uneven], "n_tokens does not divide the rows of the call")
        return tokens.astype(np.int32)
    if "rank" in value:
        rank: NDArray[np.int64] = value["rank"]
        first = rank == rank.min()
        follows = np.append(False, rank[1:] == rank[:-1] + 1)
        follows[starts] = False
        out_of_order = np.flatnonzero(~first & ~follows)
        _refuse(path, rows, out_of_order, "the ranks of a token are not in order 0, 1, 2, ... without gaps")
        return np.add.reduceat(first, starts, dtype=np.int32)
    if top_k is None and len(starts) > 1 and not {"step", "call"} & value.keys():
        common = int(np.bincount(length).argmax())
        top_k = None if (length % common).any() else common
    if top_k is not None:
        uneven = length % top_k != 0
        _refuse(path, rows, starts[uneven], f"its call is not a whole number of tokens of {top_k} experts")
        return (length // top_k).astype(np.int32)
    call = np.repeat(np.arange(len(starts)), length)
    tokens = run_starts(call, *(value[name] for name in ("sequence",) if name in value))
    token = np.repeat(np.arange(len(tokens)), np.diff(with_end(tokens, len(call))))
    key = np.sort(token << 16 | value["expert"])
    repeated = call[tokens[key[1:][key[1:] == key[:-1]] >> 16]]
    of_calls = np.bincount(call[tokens], minlength=len(starts))
    of_calls[repeated] = 0
    return of_calls.astype(np.int32)


def _steps(path: Path, rows: Rows, starts: NDArray[np.int64]) -> NDArray[np.int32]:
    """Steps numbered from 0: one begins when the step changes, or the phase or sequence of a new pass over the layers.

    A file sorted by layer would seem to have as many steps as calls, so a step that goes back within a layer is
    refused.
    """
    of_calls = {name: rows.values[name][starts] for name in ("step", "layer", *OWNERS) if name in rows.values}
    changed = {name: values[1:] != values[:-1] for name, values in of_calls.items()}
    step, layer = of_calls["step"], of_calls["layer"]
    back = (step[1:] < step[:-1]) & (layer[1:] > layer[:-1])
    if "sequence" in changed:
        back &= ~changed["sequence"]
    back_at = starts[1:][back]
    _refuse(path, rows, back_at, "the step goes back while the layer goes on; sort the rows by step, then by layer")
    begins = changed["step"]
    for name in OWNERS:
        if name in changed:
            begins |= changed[name] & (layer[1:] <= layer[:-1])
    return np.append(0, np.cumsum(begins)).astype(np.int32)


def _refuse(path: Path, rows: Rows, wrong: NDArray[np.int64], found: str) -> None:
    """Raise BadInput at the first of the wrong rows, if there are any."""
    if len(wrong):
        raise Malformed(f"{path}: line {rows.line[wrong[0]]}: {found}", advice="correct the rows, or record them again")


def _notes(
    header: Sequence[str], value: dict[str, NDArray[Any]], n_tokens: NDArray[np.int32], *, alone: bool
) -> tuple[str, ...]:
    notes = []
    if unread := [name for name in header if name not in COLUMNS]:
        listed = ", ".join(name or "one without a name" for name in unread)
        notes.append(f"columns not read: {listed if len(listed) <= 400 else listed[:397] + '...'}")
    if "rank" not in value:
        notes.append("no rank column: the rows of a token are assumed to be in router-rank order")
    if alone:
        notes.append("a single layer and no step or call column: each token is taken as a pass of its own")
    elif "step" not in value and "call" not in value:
        notes.append("no step or call column: a call begins where the layer changes")
        if "rank" not in value and "n_tokens" not in value and n_tokens.max(initial=0) > 1:
            notes.append("calls with more rows than the most common number are assumed to hold several tokens")
    if unknown := int((n_tokens == 0).sum()):
        notes.append(
            f"tokens unknown and not counted where a call repeats an expert without ranks: {unknown:,} of the calls"
        )
    return tuple(notes)
