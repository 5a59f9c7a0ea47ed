from pathlib import Path

import numpy as np
import pytest

from flashmoe_sim.io.errors import BadInput, Malformed, Unsupported
from flashmoe_sim.io.notes import DROPPED, SKIPPED, TORN, code_of
from flashmoe_sim.trace import route_csv
from flashmoe_sim.trace.requests import ReadOptions
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT
from tests.support import refused

PREAMBLE = """# route_trace v1
# model=/data/My Models/tiny-Q4.gguf arch=tiny n_layer=2 n_expert=8 n_expert_used=2
# layer=0 expert_bytes=100 dense_bytes=7
# layer=1 expert_bytes=200 dense_bytes=9
turn,phase,step,layer,slot,expert,weight,residency,expert_bytes
"""
# A prompt of three tokens, layer by layer; layer 1 computed its last token only. Then two decoded tokens.
ROWS = """0,0,0,0,0,5,0.75,0,100
0,0,0,0,1,2,0.25,0,100
0,0,1,0,0,2,0.5,0,0
0,0,1,0,1,7,0.5,0,100
0,0,2,0,0,1,0.5,0,100
0,0,2,0,1,5,0.5,0,0
0,0,2,1,0,3,0.5,0,200
0,0,2,1,1,4,0.5,0,200
0,1,3,0,0,5,0.5,1,0
0,1,3,0,1,6,0.5,0,100
0,1,3,1,0,4,0.5,1,0
0,1,3,1,1,0,0.5,0,200
0,1,4,0,0,5,0.5,1,0
0,1,4,0,1,6,0.5,1,0
0,1,4,1,0,4,0.5,1,0
0,1,4,1,1,0,0.125,1,0
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.route.csv"


def rows_with(row: int, text: str) -> str:
    rows = ROWS.splitlines()
    rows[row] = text
    return "\n".join(rows) + "\n"


def test_a_prompt_is_one_call_per_layer(path: Path) -> None:
    path.write_text(PREAMBLE + ROWS)
    trace = route_csv.read(path)
    np.testing.assert_array_equal(trace.layer, [0, 1, 0, 1, 0, 1])
    np.testing.assert_array_equal(trace.n_tokens, [3, 1, 1, 1, 1, 1])
    np.testing.assert_array_equal(trace.offset, [0, 6, 8, 10, 12, 14, 16])
    np.testing.assert_array_equal(trace.expert, [5, 2, 2, 7, 1, 5, 3, 4, 5, 6, 4, 0, 5, 6, 4, 0])
    np.testing.assert_array_equal(trace.resident, [0] * 8 + [1, 0, 1, 0, 1, 1, 1, 1])
    np.testing.assert_array_equal(trace.step, [0, 0, 1, 1, 2, 2])
    np.testing.assert_array_equal(trace.phase, [PHASE_PROMPT] * 2 + [PHASE_DECODE] * 4)
    np.testing.assert_array_equal(trace.sequence, [0] * 6)
    assert (trace.weight[0], trace.weight[-1], trace.weight.dtype) == (0.75, 0.125, np.float32)
    assert trace.slot is None
    assert (trace.n_experts, trace.n_experts_known, trace.top_k) == ({0: 8, 1: 8}, True, 2)
    assert (trace.expert_bytes, trace.dense_bytes) == ({0: 100, 1: 200}, {0: 7, 1: 9})
    assert (trace.tokens, trace.format) == (5, "route-csv")
    assert trace.notes == ("recorded from tiny-Q4.gguf (tiny)",)


def test_a_second_turn_is_a_new_step_and_sequence(path: Path) -> None:
    second = "".join("1" + line[1:] + "\n" for line in ROWS.splitlines()[:8])
    path.write_text(PREAMBLE + ROWS + second)
    trace = route_csv.read(path)
    np.testing.assert_array_equal(trace.step, [0, 0, 1, 1, 2, 2, 3, 3])
    np.testing.assert_array_equal(trace.sequence, [0] * 6 + [1] * 2)


def test_windows_line_ends_read_the_same(path: Path) -> None:
    path.write_text(PREAMBLE + ROWS)
    unix = route_csv.read(path)
    path.write_bytes((PREAMBLE + ROWS).replace("\n", "\r\n").encode())
    assert route_csv.read(path).equals(unix)


def test_a_torn_last_line_takes_its_token_with_it(path: Path) -> None:
    path.write_text(PREAMBLE + ROWS[: -len(",0.125,1,0\n")])
    trace = route_csv.read(path)
    assert trace.calls == 5
    assert trace.notes[1:] == (
        "the last line (21) is torn and was dropped",
        "the last token has 1 of 2 experts and was dropped",
    )
    assert [code_of(note) for note in trace.notes] == [None, TORN, DROPPED]


@pytest.mark.parametrize(
    ("row", "text", "found"),
    [
        (2, "0,0,1,0,0,-1,0.5,0,0", "line 8: expert is '-1', expected a whole number 0..32767"),
        (2, "0,0,1,0,0,70000,0.5,0,0", "line 8: expert is '70000'"),
        (2, "0,0,1,0,0,8,0.5,0,0", "line 8: expert 8, but the preamble says n_expert=8"),
        (2, "0,0,1,5,0,1,0.5,0,0", "line 8: layer 5 is not in the preamble"),
        (2, "0,0,1,0,0,2,0.5,0,101", "line 8: expert_bytes 101 in layer 0, but the preamble says 100"),
        (2, "0,0,1,0,0,2,nan,0,0", "line 8: weight is 'nan', expected a 32-bit float"),
        (2, "0,2,1,0,0,2,0.5,0,0", "line 8: phase is '2', expected a whole number 0..1"),
        (2, "0,0,1,0,0,2,0.5,2,0", "line 8: residency is '2'"),
        (2, "0,0,1,0,1,2,0.5,0,0", "line 8: slot 1, but rank 0 of 0..1 is next"),
        (3, "0,0,1,0,2,7,0.5,0,100", "line 9: slot 2, but rank 1 of 0..1 is next"),
        (3, "0,0,1,0,0,7,0.5,0,100", "line 8: the token has 1 of 2 experts"),
        (2, "0,0,1,0,0,2,0.5,0", "line 8: 8 fields, expected 9"),
        (2, "\0\0\0", "line 8: 1 fields, expected 9"),
    ],
)
def test_malformed_rows(path: Path, row: int, text: str, found: str) -> None:
    path.write_text(PREAMBLE + rows_with(row, text))
    with refused(Malformed, found, begins=f"{path}: "):
        route_csv.read(path)
    lenient = route_csv.read(path, ReadOptions(lenient=True))
    assert lenient.refs < 16
    assert any(note.startswith("skipped") and code_of(note) == SKIPPED for note in lenient.notes)


@pytest.mark.parametrize(
    ("content", "found", "kind"),
    [
        (PREAMBLE.replace("v1", "v2") + ROWS, "line 1: route_trace v2; only v1 is known", Unsupported),
        (PREAMBLE.replace("v1", "v" + "1" * 5000) + ROWS, f"line 1: route_trace v{'1' * 20}; only v1 is ", Unsupported),
        (PREAMBLE.replace(" n_expert=8", "") + ROWS, "the preamble has no n_expert ", Malformed),
        (PREAMBLE.replace("n_expert_used=2", "") + ROWS, "the preamble has no n_expert_used", Malformed),
        (PREAMBLE.replace("# layer", "# other") + ROWS, "no usable `# layer=", Malformed),
        (PREAMBLE.replace("residency", "hit") + ROWS, "line 5: the header is", Malformed),
        ("# route_trace v1\n# model=x\n", "ends within its preamble", Malformed),
        (PREAMBLE, "no complete row", Malformed),
        (PREAMBLE + "0,0,0,0,0,5,0.75,0,100\n", "no complete token of 2 experts", Malformed),
    ],
)
def test_bad_preambles_and_bodies(path: Path, content: str, found: str, kind: type[BadInput]) -> None:
    path.write_text(content)
    with refused(kind, found):
        route_csv.read(path)
