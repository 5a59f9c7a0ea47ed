"""Two recordings in one file: their tokens are never mixed, and steps go on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.io.errors import Malformed
from flashmoe_sim.trace.check import check_trace
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.routing import RoutingTrace

STEPS, LAYERS = 3, 24


def recording(*, first: int = 0, layers: int = LAYERS, seq: int | None = None) -> list[str]:
    """Lines of three decoded tokens."""
    lines = []
    for step in range(STEPS):
        for layer in range(layers):
            line = {"step": step, "layer": layer, "n_tokens": 1, "phase": 2}
            if seq is not None:
                line |= {"seq": seq + step * layers + layer}
            lines.append(json.dumps({**line, "experts": [(first + step + layer + 3 * rank) % 32 for rank in range(4)]}))
    return lines


def read(tmp_path: Path, lines: list[str]) -> RoutingTrace:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return load_trace(path)


def test_steps_that_start_again_go_on(tmp_path: Path) -> None:
    trace = read(tmp_path, recording() + recording(first=8))
    assert (trace.calls, trace.tokens, trace.top_k) == (144, 6, 4)
    assert trace.steps[::LAYERS].tolist() == [0, 1, 2, 3, 4, 5]
    assert [note for note in trace.notes if "start again 1 time, first in line 73" in note]


def test_a_timed_sweep_of_two_recordings(tmp_path: Path) -> None:
    read(tmp_path, recording() + recording(first=8))
    given = [str(tmp_path / "a.jsonl"), "--model", "gpt-oss-20b", "--machine", "rtx-3060", "--bank", "8"]
    assert main(["sweep", *given]) == 0


def test_seq_that_starts_again_within_a_step_begins_one(tmp_path: Path) -> None:
    one_step = [line for line in recording(layers=2, seq=0) if '"step": 0' in line]
    assert read(tmp_path, one_step + one_step).steps.tolist() == [0, 0, 1, 1]
    without = [line for line in recording(layers=2) if '"step": 0' in line]
    assert read(tmp_path, without + without).steps.tolist() == [0, 0, 0, 0]  # two passes in one step


def test_lines_in_the_order_of_layers_are_refused(tmp_path: Path) -> None:
    lines = sorted(recording(layers=3), key=lambda line: int(json.loads(line)["layer"]))
    with pytest.raises(Malformed, match=r"a\.jsonl:4: step goes back from 2 to 0 while the layer goes on from 0 to 1"):
        read(tmp_path, lines)


def test_steps_that_go_back_in_a_trace_made_by_hand_are_refused(tmp_path: Path) -> None:
    trace = read(tmp_path, recording())
    step = trace.steps.copy()
    step[:LAYERS] = 9
    with pytest.raises(Malformed, match="step goes back from 9 to 1 at call 24"):
        check_trace(trace.with_(step=step.astype(np.int32)), where="t")
