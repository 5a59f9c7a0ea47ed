"""Malformed traces of the runtime: one line with the place, what was found, what was expected and what to do."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from flashmoe_sim.io.errors import Malformed
from flashmoe_sim.io.notes import SKIPPED, code_of
from flashmoe_sim.trace import runtime_jsonl
from flashmoe_sim.trace.runtime_jsonl import read
from tests.support import refused
from tests.trace.jsonl_twin import BOM, LINE, NEXT, parse, twin


def changed(old: bytes, new: bytes) -> bytes:
    assert old in LINE
    return LINE.replace(old, new)


NOT_RECORDS = {
    "id -1": (changed(b"120", b"-1"), "found expert id -1 (entry 2 of experts), expected an integer from 0 to 32767"),
    "id 32768": (changed(b"120", b"32768"), "found expert id 32768"),
    "id 2^64": (changed(b"120", b"18446744073709551616"), "found expert id 1.8446744073709552e+19"),
    "id 3.5": (changed(b"120", b"3.5"), "found expert id 3.5"),
    "id text": (changed(b"120", b'"7"'), 'found expert id "7"'),
    "id true": (changed(b"120", b"true"), "found expert id true"),
    "id null": (changed(b"120", b"null"), "found expert id null"),
    "id list": (changed(b"120", b"[1,2]"), "found expert id a list of 2"),
    "slot -2": (changed(b"[0,1]", b"[0,-2]"), "found slot -2 (entry 2 of slots), expected an integer from -1 to 32767"),
    "slot 32768": (changed(b"[0,1]", b"[0,32768]"), "found slot 32768"),
    "layer -1": (changed(b'"layer":3', b'"layer":-1'), "found layer -1, expected an integer from 0 to 32767"),
    "layer 32768": (changed(b'"layer":3', b'"layer":32768'), "found layer 32768"),
    "layer null": (changed(b'"layer":3', b'"layer":null'), "found layer null"),
    "n_tokens 0": (changed(b'"n_tokens":1', b'"n_tokens":0'), "found 2 experts, expected 0 (n_expert_used 2 x n_to"),
    "n_tokens -1": (changed(b'"n_tokens":1', b'"n_tokens":-1'), "found n_tokens -1, expected an integer from 0"),
    "n_tokens 2^31": (changed(b'"n_tokens":1', b'"n_tokens":2147483648'), "found n_tokens 2147483648"),
    "n_tokens 1.0": (changed(b'"n_tokens":1', b'"n_tokens":1.0'), "found n_tokens 1.0"),
    "n_expert_used 0": (changed(b'used":2', b'used":0'), "found n_expert_used 0, expected an integer from 1"),
    "product overflows": (
        changed(b'used":2,"n_tokens":1', b'used":2147483647,"n_tokens":2147483647'),
        "found 2 experts, expected 4611686014132420609",
    ),
    "seq 2^63": (changed(b'"seq":0', b'"seq":9223372036854775808'), "found seq 9223372036854775808"),
    "no ids": (changed(b"[7,120]", b"[]"), "found 0 experts, expected 2"),
    "too many ids": (changed(b"[7,120]", b"[7,120,3]"), "found 3 experts, expected 2"),
    "ids not a list": (changed(b"[7,120]", b"7"), "found experts 7, expected a list of expert ids"),
    "too few slots": (changed(b"[0,1]", b"[0]"), "found 1 slots, expected 2"),
    "too many slots": (changed(b"[0,1]", b"[0,1,2]"), "found 3 slots, expected 2"),
    "no layer": (changed(b'"layer":3,', b""), 'found no "layer", expected an object with layer and experts'),
    "no experts": (changed(b'"experts":[7,120],', b""), 'found no "experts"'),
    "uneven n_tokens": (changed(b'"n_expert_used":2,"n_tokens":1', b'"n_tokens":3'), "expected a multiple of n_tokens"),
    "uneven n_expert_used": (changed(b'used":2,"n_tokens":1', b'used":3'), "expected a multiple of n_expert_used 3"),
    "bare without ids": (b'{"layer":3,"experts":[]}', "found 0 experts, expected at least one"),
    "bare with too many slots": (b'{"layer":3,"experts":[1],"slots":[1,2]}', "found 2 slots, expected 1"),
    "phase 3": (LINE[:-1] + b',"phase":3}', "found phase 3, expected an integer from 0 to 2"),
    "phase word": (LINE[:-1] + b',"phase":"warm"}', 'found phase "warm"'),
    "step -1": (LINE[:-1] + b',"step":-1}', "found step -1"),
    "sequence 2^31": (LINE[:-1] + b',"sequence":2147483648}', "found sequence 2147483648"),
    "weights text": (LINE[:-1] + b',"weights":[0.5,"x"]}', 'found weight "x" (entry 2 of weights)'),
    "weights large": (LINE[:-1] + b',"weights":[0.5,1e300]}', "found weight 1e+300"),
    "weights short": (LINE[:-1] + b',"weights":[0.5]}', "found 1 weights, expected 2"),
    "layer twice": (LINE[:-1] + b',"layer":3}', 'found "layer" twice, expected each key once'),
    "list": (b"[" + LINE + b"]", "found a list of 1, expected an object"),
    "word": (b"null", "found null, expected an object"),
}
# What the kernels leave to orjson, whose own tests are of all JSON; the kernels agree with it on damaged lines.
NOT_JSON = {
    "id of 400 digits": (changed(b"120", b"1" * 400), "found invalid JSON"),
    "id leading zero": (changed(b"120", b"012"), "found invalid JSON (number with leading zero"),
    "words": (b"hello", "found invalid JSON"),
    "run together": (LINE + NEXT, f"unexpected content after document, column {len(LINE) + 1}"),
    "NUL": (changed(b"120", b"1\x00"), f"found NUL bytes (column {LINE.index(b'120') + 2})"),
    "not UTF-8": (LINE[:-1] + b',"who":"\xff"}', f"found bytes that are not UTF-8 (column {len(LINE) + 8})"),
    "comma at the end": (LINE[:-1] + b",}", "found invalid JSON"),
    "comma in list": (changed(b"120]", b"120,]"), "found invalid JSON"),
    "bad unknown number": (LINE[:-1] + b',"x":1.}', "found invalid JSON"),
    "unknown number no double holds": (LINE[:-1] + b',"x":-1.5e313}', "found invalid JSON"),
    "half a character": (LINE[:-1] + b',"x":"\\ud800"}', "found invalid JSON (no low surrogate in string"),
    "UTF-16": (("\ufeff" + LINE.decode()).encode("utf-16-le"), "found NUL bytes"),
}
BAD = NOT_RECORDS | NOT_JSON


@pytest.mark.parametrize("name", BAD)
def test_malformed_line(name: str) -> None:
    """Bad lines in the middle and at the end, with a newline and without; only the last line may be torn."""
    line, message = BAD[name]
    content = LINE + b"\n\n" + line + b"\n" + NEXT + b"\n"
    to_do = "; fix or delete the line, or skip such lines with --lenient$"
    expected = twin(LINE + b"\n" + NEXT).with_(notes=("1 malformed line skipped: 3",))
    for chunk_bytes in (3, 1 << 16):
        with refused(Malformed, message, begins="t.jsonl:3: ", match=to_do):
            parse(content, chunk_bytes=chunk_bytes)
        assert parse(content, lenient=True, chunk_bytes=chunk_bytes).equals(expected)
    for end in (b"\n", b"") if name in NOT_RECORDS else (b"\n",):
        with refused(Malformed, message, begins="t.jsonl:2: "):
            parse(LINE + b"\n" + line + end)


@pytest.mark.parametrize("content", [b"", b"\n\n", BOM, b" \r\n"])
def test_empty(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(content)
    with pytest.raises(Malformed, match=r"t\.jsonl: found no routed calls in it"):
        read(tmp_path / "t.jsonl")


@pytest.mark.parametrize("newline", [b"", b"\n"])
def test_binary(newline: bytes) -> None:
    noise = random.Random(0).randbytes(5000).replace(b"\n", b"") + newline
    with pytest.raises(Malformed, match=r"t\.jsonl:1: found NUL bytes \(column"):
        parse(noise)
    with pytest.raises(Malformed, match=r"found no routed calls in it \(1 malformed line skipped: 1\)"):
        parse(noise, lenient=True)


def test_only_the_first_skipped_lines_are_listed() -> None:
    notes = parse(LINE + b"\n" + b"{}\n" * 9, lenient=True).notes
    assert notes == ("9 malformed lines skipped: 2, 3, 4, 5, 6, ...",)
    assert code_of(notes[0]) == SKIPPED


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("chunk_bytes", [10, 64, 500])
def test_line_too_long(monkeypatch: pytest.MonkeyPatch, *, lenient: bool, chunk_bytes: int) -> None:
    monkeypatch.setattr(runtime_jsonl, "LONGEST_LINE", 500)
    padded = LINE[:-1] + b" " * (500 - len(LINE)) + b"}\n"
    assert parse(padded, chunk_bytes=chunk_bytes).calls == 1
    with pytest.raises(Malformed, match=r"t\.jsonl:2: found a line longer than 500 bytes"):
        parse(LINE + b"\n" + b" " + padded, chunk_bytes=chunk_bytes, lenient=lenient)
    with pytest.raises(Malformed, match="longer than 500"):
        parse(LINE + b"\n" + b"x" * 501, chunk_bytes=chunk_bytes, lenient=lenient)
