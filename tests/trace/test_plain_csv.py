from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashmoe_sim.io.errors import Malformed
from flashmoe_sim.io.notes import TORN, code_of
from flashmoe_sim.trace import csv_rows, lines, plain_csv
from flashmoe_sim.trace.csv_rows import TextColumn
from flashmoe_sim.trace.lines import Skipped
from flashmoe_sim.trace.requests import ReadOptions
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT
from tests.support import refused


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.csv"


def test_layer_and_expert_alone(path: Path) -> None:
    path.write_text("expert,layer\n5,0\n2,0\n1,1\n4,1\n5,0\n3,0\n")
    trace = plain_csv.read(path)
    np.testing.assert_array_equal(trace.layer, [0, 1, 0])
    np.testing.assert_array_equal(trace.expert, [5, 2, 1, 4, 5, 3])
    np.testing.assert_array_equal(trace.n_tokens, [1, 1, 1])
    np.testing.assert_array_equal(trace.steps, [0, 0, 1])
    assert trace.step is None
    assert (trace.top_k, trace.n_experts) == (2, {0: 8, 1: 8})
    assert any("a call begins where the layer changes" in note for note in trace.notes)


def test_every_column(path: Path) -> None:
    path.write_text(
        "# made by hand\n"
        "Sequence, phase ,token,seq,layer,rank,expert,weight,slot,comment\n"
        "0,prefill,10,0,0,0,5,0.75,3,x\n0,prefill,10,0,0,1,2,0.25,1,\n0,prefill,10,0,0,0,5,0.5,3,y\n"
        "0,prefill,10,0,0,1,6,0.5,2,y\n0,decode,11,1,0,0,7,0.5,0,z\n0,decode,11,1,0,1,1,0.5,4,z\n"
        "1,decode,0,2,0,0,7,0.5,0,z\n1,decode,0,2,0,1,1,0.5,4,z\n"
    )
    trace = plain_csv.read(path)
    np.testing.assert_array_equal(trace.n_tokens, [2, 1, 1])
    np.testing.assert_array_equal(trace.offset, [0, 4, 6, 8])
    np.testing.assert_array_equal(trace.step, [0, 1, 2])
    np.testing.assert_array_equal(trace.phase, [PHASE_PROMPT, PHASE_DECODE, PHASE_DECODE])
    np.testing.assert_array_equal(trace.sequence, [0, 0, 1])
    np.testing.assert_array_equal(trace.slot, [3, 1, 3, 2, 0, 4, 0, 4])
    np.testing.assert_array_equal(trace.weight, np.array([0.75, 0.25] + [0.5] * 6, dtype=np.float32))
    assert trace.top_k == 2
    assert trace.notes == ("columns not read: comment",)


def test_a_step_separates_calls_of_one_layer(path: Path) -> None:
    path.write_text("layer,expert,step\n0,1,4\n0,2,4\n0,1,5\n0,3,5\n")
    trace = plain_csv.read(path)
    np.testing.assert_array_equal(trace.offset, [0, 2, 4])
    np.testing.assert_array_equal(trace.step, [0, 1])


def test_repeats_without_ranks_leave_tokens_unknown(path: Path) -> None:
    path.write_text("layer,expert,step\n0,1,0\n0,2,0\n0,1,0\n1,1,0\n")
    trace = plain_csv.read(path)
    np.testing.assert_array_equal(trace.n_tokens, [0, 1])
    assert any("repeats an expert without ranks: 1 of" in note for note in trace.notes)


def test_the_largest_weights(path: Path) -> None:
    path.write_text("layer,expert,weight\n0,1,3.4e38\n1,2,-3.4e38\n")
    assert plain_csv.read(path).weight.tolist() == np.array([3.4e38, -3.4e38], np.float32).tolist()


def test_n_tokens_column(path: Path) -> None:
    path.write_text("layer,expert,n_tokens\n0,1,2\n0,2,2\n0,1,2\n0,3,2\n")
    trace = plain_csv.read(path)
    np.testing.assert_array_equal(trace.n_tokens, [2])
    assert trace.top_k == 2
    assert not any("are assumed to hold several tokens" in note for note in trace.notes)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("layer,expert\n0,1\n0,-1\n0,2\n", "line 3: expert is '-1'"),
        ("layer,expert\n0,1\n0,70000\n0,2\n", "line 3: expert is '70000'"),
        ("layer,expert\n0,1\n\n0,0x7\n0,2\n", "line 4: expert is '0x7'"),
        ("layer,expert\n0,1\n0\n0,2\n", "line 3: 1 fields, expected 2"),
        (
            "layer,expert,phase\n0,1,decode\n0,1,2\n0,1,decode\n",
            "line 3: phase is '2', expected one of prompt, prefill, decode",
        ),
        *(
            (f"layer,expert,weight\n0,1,1\n0,1,{text}\n0,1,1\n", f"line 3: weight is '{text}', expected a 32-bit float")
            for text in ("inf", "nan", "1e39", "-1e39", "1_0")
        ),
        ("layer,expert,rank\n0,1,0\n0,2,2\n", "line 3: the ranks of a token are not in order"),
        ("layer,expert,rank\n0,1,1\n0,2,2\n0,3,2\n", "line 4: the ranks of a token are not in order"),
        ("layer,expert,n_tokens\n0,1,1\n0,2,2\n", "line 3: n_tokens changes within a call"),
        ("layer,expert,n_tokens\n0,1,2\n0,2,2\n0,3,2\n", "line 2: n_tokens does not divide"),
        ("layer,expert,step\n0,1,0\n0,1,1\n1,1,0\n1,1,1\n", "line 4: the step goes back while the layer goes on"),
        ("layer,expert,step,token\n0,1,0,0\n", "line 1: two columns mean 'step'"),
        ("layer,layer,expert\n0,1,0\n", "line 1: two columns mean 'layer'"),
        ("layer,slot\n0,1\n", "line 1: no column 'expert'"),
        ("layer,expert\n", "no complete row"),
        ("# only a comment\n", "has no header"),
    ],
)
def test_malformed(path: Path, content: str, found: str) -> None:
    path.write_text(content)
    with refused(Malformed, found, begins=f"{path}: "):
        plain_csv.read(path)


def test_lenient_skips_and_counts(path: Path) -> None:
    path.write_text("layer,expert\n0,1\n0,x\n0,y\n1,2\n")
    trace = plain_csv.read(path, ReadOptions(lenient=True))
    np.testing.assert_array_equal(trace.expert, [1, 2])
    assert trace.notes[-1].startswith("skipped 2 malformed lines; the first: line 3: expert is 'x'")


def test_torn_last_line(path: Path) -> None:
    path.write_text("layer,expert\n0,1\n0,")
    note = plain_csv.read(path).notes[-1]
    assert (note, code_of(note)) == ("the last line (3) is torn and was dropped", TORN)


@given(st.lists(st.tuples(st.text("0123456789+-. xe", max_size=4), st.text("0123456789 .", max_size=3)), min_size=1))
def test_both_ways_of_reading_agree(fields: list[tuple[str, str]]) -> None:
    """Where the whole body is accepted at once, reading it line by line gives the same columns."""
    body = "".join(f"{first},{second}\n" for first, second in fields).encode()
    columns = (TextColumn("a"), TextColumn("b", real=True))
    at_once = csv_rows._at_once(body, header=["a", "b"], columns=columns)
    if at_once is not None:
        skipped = Skipped(Path("x"), lenient=False)
        _, slow = csv_rows._line_by_line(body, first_line=2, header=["a", "b"], columns=columns, skipped=skipped)
        np.testing.assert_array_equal(at_once["a"], slow["a"])
        np.testing.assert_array_equal(at_once["b"], slow["b"])


def test_a_line_without_an_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1 << 20)
    path.write_bytes(b"layer,expert\n0,1\n" + b"0,2\n" * (1 << 19) + b"0," + b"1" * (3 << 20))
    with pytest.raises(Malformed, match=f"line {(1 << 19) + 3} is longer than 1 MiB"):
        plain_csv.read(path)
