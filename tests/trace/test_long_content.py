"""A trace in chunks has the content id that it has whole, wherever it is cut."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from flashmoe_sim.content import ArrayParts, hash_of
from flashmoe_sim.trace.chunk import cut_up
from flashmoe_sim.trace.long_content import Content
from flashmoe_sim.trace.routing import RoutingTrace
from tests.trace.strategies import random_traces


@given(trace=random_traces(), data=st.data())
@settings(max_examples=100)
def test_any_trace_and_any_cut(trace: RoutingTrace, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, trace.calls), max_size=5)))
    content = Content(cut_up(trace, cuts))
    for _ in content.trace.read():
        pass
    assert content.content_id == trace.content_id


def test_parts_of_an_array() -> None:
    array = np.arange(20, dtype=np.int16)
    parts = ArrayParts(array.dtype)
    for part in (array[:7], array[7:7], array[7:]):
        parts.add(part)
    assert hash_of([parts]) == hash_of([array])
    assert hash_of([parts]) != hash_of([array.astype(np.int32)])
