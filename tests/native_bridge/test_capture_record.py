"""What a capture writes can be read at any moment, and is what the engine saw."""

from __future__ import annotations

import io
import json
import re
import resource
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput, Exists
from flashmoe_sim.trace.load import load_trace
from native_bridge.capture import record
from native_bridge.capture.record import RoutedCall, TraceWriter


def call(layer: int, *tokens: tuple[int, ...], weights: bool = False) -> RoutedCall:
    experts = np.array(tokens, np.int32)
    return RoutedCall(layer, experts, (experts / 64).astype(np.float32) if weights else None)


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.jsonl.zst"])
@pytest.mark.parametrize("weights", [False, True])
def test_what_is_read_is_what_was_written(tmp_path: Path, name: str, weights: bool) -> None:
    path = tmp_path / name
    with TraceWriter(path, origin={"model": "m"}) as writer:
        writer.add([call(0, (1, 2), (3, 4), weights=weights), call(1, (5, 6), (7, 8), weights=weights)], phase=1)
        writer.add([call(0, (9, 10), weights=weights), call(1, (11, 12), weights=weights)], phase=2)
        assert (writer.calls, writer.steps) == (4, 2)
    trace = load_trace(path)
    assert trace.layer.tolist() == [0, 1, 0, 1]
    assert trace.n_tokens.tolist() == [2, 2, 1, 1]
    assert trace.expert.tolist() == list(range(1, 13))
    assert trace.steps.tolist() == [0, 0, 1, 1]
    assert trace.phase.tolist() == [1, 1, 2, 2]
    assert trace.slot is None
    assert trace.notes == ()
    assert (trace.weight is not None) == weights
    if trace.weight is not None:
        assert trace.weight.tolist() == [n / 64 for n in range(1, 13)]
    assert writer.written_bytes == path.stat().st_size


def test_a_record_to_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with TraceWriter(path, origin={"model": "m"}) as writer:
        writer.add([call(3, (32, 2), weights=True)], phase=1)
        writer.add([call(3, (1, 0))], phase=2)
    assert path.read_text().splitlines() == [
        '{"seq":0,"layer":3,"n_expert_used":2,"n_tokens":1,"experts":[32,2],"phase":1,"step":0,"weights":[0.5,0.03125],'
        '"origin":{"model":"m"}}',
        '{"seq":1,"layer":3,"n_expert_used":2,"n_tokens":1,"experts":[1,0],"phase":2,"step":1}',
    ]


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.jsonl.zst"])
def test_it_can_be_read_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As after a kill: the writer is never closed."""
    monkeypatch.setattr(record, "FLUSH_S", 0.0)
    with TraceWriter(tmp_path / name, origin={}) as writer:
        for step in range(40):
            writer.add([call(0, (step, step + 1)), call(1, (step, step + 2))], phase=2)
            if step % 13 == 0:
                copy = tmp_path / f"copy-{name}"
                shutil.copy(tmp_path / name, copy)
                assert load_trace(copy).calls == 2 * (step + 1)


class Interrupting(dict[int, NDArray[np.int32]]):
    """A call whose writing is interrupted half-way through its step."""

    def items(self) -> Any:
        raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.jsonl.zst"])
@pytest.mark.parametrize("flushed_after_s", [0.0, 1000.0])
def test_an_interrupted_step_is_not_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, flushed_after_s: float
) -> None:
    monkeypatch.setattr(record, "FLUSH_S", flushed_after_s)
    path = tmp_path / name
    interrupted = call(1, (1, 2))._replace(ahead=Interrupting({1: np.zeros((1, 1), np.int32)}))
    with TraceWriter(path, origin={}) as writer:
        for _ in range(3):
            writer.add([call(0, (1, 2)), call(1, (1, 2))], phase=2)
        with pytest.raises(KeyboardInterrupt):
            writer.add([call(0, (1, 2)), interrupted], phase=2)
    assert writer.steps == 3
    trace = load_trace(path)
    assert (trace.calls, len(set(trace.steps.tolist()))) == (6, 3)


def test_an_interrupted_write_is_repeated_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "FLUSH_S", 0.0)
    path = tmp_path / "t.jsonl.zst"

    class Interrupted(io.FileIO):
        writes = 0

        def write(self, content: Any) -> int:
            self.writes += 1
            if self.writes == 3:
                super().write(content[: len(content) // 2])
                raise KeyboardInterrupt
            return super().write(content)

    monkeypatch.setattr(Path, "open", lambda path, mode, buffering: Interrupted(path, mode))
    with TraceWriter(path, origin={}) as writer:
        for _ in range(2):
            writer.add([call(0, (1, 2))], phase=2)
        with pytest.raises(KeyboardInterrupt):
            writer.add([call(0, (1, 2))], phase=2)
    monkeypatch.undo()
    assert writer.steps == load_trace(path).calls == 3
    assert writer.written_bytes == path.stat().st_size


def test_compressed_steps_are_written_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once if there is much, or after a second."""
    monkeypatch.setattr(record, "FLUSH_S", 1000.0)
    path = tmp_path / "t.jsonl.zst"
    with TraceWriter(path, origin={}) as writer:
        sizes = []
        for _ in range(2000):
            writer.add([call(0, (1, 2))], phase=2)
            sizes.append(path.stat().st_size)
    assert sizes[0] == sizes[1] > 0  # the first at once
    assert 2 <= len(set(sizes)) <= 2 + 2000 * 90 // record.FLUSH_BYTES
    assert load_trace(path).calls == 2000


def test_an_old_trace_stays_until_there_is_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("old")
    with pytest.raises(Exists, match="exists"):
        TraceWriter(path, origin={})
    with TraceWriter(path, origin={}, force=True):
        pass
    assert path.read_text() == "old"
    with TraceWriter(path, origin={}, force=True) as writer:
        writer.add([call(0, (1, 2))], phase=2)
    assert load_trace(path).calls == 1


def test_nothing_captured_leaves_nothing(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "t.jsonl", origin={}):
        pass
    assert list(tmp_path.iterdir()) == []


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.skipif(sys.platform == "win32", reason="has no limits of this kind")
@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.jsonl.zst"])
def test_a_full_disk_keeps_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(record, "FLUSH_S", 0.0)
    path = tmp_path / name
    added = 0
    with files_of_at_most(1500), TraceWriter(path, origin={}) as writer:
        message = ""
        while not message:
            try:
                writer.add([call(0, (1, 2), (3, 4), weights=True)], phase=2)
                added += 1
            except BadInput as error:
                message = str(error)
    assert re.search(rf"{name}: cannot be written .*is kept, \d+ bytes", message)
    assert added > 3
    assert load_trace(path).calls == added
    assert path.stat().st_size <= 1500


def test_the_origin_is_in_the_first_record(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    origin: dict[str, object] = {"model": "m"}
    with TraceWriter(path, origin=origin) as writer:
        origin["library"] = "known when it is loaded"
        writer.add([call(0, (1, 2)), call(1, (1, 2))], phase=2)
    first, second = map(json.loads, path.read_text().splitlines())
    assert first["origin"] == {"model": "m", "library": "known when it is loaded"}
    assert "origin" not in second
