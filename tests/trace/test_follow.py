"""A trace read while it is written is the trace read whole, at every byte of it."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from flashmoe_sim.io.errors import Malformed, Unsupported, Unusable
from flashmoe_sim.trace.chunk import Chunk, part_of
from flashmoe_sim.trace.follow import Follower
from flashmoe_sim.trace.runtime_jsonl import read

LINES = [
    b'\xef\xbb\xbf{"layer":0,"n_expert_used":2,"n_tokens":1,"experts":[1,2],"slots":[0,1],"step":0}\n',
    b'{"layer":3,"n_expert_used":2,"n_tokens":1,"experts":[1,9],"slots":[0,0],"step":0}\r\n',
    b"\n",
    b'{"layer":0,"n_expert_used":2,"n_tokens":2,"experts":[1,2,3,4],"slots":[0,1,2,3],"step":1}\n',
    b'{"experts":[70,2],"layer":5,"n_tokens":1,"n_expert_used":2,"slots":[0,1]}  \n',
    b'{"layer":0,"n_expert_used":1,"n_tokens":1,"experts":[1]}\n',
]
WHOLE = b"".join(LINES)


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as stream:
        stream.write(data)


def calls_of(chunk: Chunk) -> list[tuple[int, int, list[int]]]:
    ends = zip(chunk.offset, chunk.offset[1:], strict=False)
    experts = [chunk.expert[first:end].tolist() for first, end in ends]
    return list(zip(chunk.layer.tolist(), chunk.n_tokens.tolist(), experts, strict=True))


def test_at_every_byte(tmp_path: Path) -> None:
    path, copy = tmp_path / "t.jsonl", tmp_path / "copy" / "t.jsonl"
    copy.parent.mkdir()
    path.write_bytes(WHOLE[:3])
    follower, found, head = Follower(path), [], None
    for end in range(4, len(WHOLE) + 1):
        append(path, WHOLE[end - 1 : end])
        for chunk in follower.look():
            found += calls_of(chunk)
            head = part_of(chunk, 0, 0)
        copy.write_bytes(WHOLE[:end])
        if head is None:
            with pytest.raises(Malformed):
                read(copy)
            continue
        whole = read(copy)
        assert found == calls_of(whole)
        for name in ("layers", "n_experts", "top_k", "name"):
            assert getattr(head, name) == getattr(whole, name)
        assert ((head.step is None), (head.slot is None)) == ((whole.step is None), (whole.slot is None))
        again = [call for chunk in follower.again(head) for call in calls_of(chunk)]
        assert again == found
    assert len(found) == 5
    assert follower.read_bytes == len(WHOLE)
    assert not list(follower.look())


def test_another_file_a_shorter_one_and_none(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    follower = Follower(path)
    assert (list(follower.look()), follower.there, follower.event) == ([], False, "")
    path.write_bytes(WHOLE)
    assert (sum(chunk.calls for chunk in follower.look()), follower.beginnings, follower.event) == (5, 1, "")

    for event, change in (
        ("another file took its place", lambda: os.replace(other(tmp_path, WHOLE), path)),
        (f"it was cut from {len(WHOLE)} to {len(LINES[0])} bytes", lambda: os.truncate(path, len(LINES[0]))),
        ("it was written over", lambda: path.write_bytes(LINES[5] * 3)),
    ):
        change()
        calls = [call for chunk in follower.look() for call in calls_of(chunk)]
        assert calls == calls_of(read(path))
        assert follower.event == f"{event}; read from its first byte"
    assert follower.beginnings == 4

    path.unlink()
    assert (list(follower.look()), follower.there, follower.event) == ([], False, "it is gone")
    assert (list(follower.look()), follower.event) == ([], "")
    os.replace(other(tmp_path, LINES[0]), path)
    assert sum(chunk.calls for chunk in follower.look()) == 1
    assert follower.there


def other(folder: Path, content: bytes) -> Path:
    (folder / "other").write_bytes(content)
    return folder / "other"


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(LINES[1])
    follower, lenient = Follower(path), Follower(path, lenient=True)
    assert len(list(follower.look())) == len(list(lenient.look())) == 1
    append(path, LINES[3] + b'{"layer":0}\n' + LINES[3])
    with pytest.raises(Malformed, match=r"t\.jsonl:3: .*experts"):
        list(follower.look())
    assert sum(chunk.calls for chunk in lenient.look()) == 2


def test_what_cannot_grow_is_refused(tmp_path: Path) -> None:
    packed = tmp_path / "t.jsonl.gz"
    packed.write_bytes(gzip.compress(WHOLE))
    with pytest.raises(Unsupported, match="is compressed"):
        list(Follower(packed).look())
    with pytest.raises(Unusable, match="is not a file"):
        list(Follower(tmp_path).look())
    (tmp_path / "pairs").write_bytes(b"[[0, 1]]\n")
    with pytest.raises(Malformed, match=r"pairs:1: found a list of 1, .*; only the runtime's lines .* can be followed"):
        list(Follower(tmp_path / "pairs").look())
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Unusable, match="is not a file"):
        list(Follower(tmp_path / "pipe").look())


def test_a_line_goes_on_after_it_seemed_complete(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(LINES[1].strip())
    follower = Follower(path)
    assert sum(chunk.calls for chunk in follower.look()) == 1
    append(path, b"more\n")
    with pytest.raises(Malformed, match=r"t\.jsonl:1: "):
        list(follower.look())


def test_more_experts_than_memory_is_for_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(
        b"".join(LINES[-1].replace(b":0", b":%d" % layer).replace(b"[1]", b"[32767]") for layer in range(129))
    )
    with pytest.raises(Malformed, match=r"t\.jsonl: its 129 layers have 4,227,072 experts together"):
        list(Follower(path).look())
