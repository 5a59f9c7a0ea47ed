"""Compressed traces that hold far more than their size, and byte order marks."""

from __future__ import annotations

import gzip
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import zstandard

from flashmoe_sim.io.errors import BadInput, Malformed, TooLarge
from flashmoe_sim.trace import csv_rows, grouped_pairs, source
from flashmoe_sim.trace.load import load_trace

RECORD = b'{"layer":0,"n_expert_used":1,"n_tokens":1,"experts":[1]}\n'
ROUTE = (
    b"# route_trace v1\n# n_layer=1 n_expert=8 n_expert_used=1\n# layer=0 expert_bytes=100 dense_bytes=10\n"
    b"turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n"
)
REPEATED = {
    "runtime": (b"", RECORD),
    "blank lines": (RECORD, b"\n"),
    "pairs": (b"", b"[[0,1]]\n"),
    "rows": (b"layer,expert\n", b"0,1\n"),
    "routes": (ROUTE, b"0,1,0,0,0,1,0.5,0,100\n"),
    "preamble": (b"# route_trace v1\n", b"# more\n"),
    "grouped": (b'{"num_groups":1,"experts_per_group":8,"entry_bytes":1,"trace":[[0,1]', b",[0,1]"),
    "parquet": (b"PAR1", b"\0" * 64),
    "one line": (b"[[0,1]", b",[0,1]"),
}


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
@pytest.mark.parametrize("kind", REPEATED)
def test_what_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, pack: object
) -> None:
    assert callable(pack)
    monkeypatch.setattr(source, "SMALL_BYTES", 1 << 20)
    first, again = REPEATED[kind]
    path = tmp_path / "a"
    path.write_bytes(pack(first + again * ((3 << 20) // len(again))))
    with pytest.raises(BadInput) as error:
        load_trace(path)
    if kind == "one line":
        assert "line 1 is longer than 1 MiB" in str(error.value)
    else:
        assert f"{path}: decompresses to more than 1 MiB, over 100 times its size: not a trace" in str(error.value)


def test_a_trace_that_repeats_one_token_is_read(tmp_path: Path) -> None:
    """As long as it is small, or compresses no better than traces do."""
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(zstandard.compress(RECORD * 50_000))
    assert path.stat().st_size * 1000 < len(RECORD) * 50_000
    assert load_trace(path).calls == 50_000
    assert source.most_bytes(1 << 30) > 100 << 30


def test_a_document_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped_pairs, "MAX_DOCUMENT_BYTES", 1 << 20)
    path = tmp_path / "a.json"
    path.write_bytes(b'{"trace":[[0,1]' + b",[0,1]" * 200_000 + b"]}")
    with pytest.raises(TooLarge, match="a JSON document of more than 1 MiB is not read"):
        load_trace(path)


GROUPED = b'{"num_groups":1,"experts_per_group":8,"entry_bytes":1,"trace":[[0,1],[0,2]]}'


@pytest.mark.parametrize(
    "content",
    [RECORD, b"[[0,1],[0,2]]\n", b"layer,expert\n0,1\n", ROUTE + b"0,1,0,0,0,1,0.5,0,100\n", GROUPED],
    ids=["runtime-jsonl", "token-pairs", "plain-csv", "route-csv", "grouped-pairs"],
)
def test_a_byte_order_mark_is_passed_over(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    without = load_trace(path)
    path.write_bytes(b"\xef\xbb\xbf" + content)
    assert load_trace(path).equals(without)


def test_one_unusual_line_makes_only_its_block_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long body is read in blocks, with the line numbers of the whole file."""
    path = tmp_path / "a.csv"
    rows = [f"{n},{n % 7}" for n in range(1, 32001)] * 16
    path.write_text("layer,expert\n" + "\n".join(rows) + "\n")
    trace = load_trace(path)
    assert trace.refs == len(rows)
    slow: list[int] = []
    line_by_line = csv_rows._line_by_line

    def counted(body: bytes, **named: object) -> object:
        slow.append(len(body))
        return line_by_line(body, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(csv_rows, "_line_by_line", counted)
    rows[400_000] = "5,x"
    path.write_text("layer,expert\n" + "\n".join(rows) + "\n")
    with pytest.raises(Malformed, match=r"line 400002: expert is 'x'"):
        load_trace(path)
    assert len(slow) == 1
    assert slow[0] < 3 << 20
    lenient = load_trace(path, lenient=True)
    assert lenient.refs == len(rows) - 1


def test_threads_that_read_the_same_trace_each_read_it_in_their_own_way(tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl.gz"
    packed = gzip.compress(
        b"".join(b'{"layer":0,"n_expert_used":1,"n_tokens":1,"experts":[%d]}\n' % (i % 7) for i in range(3000))
    )
    path.write_bytes(packed[: len(packed) // 2])

    def read(lenient: bool) -> bool:
        try:
            return load_trace(path, lenient=lenient).calls > 0
        except Malformed:
            return False

    lenient = [number % 3 == 0 for number in range(300)]
    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(read, lenient)] == lenient
