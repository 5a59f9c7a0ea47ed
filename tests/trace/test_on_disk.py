"""A trace in temporary files is the trace in memory, and what is computed from it is equal."""

from __future__ import annotations

import errno
import mmap
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashmoe_sim.cli.main import main
from flashmoe_sim.io.errors import Incomplete, Malformed, TooLarge, Unusable
from flashmoe_sim.trace import long_traces, routing, store
from flashmoe_sim.trace.check import check_trace, largest_experts
from flashmoe_sim.trace.load import load_on_disk, load_trace
from flashmoe_sim.trace.long_traces import Growing, OnDisk, cut_up, joined, parts_of, scratch_file, unpack, whole
from flashmoe_sim.trace.phases import find_phases
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.statistics import inspect
from tests.support import document, refusal
from tests.trace.strategies import model_traces, random_traces, trace_of

CUTS = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "BLOCK", 3)


def unpacked(trace: RoutingTrace, data: st.DataObject) -> OnDisk:
    return unpack(cut_up(trace, sorted(data.draw(st.lists(st.integers(0, trace.calls), max_size=5)))))


def is_mapped(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array.obj if isinstance(array, memoryview) else array, mmap.mmap)


@given(trace=random_traces(), data=st.data())
@CUTS
def test_any_trace_and_any_cut(small_blocks: None, trace: RoutingTrace, data: st.DataObject) -> None:
    found = unpacked(trace, data)
    assert found.equals(trace)
    assert found.content_id == trace.content_id
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routing, "BLOCK", 1 << 20)
        expected = trace.with_()
        values = (expected.layers, expected.tokens, expected.longest_call)
        assert (expected.steps.tolist(), expected.has_refs.tolist(), expected.content_id) == (
            found.steps.tolist(),
            found.has_refs.tolist(),
            found.content_id,
        )
    assert values == (found.layers, found.tokens, found.longest_call)
    assert largest_experts(found).tolist() == largest_experts(trace).tolist()
    for array in (found.layer, found.steps, found.has_refs):
        assert not len(array) or is_mapped(array)
        assert not array.flags.writeable


@given(trace=random_traces(), data=st.data())
@CUTS
def test_statistics(small_blocks: None, trace: RoutingTrace, data: st.DataObject) -> None:
    found = unpacked(trace, data)
    if not trace.calls:
        with pytest.raises(Incomplete, match="no routed calls"):
            inspect(found)
        return
    by_parts = inspect(found, banks=[1, 2, 5])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routing, "BLOCK", 1 << 20)
        assert inspect(trace, banks=[1, 2, 5]) == by_parts


@given(traces=model_traces(), phase=st.booleans(), data=st.data())
@CUTS
def test_phases(small_blocks: None, traces: list[RoutingTrace], phase: bool, data: st.DataObject) -> None:
    (trace, *_) = traces
    if phase:
        phases = st.lists(st.integers(0, 2), min_size=trace.calls, max_size=trace.calls)
        trace = trace.with_(phase=np.array(data.draw(phases), np.uint8))
    found = find_phases(unpacked(trace, data))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routing, "BLOCK", 1 << 20)
        expected = find_phases(trace)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert {name: np.array(value).tolist() for name, value in asdict(found).items()} == {
            name: np.array(value).tolist() for name, value in asdict(expected).items()
        }


@given(trace=random_traces())
@CUTS
def test_parts_are_the_whole(small_blocks: None, trace: RoutingTrace) -> None:
    parts = [*parts_of(trace)]
    head = cut_up(trace, []).head
    for part in parts:
        assert part.calls == 1 or (part.calls <= 3 and part.refs <= 3)
        head = joined(head, part)
    assert whole(head).equals(trace)


@pytest.mark.usefixtures("small_blocks")
def test_an_error_names_the_call_of_the_whole_trace() -> None:
    trace = trace_of(*((0, [1, 2]) for _ in range(8)), top_k=2)
    tokens = np.ones(8, np.int32)
    for changes, says in (
        ({"expert": np.tile(np.arange(4, dtype=np.int16), 4), "offset": np.array([0, 1, 2, 3, 4, 5, 6, 7, 16])},
         "top_k is 2, but call 7 has 9 references of 1 tokens"),
        ({"offset": np.array([0, 2, 4, 6, 8, 10, 12, 11, 16])}, "offset goes back at call 6"),
        ({"n_tokens": tokens, "n_text": np.array([1, 1, 1, 1, 1, 1, 2, 1], np.int32)}, "n_text 6 is 2; the call has 1"),
    ):  # fmt: skip
        with pytest.raises(Malformed, match=says):
            check_trace(trace.with_(**changes), where="t")


def test_files_have_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASHMOE_CACHE", str(tmp_path / "made"))
    found = unpack(cut_up(trace_of((0, [1, 2]), (1, [3, 0])), [1]))
    assert found.expert.tolist() == [1, 2, 3, 0]
    assert not list((tmp_path / "made").iterdir())


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FLASHMOE_CACHE", str(tmp_path / "file"))
    with pytest.raises(Unusable, match="name another folder with FLASHMOE_CACHE"):
        scratch_file()


class Full:
    """A file on a full disk."""

    def write(self, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never in a map, where it would end the process."""
    with pytest.raises(Unusable, match="No space left on device"):
        Growing(Full(), np.int16).add(np.ones(1, np.int16))  # type: ignore[arg-type]

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    found = unpack(cut_up(trace_of((0, [1, 2])), []))
    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(Unusable, match="No space left on device"):
        found.empty(long_traces.FILE_BYTES, np.int16)


def test_arrays_do_not_overlap() -> None:
    found = unpack(cut_up(trace_of((0, [1, 2])), []))
    arrays = [found.empty(length, kind) for length in (0, 1, 3, 1000) for kind in (np.int8, np.int16, np.int64)]
    for number, array in enumerate(arrays):
        array[:] = number
    assert all((array == number).all() for number, array in enumerate(arrays))
    assert found.empty(long_traces.FILE_BYTES + 1, np.int8).flags.writeable


def test_more_calls_than_kernels_can_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_traces, "MOST_CALLS", 2)
    with pytest.raises(TooLarge, match="has more than 2 calls"):
        unpack(cut_up(trace_of((0, [1]), (1, [1]), (0, [1])), [1]))


def test_a_damaged_store_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    store.write_store(load_trace("python-256"), path)
    assert load_on_disk(path).equals(load_trace(path))
    content = path.read_bytes()
    for at in (len(content) // 3, len(content) // 2):
        path.write_bytes(content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :])
        with pytest.raises(Malformed, match="damaged"):
            load_on_disk(path)
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(Malformed, match="damaged"):
        load_on_disk(path)


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "a.parquet")
    assert main(["trace", "convert", "python-256", out]) == 0
    capsys.readouterr()
    for words in (
        ["trace", "inspect", out, "--bank", "16,64"],
        ["trace", "inspect", "gpt-oss-120b"],
        ["curve", out, "--policy", "min"],
        ["curve", "python-256", "--policy", "static"],
        ["replay", out, "--bank", "64", "--prefetch", "temporal"],
        ["replay", "python-256", "--bank", "64", "--policy", "min", "--contract", "atomic", "--prefetch", "temporal"],
        ["replay", "python-256", "--bank", "64", "--policy", "lookahead-4", "--contract", "atomic"],
    ):
        assert document(capsys, *words) == document(capsys, *words, "--in-chunks")
    for words, says in (
        (["replay", out, "--bank", "64", "--machine", "m3-max-48"], "leave out --machine"),
        (
            ["replay", out, "--bank", "64", "--prefetch", "oracle-1"],
            "oracle-1 keeps all predictions in memory",
        ),
        (["replay", out, "--bank", "64", "--policy", "hot-window", "--contract", "atomic"], "plans over all steps"),
        (["curve", out, "--sample", "0.5"], "a sample is drawn from a trace in memory"),
    ):
        assert says in refusal(capsys, *words, "--in-chunks")
