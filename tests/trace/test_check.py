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


I32, F32 = np.int32, np.float32
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"expert": i16(1, 5, 7, 4)}, "layer 0 asks for expert 5; it has 5, numbered from 0"),
    ({"expert": i16(1, -1, 7, 4)}, "expert 1 is -1; expected 0 to 32767"),
    ({"expert": np.array([1, 2, 7, 4])}, "expert is int64 [4]; expected an array of int16"),
    ({"expert": [1, 2, 7, 4]}, "expert is list; expected an array of int16"),
    ({"expert": i16(1, 2, 7, 4).astype(">i2")}, "expert is >i2"),
    ({"expert": i16(1, 2, 7, 4).reshape(2, 2)}, "expert is int16 [2, 2]"),
    ({"expert": i16(1, 2, 7)}, "offset goes from 0 to 4; expected 0 to 3 references"),
    ({"layer": i16(0, -3, 0)}, "layer 1 is -3; expected 0 to 32767"),
    ({"layer": i16(0, 4, 0)}, "n_experts lacks layer 4, which is routed"),
    ({"layer": i16(0, 3, 0, 0)}, "offset has 4 entries; expected 5"),
    ({"n_tokens": np.array([1, -1, 1], I32)}, "n_tokens 1 is -1"),
    ({"n_tokens": np.array([1, 1], I32)}, "n_tokens has 2 entries; expected 3"),
    ({"offset": np.array([0, 3, 2, 4])}, "offset goes back at call 1"),
    ({"offset": np.array([1, 2, 3, 4])}, "offset goes from 1 to 4; expected 0 to 4 references"),
    ({"offset": np.array([0, 2, 3, 5])}, "offset goes from 0 to 5; expected 0 to 4 references"),
    ({"offset": np.array([0, 2, 10**17, 4])}, "offset goes back at call 2"),
    ({"slot": i16(0, 1, -2, 0)}, "slot 2 is -2; expected -1 to 32767"),
    ({"slot": i16(0, 1)}, "slot has 2 entries; expected 4"),
    ({"weight": np.array([0, np.inf, 0, 0], F32)}, "weight 1 is inf; expected a finite number"),
    ({"weight": np.array([0, 0, np.nan, 0], F32)}, "weight 2 is nan; expected a finite number"),
    ({"resident": np.array([0, 2, 0, 0], np.uint8)}, "resident 1 is 2; expected 0 to 1"),
    ({"phase": np.array([0, 1, 3], np.uint8)}, "phase 2 is 3; expected 0 to 2"),
    ({"sequence": np.array([0, -1, 0], I32)}, "sequence 1 is -1"),
    ({"step": np.array([0, 0, -1], I32)}, "step 2 is -1"),
    ({"step": np.array([0, 0, (1 << 31) - 1], I32)}, "step 2 is 2147483647; expected 0 to 2147483646"),
    ({"step": np.array([0, 9, 1], I32)}, "step goes back from 9 to 1 at call 2"),
    ({"n_text": np.array([1, 2, 1], I32)}, "n_text 1 is 2; the call has 1 tokens"),
    *(
        ({"n_experts": {0: 5, 3: value}}, "n_experts of layer 3 is ")
        for value in ((1 << 15) + 1, 0, -8, 10**30, 256.0, "256", True, None)
    ),
    ({"n_experts": {0: 5, 3: 8, -1: 8}}, "n_experts has layer -1; expected a whole number 0 to 32767"),
    ({"n_experts": [5, 8]}, "n_experts is [5, 8]; expected a number for each layer"),
    ({"n_experts_known": 1}, "n_experts_known is 1; expected true or false"),
    ({"top_k": 1}, "top_k is 1, but call 0 has 2 references of 1 tokens"),
    *(({"top_k": value}, "top_k is ") for value in ("eight", [8], -1, (1 << 15) + 1)),
    ({"expert_bytes": {0: 1, 3: (1 << 50) + 1}}, "expert_bytes of layer 3 is 1125899906842625"),
    ({"expert_bytes": {0: 0, 3: 1}}, "expert_bytes of layer 0 is 0; expected a whole number 1 to "),
    ({"dense_bytes": {0: 1}}, "dense_bytes lacks layer 3"),
    ({"name": 5}, "name is 5; expected a text"),
    ({"name": "a\udcff"}, "name is 'a\\udcff', which has half a character (a lone surrogate)"),
    ({"name": "n" * 65_537}, "name has 65,537 characters; expected at most 65,536"),
    ({"format": None}, "format is nothing; expected a text"),
    ({"notes": ["a"]}, "notes are ['a']; expected a tuple of texts"),
    ({"notes": (1,)}, "a note is 1; expected a text"),
    ({"notes": ("n" * ((1 << 20) + 1),)}, "a note has 1,048,577 characters"),
]


@pytest.mark.parametrize(("changes", "found"), WRONG)
def test_what_is_out_of_bounds_is_named(changes: dict[str, Any], found: str) -> None:
    with refused(Malformed, found, begins="here: ", match="; record or convert the trace again$"):
        check_trace(TRACE.with_(**changes), where="here")


def test_all_experts_together_are_bounded() -> None:
    calls = [(layer, [0]) for layer in range(130)]
    with refused(Malformed, "its 130 layers have 4,259,840 experts together; expected at most 4,194,304"):
        check_trace(trace_of(*calls, n_experts=dict.fromkeys(range(130), 1 << 15)), where="here")


@pytest.mark.parametrize("door", [prepare, lambda trace: sim.replay(trace, bank=4)])
def test_no_door_but_through_the_gate(door: Callable[[RoutingTrace], object]) -> None:
    with refused(Malformed, "slot 2 is -2", begins="mine: "):
        door(TRACE.with_(slot=i16(0, 1, -2, 0)))


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
