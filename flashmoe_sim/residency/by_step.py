"""The counts of a recorded replay by step and by request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars

from flashmoe_sim.io.errors import Incomplete
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.schema import REQUEST_COLUMNS, STEP_COLUMNS, Column, shaped
from flashmoe_sim.trace.phases import find_phases
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, RoutingTrace

PHASES = {PHASE_PROMPT: "prompt", PHASE_DECODE: "decode"}
NAMES = {
    "requests": "requests",
    "hits": "hits",
    "misses": "misses",
    "cold_installs": "cold",
    "evictions": "evictions",
    "bypassed": "bypassed",
    "aliased_refs": "aliased",
    "prefetch_issued": "prefetch_issued",
    "bytes_read": "bytes_read",
    "prefetch_bytes": "prefetch_bytes",
}


def by_step(trace: RoutingTrace, replayed: Replayed, who: dict[str, Any]) -> polars.DataFrame:
    """schema.STEP_COLUMNS: a row for each step, in the order of the trace. who: the columns that name the replay."""
    stream, phases = replayed.stream, find_phases(trace)
    assert stream is not None
    first = stream.first_calls
    known: dict[str, Any] = {"step": stream.step[first], "calls": np.diff(first, append=len(stream.step))}
    known["tokens"] = np.maximum.reduceat(stream.n_tokens, first)
    if trace.sequence is not None:
        known["request"] = trace.sequence[first]
    if phases is not None:
        known["phase"] = [PHASES.get(phase) for phase in phases.of_calls(trace)[first].tolist()]
    for name, column in NAMES.items():
        if (calls := getattr(stream, column)) is not None:
            known[name] = stream.by_step(calls)
    return _shaped(polars.DataFrame(known), who, STEP_COLUMNS)


def by_request(trace: RoutingTrace, replayed: Replayed, who: dict[str, Any]) -> polars.DataFrame:
    """schema.REQUEST_COLUMNS: a row for each request, in the order of their first steps.

    Raises BadInput if the trace does not record them.
    """
    if trace.sequence is None:
        raise Incomplete(f"{trace.name}: records no requests; by='step' gives a row for each step")
    steps = by_step(trace, replayed, who)
    sums = [name for name in ("tokens", "calls", *NAMES) if steps[name].null_count() == 0]
    rows = steps.group_by("request", maintain_order=True).agg(polars.len().alias("steps"), polars.col(sums).sum())
    return _shaped(rows, who, REQUEST_COLUMNS)


def _shaped(rows: polars.DataFrame, who: dict[str, Any], columns: Sequence[Column]) -> polars.DataFrame:
    rate = polars.col("hits") / polars.col("requests")
    named = [polars.lit(value).alias(name) for name, value in who.items()]
    return shaped(rows.with_columns(*named, rate.alias("hit_rate")), columns)
