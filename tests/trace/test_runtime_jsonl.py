"""The runtime's JSONL traces: hand-written lines, a plain twin on random traces, torn and growing files."""

from __future__ import annotations

import gzip
import json
import random
import re
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flashmoe_sim.io.errors import Malformed
from flashmoe_sim.io.notes import DROPPED, GAP, TORN, code_of
from flashmoe_sim.trace import runtime_jsonl
from flashmoe_sim.trace._json_kernels import KEY_NAMES, Position
from flashmoe_sim.trace.requests import ReadOptions
from flashmoe_sim.trace.runtime_jsonl import read
from tests.trace.jsonl_twin import BOM, LINE, NEXT, in_layout, parse, twin

# ---------------------------------------------------------------------------------------------------- written by hand


def test_two_calls_by_hand() -> None:
    trace = parse(LINE + b"\n" + NEXT + b"\n")
    assert trace.layer.tolist() == [3, 4]
    assert trace.n_tokens.tolist() == [1, 2]
    assert trace.offset.tolist() == [0, 2, 6]
    assert trace.expert.tolist() == [7, 120, 5, 9, 0, 5]
    assert trace.slot.tolist() == [0, 1, 3, 2, 1, 3]
    assert (trace.layer.dtype, trace.n_tokens.dtype, trace.offset.dtype) == (np.int16, np.int32, np.int64)
    assert (trace.expert.dtype, trace.slot.dtype) == (np.int16, np.int16)
    assert trace.n_experts == {3: 128, 4: 128}
    assert not trace.n_experts_known
    assert (trace.top_k, trace.format, trace.name, trace.notes) == (2, "runtime-jsonl", "t", ())
    assert trace.phase is trace.step is trace.sequence is trace.weight is None


BARE = b'"layer":3,"n_expert_used":2,"n_tokens":1,"experts":[7,120]'


@pytest.mark.parametrize(
    "line",
    [
        LINE,
        b'{"slots":[0,1],"experts":[7,120],"n_tokens":1,"n_expert_used":2,"layer":3,"seq":0}',
        b' \t{ "seq" : 0 , "slots" : [ 0\t, 1 ] , ' + BARE + b" } \t",
        LINE[:-1] + b',"unknown":null,"time":-1.5e-3,"ok":true,"host":"a\\u00e9\xc3\xa9","deep":[{"layer":[[9]]},[]]}',
        LINE[:-1] + b',"when":12.5E+10,"host":"linux [x86], {64}"}',
        b'{"seq":-0,"slots":[-0,1],' + BARE + b"}",
        b'{"x":1,"seq":0,"slots":[0,1],"x":2,"y":{"layer":1,"layer":2},' + BARE + b',"x":3}',
        b'{"x":1,"seq":0,"slots":[0,1],"x":2,' + BARE + b"}",
        b'{"seq":0,"slo\\u0074s":[0,1],' + BARE + b"}",
    ],
)
def test_layouts_say_the_same(line: bytes) -> None:
    assert parse(line).equals(parse(LINE))


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\n\n", b"\n \t\r\n"])
@pytest.mark.parametrize("head", [b"", BOM, b"\n", BOM + b"\r\n"])
@pytest.mark.parametrize("tail", [b"", b"\n", b" ", b"\r\n\n"])
def test_line_ends(head: bytes, newline: bytes, tail: bytes) -> None:
    content = head + LINE + newline + NEXT + tail
    for chunk_bytes in (1, 2, 3, 1000):
        assert parse(content, chunk_bytes=chunk_bytes).equals(twin(LINE + b"\n" + NEXT))


def test_largest_numbers() -> None:
    content = b'{"seq":0,"layer":32767,"n_expert_used":3,"n_tokens":1,"experts":[0,32767,1000],"slots":[-1,32767,-1]}\n'
    trace = parse(content)
    assert trace.equals(twin(content))
    assert trace.n_experts == {32767: 32768}
    for seq in (10**18 - 1, 10**18, 2**63 - 1):
        assert f"has seq {seq} where 0" in parse(LINE.replace(b":0,", b":%d," % seq, 1)).notes[0]


def test_a_column_that_some_lines_lack_is_left_out_with_a_note() -> None:
    without = NEXT.split(b',"slots"')[0] + b"}"
    for content in (LINE + b"\n" + without, without + b"\n" + LINE):
        trace = parse(content)
        assert trace.slot is None
        assert "slots left out: only 1 of 2 calls have it" in trace.notes
        assert DROPPED in map(code_of, trace.notes)
    assert parse(without).slot is None
    assert not [note for note in parse(without).notes if "slots" in note]


def test_a_phase_that_some_lines_lack_is_unknown_there() -> None:
    trace = parse(LINE + b"\n" + NEXT[:-1] + b',"phase":"prompt"}')
    assert trace.phase.tolist() == [0, 1]


def test_top_k_varies() -> None:
    assert (
        parse(LINE + b'\n{"seq":1,"layer":3,"n_expert_used":1,"n_tokens":2,"experts":[1,2],"slots":[0,1]}').top_k == 0
    )


def test_gap_in_seq_is_a_note() -> None:
    later = NEXT.replace(b'"seq":1', b'"seq":5')
    assert parse(LINE + b"\n\n" + later).notes == ("seq has gaps: line 3 has seq 5 where 1 was expected",)
    assert parse(NEXT).notes == ("seq has gaps: line 1 has seq 1 where 0 was expected",)
    assert code_of(parse(NEXT).notes[0]) == GAP


# --------------------------------------------------------------------------------------------- equal to a plain twin

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children, max_size=2) | st.dictionaries(st.text(max_size=4), children, max_size=2),
    max_leaves=4,
)


@st.composite
def traces(draw: st.DrawFn) -> bytes:
    """A well-formed file: any key order, white space, unknown keys, line ends, and optional keys in any mixture."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    present = {
        name: draw(st.sampled_from([0.0, 0.5, 1.0, 1.0])) for name in ("seq", "slots", "phase", "step", "weights")
    }
    largest = draw(st.sampled_from([9, 200, 32767]))
    tidy = draw(st.booleans())
    unknown = draw(st.dictionaries(st.text(max_size=12), JSON_VALUES, max_size=2))
    content = b""
    for seq in range(draw(st.integers(1, 6))):
        used, tokens = rng.choice([(1, 1), (2, 1), (2, 1), (8, 1), (2, 5), (2, 0)])
        refs = range(used * tokens)
        row: dict[str, Any] = {
            "seq": seq if rng.random() < 0.95 else rng.randrange(10**6),
            "layer": rng.choice([0, 1, 47, largest]),
            "n_expert_used": used,
            "n_tokens": tokens,
            "experts": [rng.randint(0, largest) for _ in refs],
            "slots": [rng.randint(-1, largest) for _ in refs],
            "phase": rng.choice([0, 1, 2, "prompt", "decode", "unknown"]),
            "step": rng.randrange(1 << rng.choice([1, 2, 30])),
            "weights": [rng.choice([0, 1, rng.random(), -rng.random() * 1e-30]) for _ in refs],
        }
        row = {name: value for name, value in row.items() if rng.random() < present.get(name, 1.0)}
        if not tidy:
            items = [*row.items(), *((key, value) for key, value in unknown.items() if key not in KEY_NAMES)]
            rng.shuffle(items)
            row = dict(items)
        text = json.dumps(row, separators=(",", ":"), ensure_ascii=rng.random() < 0.5)
        content += (text if tidy else spaced(text, rng)).encode() + rng.choice([b"\n", b"\n", b"\r\n", b"\n\n"])
    return draw(st.sampled_from([b"", BOM])) + draw(st.sampled_from([content, content.rstrip()]))


def spaced(text: str, rng: random.Random) -> str:
    """The same JSON with white space around its punctuation."""
    blanks = ["", "", " ", "\t", " \r"]

    def loosened(match: re.Match[str]) -> str:
        piece = match.group()
        return piece if piece.startswith('"') else rng.choice(blanks) + piece + rng.choice(blanks)

    return re.sub(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]', loosened, text)


@settings(max_examples=300)
@given(content=traces(), chunk_bytes=st.sampled_from([1, 2, 7, 64, 300, 1000]))
def test_equal_to_the_twin(content: bytes, chunk_bytes: int) -> None:
    try:
        expected = twin(content)
    except ValueError:  # out of order
        with pytest.raises(Malformed, match="sort the lines by step, then by layer"):
            parse(content, chunk_bytes=chunk_bytes)
        return
    got = parse(content, chunk_bytes=chunk_bytes)
    assert got.notes == expected.notes
    assert got.equals(expected)


@settings(max_examples=200)
@given(
    name=st.sampled_from(KEY_NAMES),
    escaped=st.integers(-1, 2),
    value=st.sampled_from(["0", "[0,1]", "null", '"x"', '{"layer":1}']),
    at=st.integers(0, 11),
)
def test_a_key_twice_is_refused_wherever_it_stands(name: str, escaped: int, value: str, at: int) -> None:
    """Also if one of the two is written with an escape."""
    items = [f'"{key}":{json.dumps(value)}' for key, value in json.loads(LINE).items()]
    items += ['"phase":1', '"sequence":0', '"step":0', '"other":1', '"weights":[0.5,1]']
    key = name if escaped < 0 else f"{name[:escaped]}\\u{ord(name[escaped]):04x}{name[escaped + 1 :]}"
    items.insert(at, f'"{key}":{value}')
    line = f"{{{','.join(items)}}}".encode()
    with pytest.raises(ValueError, match="a key twice"):
        twin(line)
    with pytest.raises(Malformed, match=f't.jsonl:1: found "{name}" twice'):
        parse(line + b"\n")


def refuse_lines(data: Any, end: int, begin: Position, *_: Any) -> Position:
    """Kernels that accept nothing but blank lines, so that every line is read by orjson."""
    at, lines = begin.at, begin.lines
    while at < end:
        line, newline, _ = bytes(data[at:end]).partition(b"\n")
        if line.strip(b" \t\r"):
            break
        at += len(line + newline)
        lines += 1
    return begin._replace(at=at, lines=lines)


@settings(max_examples=500)
@given(
    line=st.sampled_from([LINE, NEXT, b'{ "step": 5,"phase":"prompt", "x" : -1.5e3 ,' + BARE + b" }"]),
    edits=st.lists(
        st.tuples(
            st.integers(0, 90), st.integers(0, 3), st.binary(max_size=1) | st.sampled_from([*' 0123-.eE,:"{}[]\\\n'])
        ),
        min_size=1,
        max_size=3,
    ),
)
@example(line=LINE[:-1] + b',"x":1e3}', edits=[(len(LINE) + 5, 0, "11")])
@example(line=LINE[:-1] + b',"x":1}', edits=[(len(LINE) + 4, 0, "1" * 320)])
def test_kernels_read_damaged_lines_as_orjson_does(line: bytes, edits: list[tuple[int, int, bytes | str]]) -> None:
    for at, length, new in edits:
        line = line[:at] + (new if isinstance(new, bytes) else new.encode()) + line[at + length :]
    content = LINE + b"\n" + line + b"\n" + NEXT
    with mock.patch.object(runtime_jsonl, "parse_lines", refuse_lines):
        expected = parse(content, lenient=True)
    assert parse(content, lenient=True).equals(expected)


@pytest.mark.parametrize("keys", [0, 3])
@pytest.mark.parametrize("chunk_bytes", [977, 1 << 16])
def test_equal_to_the_twin_over_many_chunks(keys: int, chunk_bytes: int) -> None:
    content = in_layout(700, keys=keys)
    assert parse(content, chunk_bytes=chunk_bytes).equals(twin(content))


COUNTED = [b"", b',"n_tokens":2', b',"n_expert_used":2', b',"n_expert_used":2,"n_tokens":2']


@pytest.mark.parametrize("by_hand", [False, True])
def test_layer_and_experts_are_enough(*, by_hand: bool) -> None:
    """Without counts a line is one token; one of the counts gives the other. `by_hand`: not by the kernels."""
    escaped = b',"note":"\\u0041"' if by_hand else b""
    lines = [b'{"layer":%d,"experts":[4,0,2,1]%s%s}' % (at, counts, escaped) for at, counts in enumerate(COUNTED)]
    trace = parse(b"\n".join(lines))
    assert trace.equals(twin(b"\n".join(lines)))
    assert trace.n_tokens.tolist() == [1, 2, 2, 2]
    assert trace.top_k == 0
    assert trace.notes == ("1 of 4 lines lack n_tokens and n_expert_used: each is read as one token",)
    bare = parse(lines[0])
    assert (bare.top_k, bare.n_tokens.tolist()) == (4, [1])
    assert bare.notes == ("all lines lack n_tokens and n_expert_used: each is read as one token",)


def test_short_lines_fill_a_chunk() -> None:
    content = b'{"layer":0,"experts":[1]}\n' * 5000
    assert parse(content, chunk_bytes=1 << 16).equals(twin(content))


def test_the_kernels_accept_what_is_common(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(line: bytes) -> None:
        raise AssertionError(f"a kernel refused {line!r}")

    monkeypatch.setattr(runtime_jsonl, "read_record", refuse)
    for keys in range(6):
        parse(in_layout(20, keys=keys))
    for line in (
        LINE.split(b',"slots"')[0] + b"}",
        b'{"phase":1,"step":3,' + BARE + b"}",
        b'{"layer":3,"experts":[7,120]}',
        b'{"experts":[7,120],"n_tokens":2,"layer":3}',
        b'{ "experts": [ 7, 12000 ], "phase": 2, "slots": [-1, 0], "n_tokens": 1,"n_expert_used":2,"layer":3}\r',
    ):
        parse(line + b"\n")


# ------------------------------------------------------------------------------------------- files, torn and growing


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz", "run.jsonl.zst", "run"])
def test_read(tmp_path: Path, name: str) -> None:
    content = in_layout(300)
    packed = content
    if name.endswith(".gz"):
        packed = gzip.compress(content)
    if name.endswith(".zst"):
        packed = zstandard.compress(content)
    (tmp_path / name).write_bytes(packed)
    steps: list[int] = []
    trace = read(tmp_path / name, ReadOptions(progress=steps.append))
    assert trace.equals(twin(content).with_(name="run"))
    assert sum(steps) == len(content)


def test_every_torn_tail() -> None:
    content = LINE + b"\n" + NEXT + b"\n"
    whole = len(LINE) + 1
    for size in range(whole, len(content) + 1):
        trace = parse(content[:size])
        dropped = size - whole
        if size >= len(content) - 1:
            assert trace.equals(twin(content))
        else:
            note = (
                f"last line incomplete: line 2 at byte offset {whole}, {dropped} bytes dropped; "
                "the run was cut off or is still writing"
            )
            assert trace.equals(twin(LINE).with_(notes=(note,) if dropped else ()))
            assert [code_of(note) for note in trace.notes] == ([TORN] if dropped else [])


def test_only_a_torn_line_is_no_trace() -> None:
    for size in range(len(LINE)):
        with pytest.raises(Malformed, match="found no routed calls in it"):
            parse(LINE[:size])


# ------------------------------------------------------------------------------------------------------------- sniff


def test_calls_that_used_no_slots() -> None:
    """Later builds read a prompt beside the bank; a call without tokens has empty lists, too."""
    empty = b'{"seq":0,"layer":3,"n_expert_used":2,"n_tokens":1,"experts":[7,120],"slots":[]}'
    none = b'{"seq":1,"layer":4,"n_expert_used":2,"n_tokens":0,"experts":[],"slots":[]}'
    content = b"\n".join((empty, none, LINE.replace(b'"seq":0', b'"seq":2'))) + b"\n"
    trace = parse(content)
    assert trace.expert.tolist() == [7, 120, 7, 120]
    assert trace.slot is None
    assert trace.notes == ("slots left out: only 2 of 3 calls have it",)
    assert trace.equals(twin(content))
