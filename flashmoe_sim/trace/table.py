"""Any table with routing: CSV, JSON lines or Parquet, whose columns the user names.

If there is a column of times, the rows are sorted by it first. With a column for the token's position, rows in any
order are assembled into requests; without one, rows must be in the order in which they happened, as in a plain CSV. A
column of lists has all experts of a token, or a list for each token of a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Conflict, Incomplete, shown
from flashmoe_sim.trace.csv_rows import Rows
from flashmoe_sim.trace.lines import Skipped, trace_name
from flashmoe_sim.trace.plain_csv import COLUMNS, trace_of_rows
from flashmoe_sim.trace.request_calls import check_ids, check_layers, trace_of_requests
from flashmoe_sim.trace.requests import DEFAULTS, ReadOptions, without_shared
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, RoutingTrace
from flashmoe_sim.trace.table_columns import LISTS, Columns, read_frame, values_of
from flashmoe_sim.trace.token_rows import TokenRows, requests_of_rows
from flashmoe_sim.trace.totals import OF_A_STEP, TOTALS, named_as, refuse_totals, totals_of

if TYPE_CHECKING:
    import polars as pl

FORMAT = "table"
ORDERS = {"step", "call", "position", "time"}
OF_POSITIONS = ("prompt_tokens", "prefill_chunk", "start")  # what is said of tokens, and not of passes


def read_table(
    paths: Sequence[Path],
    columns: Columns,
    options: ReadOptions = DEFAULTS,
) -> RoutingTrace:
    """Read one trace from tables with the same columns, in this order.

    Raises BadInput, naming file and row, for a missing column, a value that is not a number of its kind, and for what
    `trace_of_requests` and plain CSV refuse.
    """
    hints = options.hints
    parts, left_out, torn = [], list[str](), list[str]()
    for path in paths:
        skipped = Skipped(path, lenient=options.lenient)
        frame = read_frame(path, columns, options.progress, skipped=skipped)
        parts.append(values_of(path, frame, columns))
        _refuse_totals(path, frame, columns, parts[-1])
        left_out = left_out or columns.left_out(frame.columns)
        torn += skipped.notes()
    left_out += torn
    if len({part["expert"].shape[1] for part in parts}) > 1:
        raise Conflict(f"{paths[0]}: the files differ in experts per token (mixed top-k); import them one by one")
    value = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if hints.shared:
        value = _without_shared(value, hints.shared, where=paths[0].name)
        hints = replace(hints, shared=())
    if timed := "time" in value:
        value = _by_time(value)
    where, name = paths[0].name, trace_name(paths[0])
    if "position" in value:
        prompt = value["phase"] == PHASE_PROMPT if "phase" in value else None
        request = value.get("request", np.zeros(len(value["layer"]), np.int64))
        rank = value.get("rank")
        rows = TokenRows(request, value["position"], value["layer"], value["expert"], rank, value.get("weight"))
        layers, requests = requests_of_rows(rows, prompt, hints=hints, where=where)
        options = replace(options, hints=replace(hints, moe_layers=hints.moe_layers or layers))
        if hints.prompt_tokens is not None and all(one.start == 1 for one in requests):
            left_out.append(
                f"positions begin at 1: token 0 is taken as one of the prompt's {hints.prompt_tokens:,}, in no row; if "
                f"they count from 1, give --prompt-tokens {hints.prompt_tokens + 1}"
            )
        notes = left_out + [
            f"{field}= is not used beside position=: prompts are cut into chunks and requests served one after "
            "another; for the engine's own passes give step= without position="
            for field in ("step", "call", "n_tokens")
            if field in value
        ]
        return trace_of_requests(requests, format=FORMAT, name=name, options=options, notes=notes)
    if odd := [name for name in OF_POSITIONS if getattr(hints, name) is not None]:
        raise Conflict(f"{where}: --{odd[0].replace('_', '-')} is for tables with position=; leave it out")
    if hints.phase is not None and "phase" in value:
        raise Conflict(f"{where}: has a column of phases; leave --phase out, or phase= out of --columns")
    if len(paths) > 1 and not timed:
        if "step" not in value:
            raise Incomplete(
                f"{paths[0]}: several files without an order; name a column of --columns step=, position= or time="
            )
        keys = [value["layer"], value["step"]]
        _refuse_together(paths, parts)
        restarts = any((part["step"][1:] < part["step"][:-1]).any() for part in parts)
        order = np.lexsort([*keys, value["request"]] if restarts and "request" in value else keys)
        value = {name: values[order] for name, values in value.items()}
    trace = trace_of_rows(
        _in_rows(value, columns), list(COLUMNS), path=paths[0], top_k=hints.top_k, format=FORMAT, name=name
    )
    trace = trace.with_(notes=(*trace.notes, *left_out))
    if hints.phase is not None:
        phase = PHASE_PROMPT if hints.phase == "prompt" else PHASE_DECODE
        trace = trace.with_(phase=np.full(trace.calls, phase, np.uint8))
    if hints.model:
        check_layers(np.array(trace.layers), hints, where=where)
        experts = {layer: hints.model[layer] for layer in trace.layers}
        trace = trace.with_(n_experts=experts, n_experts_known=True)
        check_ids(trace, name)
    return trace


def _refuse_together(paths: Sequence[Path], parts: Sequence[dict[str, NDArray[Any]]]) -> None:
    """Raise BadInput for a step and layer in two files, if nothing would tell their tokens apart."""
    if parts[0]["expert"].shape[1] > 1 or {"rank", "n_tokens", "request"} & parts[0].keys():
        return
    seen: set[tuple[int, int]] = set()
    for path, part in zip(paths, parts, strict=True):
        own = set(zip(part["step"].tolist(), part["layer"].tolist(), strict=True))
        if both := own & seen:
            step, layer = min(both)
            raise Conflict(
                f"{path}: step {step} of layer {layer} is in another file too; name a column rank= or request=, or "
                "import the files one by one and join them with `sim trace merge`"
            )
        seen |= own


def _refuse_totals(path: Path, frame: pl.DataFrame, columns: Columns, value: dict[str, NDArray[Any]]) -> None:
    """Raise BadInput for a table of counts of experts."""
    import polars as pl

    if named := named_as([columns.columns["expert"]], TOTALS):
        raise totals_of(path, f"column {shown(named[0], 40)} has counts or sums of experts")
    unread = [name for name in frame.columns if not columns.reads(name)]
    counts = {
        name: np.array(frame[name].cast(pl.Float64, strict=False).fill_null(0).to_numpy())
        for name in unread
        if name.lower() in OF_A_STEP and not frame[name].dtype.is_nested()
    }
    refuse_totals(path, value | counts, unread, ordered=bool(ORDERS & value.keys()))


def _without_shared(value: dict[str, NDArray[Any]], shared: Sequence[int], *, where: str) -> dict[str, NDArray[Any]]:
    """The table without the ids of shared experts, in rows of one expert or of all experts of a token."""
    if value["expert"].shape[1] == 1:
        kept = ~np.isin(value["expert"][:, 0], shared)
        return {name: values[kept] for name, values in value.items()}
    expert, weight = without_shared(value["expert"], value.get("weight"), shared, where=where)
    return value | {"expert": expert} | ({} if weight is None else {"weight": weight})


def _by_time(value: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The rows by time, in their given order if times are equal; requests in the order in which they began."""
    order = np.argsort(value.pop("time"), kind="stable")
    value = {name: values[order] for name, values in value.items()}
    if "request" in value:
        found, first, place = np.unique(value["request"], return_index=True, return_inverse=True)
        number = np.empty(len(found), np.int64)
        number[np.argsort(first)] = np.arange(len(found))
        value["request"] = number[place]
    return value


def _in_rows(value: dict[str, NDArray[Any]], columns: Columns) -> Rows:
    """One row per expert, with the columns of a plain CSV."""
    count, width = value["expert"].shape
    flat = {name: np.repeat(values, width) for name, values in value.items() if name not in LISTS}
    flat |= {name: value[name].reshape(-1) for name in LISTS if name in value}
    if width > 1:
        flat["rank"] = np.tile(np.arange(width), count)
    if "request" in flat:
        flat["sequence"] = np.unique(flat.pop("request"), return_inverse=True)[1]
    if columns.call_by == "run":
        flat.pop("step", None)
    return Rows(np.repeat(np.arange(1, count + 1), width), flat)
