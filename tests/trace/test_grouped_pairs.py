import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashmoe_sim.io.errors import Malformed
from flashmoe_sim.trace import grouped_pairs
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT
from tests.support import refused

# Two passes over layers in the order 0, 2, 1: a prompt with unions of 3 and 4, then a token with 2 experts a layer.
# The prompt's last layer computed one token only.
CALLS = [(0, [1, 3, 4]), (2, [0, 1, 2, 5]), (1, [6, 7]), (0, [1, 3]), (2, [2, 4]), (1, [0, 7])]


def written(path: Path, calls: list[tuple[int, list[int]]], *, repeats: int, **changes: Any) -> Path:
    pairs = [[layer, expert] for layer, experts in calls for _ in range(repeats) for expert in experts]
    document = {"trace": pairs, "entry_bytes": 512.0, "num_groups": 3, "experts_per_group": 8} | changes
    path.write_text(json.dumps({key: value for key, value in document.items() if value is not None}))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


def test_triples_collapse_into_calls(path: Path) -> None:
    trace = grouped_pairs.read(written(path, CALLS, repeats=3))
    np.testing.assert_array_equal(trace.layer, [0, 2, 1, 0, 2, 1])
    np.testing.assert_array_equal(trace.expert, [1, 3, 4, 0, 1, 2, 5, 6, 7, 1, 3, 2, 4, 0, 7])
    np.testing.assert_array_equal(trace.offset, [0, 3, 7, 9, 11, 13, 15])
    np.testing.assert_array_equal(trace.step, [0, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(trace.n_tokens, [0, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(trace.phase, [PHASE_PROMPT] * 3 + [PHASE_DECODE] * 3)
    assert trace.n_experts == {0: 8, 1: 8, 2: 8}
    assert trace.n_experts_known
    assert trace.expert_bytes == {0: 512, 1: 512, 2: 512}
    assert (trace.top_k, trace.tokens) == (2, 1)
    assert "3 times in a row" in trace.notes[1]
    assert trace.notes[2].startswith("1 pass is a prompt")


@pytest.mark.parametrize("repeats", [1, 2])
def test_other_repetition_is_kept_and_noted(path: Path, repeats: int) -> None:
    trace = grouped_pairs.read(written(path, CALLS, repeats=repeats))
    assert trace.calls == repeats * len(CALLS)
    assert "kept as they are" in trace.notes[1]


def test_threes_that_differ_are_kept(path: Path) -> None:
    calls = [(0, [1, 3]), (0, [1, 3]), (0, [1, 4])]
    trace = grouped_pairs.read(written(path, calls, repeats=1))
    assert trace.calls == 3
    assert "kept as they are" in trace.notes[1]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"trace": [[0, -1]]}, "trace: pair 0: expert is -1"),
        ({"trace": [[0, 1], [0, 3.5]]}, "trace: pair 1: expert is 3.5"),
        ({"trace": [[0, 8]]}, "trace: pair 0 is [0, 8], but the file says 3 layers (num_groups) of 8 experts"),
        ({"trace": [[3, 0]]}, "trace: pair 0 is [3, 0]"),
        ({"trace": []}, "trace: not a list"),
        ({"trace": "abc"}, "trace: not a list"),
        ({"trace": None}, 'no "trace" in the document'),
        ({"entry_bytes": 0.5}, "entry_bytes is 0.5"),
        ({"entry_bytes": None}, "entry_bytes is missing"),
        ({"num_groups": True}, "num_groups is True"),
        ({"experts_per_group": 0}, "experts_per_group is 0"),
        ({"experts_per_group": "8"}, "experts_per_group is '8'"),
    ],
)
def test_bad_documents(path: Path, changes: dict[str, Any], found: str) -> None:
    with refused(Malformed, found):
        grouped_pairs.read(written(path, CALLS, repeats=3, **changes))


def test_an_expert_again_begins_a_call(path: Path) -> None:
    trace = grouped_pairs.read(written(path, CALLS, repeats=1, trace=[[0, 1], [0, 1], [0, 2], [1, 0]]))
    assert trace.offset.tolist() == [0, 1, 3, 4]


def test_a_document_cut_short_or_with_a_key_twice(path: Path) -> None:
    content = written(path, CALLS, repeats=3).read_bytes()
    for damaged, found in (
        (content[:-20], "not a complete JSON document"),
        (content[:-1] + b',"entry_bytes":2}', "twice"),
    ):
        path.write_bytes(damaged)
        with refused(Malformed, found, begins=f"{path}: "):
            grouped_pairs.read(path)
