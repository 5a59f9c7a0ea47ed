"""The door: every array of a trace against the trace's own bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import flashmoe_sim.api as sim
from flashmoe_sim.io.errors import Malformed
from flashmoe_sim.residency.workload import prepare
from flashmoe_sim.trace.check import check_trace, largest_experts
from flashmoe_sim.trace.routing import RoutingTrace
from tests.support import refused
from tests.trace.strategies import random_traces, trace_of

TRACE = trace_of((0, [1, 2]), (3, [7]), (0, [4]), n_experts={0: 5, 3: 8}, name="mine")


def i16(*values: int) -> Any:
    return np.array(values, np.int16)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "expert": ({"expert": i16(1, 5, 7, 4)}, "layer 0 asks for expert 5; it has 5, numbered from 0"),
    "expert negative": ({"expert": i16(1, -1, 7, 4)}, "expert 1 is -1; expected 0 to 32767"),
    "expert i64": ({"expert": np.array([1, 2, 7, 4])}, "expert is int64 [4]; expected an array of int16"),
    "expert list": ({"expert": [1, 2, 7, 4]}, "expert is list; expected an array of int16"),
    "expert other byte order": ({"expert": i16(1, 2, 7, 4).astype(">i2")}, "expert is >i2"),
    "expert in rows": ({"expert": i16(1, 2, 7, 4).reshape(2, 2)}, "expert is int16 [2, 2]"),
    "expert missing": ({"expert": i16(1, 2, 7)}, "offset goes from 0 to 4; expected 0 to 3 references"),
    "layer": ({"layer": i16(0, -3, 0)}, "layer 1 is -3; expected 0 to 32767"),
    "layer unknown": ({"layer": i16(0, 4, 0)}, "n_experts lacks layer 4, which is routed"),
    "layer longer": ({"layer": i16(0, 3, 0, 0)}, "offset has 4 entries; expected 5"),
    "n_tokens": ({"n_tokens": np.array([1, -1, 1], np.int32)}, "n_tokens 1 is -1"),
    "n_tokens shorter": ({"n_tokens": np.array([1, 1], np.int32)}, "n_tokens has 2 entries; expected 3"),
    "offset back": ({"offset": np.array([0, 3, 2, 4])}, "offset goes back at call 1"),
    "offset start": ({"offset": np.array([1, 2, 3, 4])}, "offset goes from 1 to 4; expected 0 to 4 references"),
    "offset end": ({"offset": np.array([0, 2, 3, 5])}, "offset goes from 0 to 5; expected 0 to 4 references"),
    "offset far": ({"offset": np.array([0, 2, 10**17, 4])}, "offset goes back at call 2"),
    "slot": ({"slot": i16(0, 1, -2, 0)}, "slot 2 is -2; expected -1 to 32767"),
    "slot shorter": ({"slot": i16(0, 1)}, "slot has 2 entries; expected 4"),
    "weight": ({"weight": np.array([0, np.inf, 0, 0], np.float32)}, "weight 1 is inf; expected a finite number"),
    "resident": ({"resident": np.array([0, 2, 0, 0], np.uint8)}, "resident 1 is 2; expected 0 to 1"),
    "phase": ({"phase": np.array([0, 1, 3], np.uint8)}, "phase 2 is 3; expected 0 to 2"),
    "sequence": ({"sequence": np.array([0, -1, 0], np.int32)}, "sequence 1 is -1"),
    "step": ({"step": np.array([0, 0, -1], np.int32)}, "step 2 is -1"),
    "step last": (
        {"step": np.array([0, 0, (1 << 31) - 1], np.int32)},
        "step 2 is 2147483647; expected 0 to 2147483646",
    ),
    "n_experts": (
        {"n_experts": {0: 5, 3: 1 << 20}},
        "n_experts of layer 3 is 1048576; expected a whole number 1 to 32768",
    ),
    "n_experts altogether": (
        {
            "layer": np.arange(130, dtype=np.int16),
            "n_tokens": np.ones(130, np.int32),
            "offset": np.arange(131),
            "expert": i16(*[0] * 130),
            "n_experts": dict.fromkeys(range(130), 1 << 15),
        },
        "its 130 layers have 4,259,840 experts together; expected at most 4,194,304",
    ),
    "n_experts list": ({"n_experts": [5, 8]}, "n_experts is [5, 8]; expected a number for each layer"),
    "top_k": ({"top_k": 1}, "top_k is 1, but call 0 has 2 references of 1 tokens"),
    "dense_bytes": ({"dense_bytes": {0: 1}}, "dense_bytes lacks layer 3"),
    "name": ({"name": "a\udcff"}, "name is 'a\\udcff', which has half a character (a lone surrogate)"),
    "notes": ({"notes": ["a"]}, "notes are ['a']; expected a tuple of texts"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_out_of_bounds_is_named(name: str) -> None:
    changes, found = WRONG[name]
    trace = TRACE.with_(**changes)
    doors: tuple[Callable[[], object], ...] = (
        lambda: check_trace(trace, where="here"),
        lambda: prepare(trace),
        lambda: sim.replay(trace, bank=4),
    )
    for door in doors:
        with refused(Malformed, found, match="; record or convert the trace again$"):
            door()


def test_what_is_sound_passes() -> None:
    check_trace(TRACE, where="here")
    check_trace(TRACE.with_(n_experts={np.int64(0): np.int16(5), 3: 8, 9: 1}, top_k=np.int64(0)), where="here")
    check_trace(TRACE.with_(slot=i16(-1, 0, 5, 32767), dense_bytes={0: 0, 3: 1}), where="here")
    check_trace(trace_of(), where="an empty trace")


def test_calls_without_references() -> None:
    """A call of no tokens has no expert; the largest of its layer is by the others."""
    empty = trace_of((0, [1, 2]), (1, []), (0, [3]), (2, []), n_tokens=[1, 0, 1, 0], n_experts={0: 4, 1: 4, 2: 4})
    check_trace(empty.with_(top_k=0), where="here")
    assert largest_experts(empty).tolist() == [3, -1, -1]
    with pytest.raises(Malformed, match="layer 0 asks for expert 3; it has 3"):
        check_trace(empty.with_(n_experts={0: 3, 1: 1, 2: 1}), where="here")


@given(random_traces())
@settings(max_examples=60)
def test_the_largest_expert_of_each_layer(trace: RoutingTrace) -> None:
    largest = [-1] * (max(trace.layer.tolist(), default=-1) + 1)
    for call, layer in enumerate(trace.layer.tolist()):
        for expert in trace.expert[trace.offset[call] : trace.offset[call + 1]].tolist():
            largest[layer] = max(largest[layer], expert)
    assert largest_experts(trace).tolist() == largest
