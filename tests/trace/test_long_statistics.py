"""Statistics in chunks are those of the whole trace, wherever it is cut."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashmoe_sim.cli.main import main
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.trace.chunk import cut_up
from flashmoe_sim.trace.long_statistics import NO_PROMPT_SHARE, NO_STEPS, inspect_chunks
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.statistics import inspect
from tests.trace.strategies import random_traces, trace_of


@given(trace=random_traces(), data=st.data())
@settings(max_examples=150)
def test_any_trace_and_any_cut(trace: RoutingTrace, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, trace.calls), max_size=5)))
    banks = [1, 2, 5]
    if not trace.calls:
        with pytest.raises(BadInput, match="no routed calls"):
            inspect_chunks(cut_up(trace, cuts))
        return
    whole = inspect(trace, banks=banks)
    found, left_out = inspect_chunks(cut_up(trace, cuts), banks=banks)
    if trace.phase is None:
        assert NO_PROMPT_SHARE in left_out
        whole = replace(whole, prompt_share=None)
    if (np.diff(trace.steps) < 0).any():
        assert NO_STEPS in left_out
        whole = replace(whole, steps=None)
    assert found == whole
    assert len(left_out) == (found.steps is None) + (trace.phase is None)


def test_steps_and_phases_across_cuts() -> None:
    trace = trace_of((0, [1]), (1, [2]), (0, [1]), (1, [0]), (0, [2]), (1, [2]))
    trace = trace.with_(phase=np.array([1, 1, 1, 1, 2, 2], np.uint8))
    for steps, expected in ((None, 3), ([4, 4, 4, 7, 7, 9], 3), ([4, 4, 2, 4, 4, 4], None)):
        recorded = trace.with_(step=None if steps is None else np.array(steps, np.int32))
        for cut in range(trace.calls + 1):
            found, left_out = inspect_chunks(cut_up(recorded, [cut]))
            assert (found.steps, found.prompt_share, found.phases_recorded) == (expected, 2 / 3, True)
            assert left_out == ([NO_STEPS] if expected is None else [])


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for flags in ([], ["--in-chunks"]):
        assert main(["trace", "inspect", "python-256", "--bank", "16,64", "--json", *flags]) == 0
        printed = capsys.readouterr()
        shown.append(json.loads(printed.out))
    whole, chunked = shown
    assert chunked.pop("notes") == [*whole.pop("notes"), NO_PROMPT_SHARE]
    assert chunked == whole | {"prompt_share": None}
    assert NO_PROMPT_SHARE in printed.err
