"""The profile JSON of a hot expert cache, written from a trace."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from flashmoe_sim.io.errors import Incomplete
from flashmoe_sim.io.whole import atomic_writer
from flashmoe_sim.trace.routing import LayerView, RoutingTrace

PERF_SCHEMA = "llama.cpp.moe_layer_opt_perf.v1"


def write_perf_profile(trace: RoutingTrace, path: Path, *, force: bool = False) -> None:
    """Write `perf_profile` of a trace.

    Raises BadInput if the trace has no reference, the file exists without force, or it cannot be written.
    """
    document = perf_profile(trace)
    with atomic_writer(path, force=force) as stream:
        stream.write(document)


@lru_cache(maxsize=4)
def perf_profile(trace: RoutingTrace) -> bytes:
    """The JSON that `--moe-layer-perf-out` writes for these calls without a hot cache, except the times.

    Counts are references, all in the cold lane; a call counts if it has a token. `--moe-hot-cache` and
    `hot-profile:profile=FILE` read it.
    Raises BadInput if the trace has no reference.
    Source: llama-moe-hot-cache-perf-json.cpp of the fork adrianhoehne/llama.cpp, commit 04c100386.
    """
    import orjson

    if not trace.refs:
        raise Incomplete(f"{trace.name or 'trace'}: uses no expert; a profile counts uses, give a trace that has some")
    layers = [_layer(trace, view) for view in trace.by_layer]
    used = [layer for layer in layers if layer["calls"]]
    calls = sum(layer["calls"] for layer in used)
    document = {
        "enabled": True,
        "mode": "update",
        "schema": PERF_SCHEMA,
        "n_expert": max(trace.n_experts.values()),
        "n_expert_used": trace.top_k or 0,
        "updates": max(layer["calls"] for layer in used),
        "overflow_resets": 0,
        "summary": {"layer_calls": calls, "hot_slot_ratio": 0.0},
        "layers": used,
    }
    return orjson.dumps(document) + b"\n"


def _layer(trace: RoutingTrace, view: LayerView) -> dict[str, Any]:
    """A profile's entry for one layer; the system's slots are references here."""
    calls, refs = int(np.count_nonzero(trace.has_refs[view.call])), len(view.expert)
    uses = np.bincount(view.expert)
    used = np.flatnonzero(uses)
    experts = np.stack([used, uses[used]], axis=1).tolist()
    return {
        "layer": int(view.layer),
        "calls": calls,
        "hot_slots_total": 0,
        "cold_slots_total": refs,
        "hot_slots_per_call": 0.0,
        "cold_slots_per_call": refs / calls if calls else 0.0,
        "hot_slot_ratio": 0.0,
        "experts": experts,
        "hot_experts": [],
        "cold_experts": experts,
    }
