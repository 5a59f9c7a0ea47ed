"""The profile JSON of a hot expert cache, written from a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.whole import atomic_writer
from flashmoe_sim.trace.routing import RoutingTrace

PERF_SCHEMA = "llama.cpp.moe_layer_opt_perf.v1"


def write_perf_profile(trace: RoutingTrace, path: Path, *, force: bool = False) -> None:
    """Write `perf_profile` of a trace.

    Raises BadInput if the trace has no reference, the file exists without force, or it cannot be written.
    """
    document = perf_profile(trace)
    with atomic_writer(path, force=force) as stream:
        stream.write(document)


def perf_profile(trace: RoutingTrace) -> bytes:
    """The JSON that `--moe-layer-perf-out` writes for these calls without a hot cache, except the times.

    Counts are references, all in the cold lane; a call counts if it has a token. `--moe-hot-cache` and
    `hot-profile:profile=FILE` read it.
    Raises BadInput if the trace has no reference.
    Source: llama-moe-hot-cache-perf-json.cpp of the fork adrianhoehne/llama.cpp, commit 04c100386.
    """
    import orjson

    if not trace.refs:
        raise BadInput(f"{trace.name or 'trace'}: uses no expert; a profile counts uses, give a trace that has some")
    layers = [_layer(trace, number) for number in trace.layers]
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


def _layer(trace: RoutingTrace, number: int) -> dict[str, Any]:
    """A profile's entry for one layer; the system's slots are references here."""
    of_layer = trace.layer == number
    calls = int(np.count_nonzero(of_layer & trace.has_refs))
    of_refs = np.repeat(of_layer, np.diff(trace.offset))
    uses = np.bincount(trace.expert[of_refs])
    experts = [[int(expert), int(uses[expert])] for expert in np.flatnonzero(uses)]
    refs = int(uses.sum())
    return {
        "layer": int(number),
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
