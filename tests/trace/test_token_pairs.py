import gzip
from pathlib import Path

import numpy as np
import pytest

from flashmoe_sim.io.errors import BadInput, Malformed
from flashmoe_sim.io.notes import SKIPPED, TORN, code_of
from flashmoe_sim.trace import token_pairs
from flashmoe_sim.trace.requests import ReadOptions
from flashmoe_sim.trace.routing import PHASE_DECODE
from tests.support import refused

TWO_TOKENS = b"[[1, 5], [1, 2], [3, 0], [3, 9]]\n[[1, 2], [1, 7], [3, 9], [3, 4]]\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


def test_a_call_per_layer_and_token(path: Path) -> None:
    path.write_bytes(TWO_TOKENS)
    trace = token_pairs.read(path)
    np.testing.assert_array_equal(trace.layer, [1, 3, 1, 3])
    np.testing.assert_array_equal(trace.expert, [5, 2, 0, 9, 2, 7, 9, 4])
    np.testing.assert_array_equal(trace.offset, [0, 2, 4, 6, 8])
    np.testing.assert_array_equal(trace.steps, [0, 0, 1, 1])
    assert (trace.n_tokens == 1).all()
    assert (trace.phase == PHASE_DECODE).all()
    assert (trace.top_k, trace.tokens, trace.format) == (2, 2, "token-pairs")
    assert trace.n_experts == {1: 16, 3: 16}
    assert not trace.n_experts_known
    assert trace.notes == ()
    assert (trace.layer.dtype, trace.expert.dtype, trace.offset.dtype) == (np.int16, np.int16, np.int64)
    assert not trace.expert.flags.writeable


def test_experts_per_token_may_vary(path: Path) -> None:
    path.write_bytes(b"[[0,1],[0,2],[1,3]]\n")
    assert token_pairs.read(path).top_k == 0


def test_the_last_line_may_lack_its_newline(path: Path) -> None:
    path.write_bytes(TWO_TOKENS.rstrip())
    assert token_pairs.read(path).calls == 4


def test_a_torn_last_line_is_dropped_and_noted(path: Path) -> None:
    path.write_bytes(TWO_TOKENS + b"[[1, 5], [1, ")
    trace = token_pairs.read(path)
    assert trace.calls == 4
    assert trace.notes == ("the last line (3) is torn and was dropped",)
    assert code_of(trace.notes[0]) == TORN


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"[[1, 5], [1, ", "line 2: not JSON"),
        (b"[[1, -1]]", "line 2: pair 0: expert is -1"),
        (b"[[1, 2], [1, 70000]]", "line 2: pair 1: expert is 70000"),
        (b"[[1, 3.5]]", "line 2: pair 0: expert is 3.5"),
        (b'[[1, "7"]]', 'line 2: pair 0: expert is "7"'),
        (b"[[1, true]]", "line 2: pair 0: expert is true"),
        (b"[[-2, 1]]", "line 2: pair 0: layer is -2"),
        (b"[[1, 2, 3]]", "line 2: pair 0 is [1,2,3], expected [layer, expert]"),
        (b"[1, 2]", "line 2: pair 0 is 1"),
        (b"[]", "line 2: not a list of"),
        (b'{"a": 1}', "line 2: not a list of"),
        (b"[[1, 2], [2, 3], [1, 4]]", "line 2: the experts of layer 1 are not next to each other"),
        (b"\xff\xfe", "line 2: not JSON"),
    ],
)
def test_malformed_lines(path: Path, line: bytes, found: str) -> None:
    first, second = TWO_TOKENS.splitlines(keepends=True)
    path.write_bytes(first + line + b"\n" + second)
    with refused(Malformed, found, begins=f"{path}: "):
        token_pairs.read(path)
    lenient = token_pairs.read(path, ReadOptions(lenient=True))
    assert lenient.calls == 4
    assert lenient.notes[0].startswith("skipped 1 malformed line; the first: line 2: ")
    assert code_of(lenient.notes[0]) == SKIPPED


def test_nothing_complete(path: Path) -> None:
    path.write_bytes(b"[[1, 5], [1")
    with pytest.raises(Malformed, match="no complete token"):
        token_pairs.read(path)


def test_compressed_and_progress(path: Path) -> None:
    path.write_bytes(gzip.compress(TWO_TOKENS))
    reported: list[int] = []
    assert token_pairs.read(path, ReadOptions(progress=reported.append)).calls == 4
    assert reported[-1] == len(TWO_TOKENS)


def test_lines_read_as_numbers_are_what_a_json_parser_reads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same lines, damaged in one or two places, by both ways."""
    rng, plain, found = np.random.default_rng(1), token_pairs._plain, 0
    for _ in range(2_000):
        damaged = bytearray(TWO_TOKENS)
        for _ in range(rng.integers(1, 3)):
            place = int(rng.integers(len(damaged)))
            damaged[place : place + int(rng.integers(2))] = bytes(rng.choice(list(b"[],0123 \n"), rng.integers(3)))
        path.write_bytes(damaged)
        results = []
        for way in (plain, lambda block: None):
            monkeypatch.setattr(token_pairs, "_plain", way)
            try:
                results.append(token_pairs.read(path, ReadOptions(lenient=True)).content_id)
            except BadInput as error:
                results.append(str(error))
        assert results[0] == results[1], damaged
        found += plain(bytes(damaged)) is not None
    assert found > 200
