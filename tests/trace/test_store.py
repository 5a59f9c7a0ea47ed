import errno
import os
import zlib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashmoe_sim.io.errors import BadInput, Exists, Unusable
from flashmoe_sim.io.notes import GAP, Note, code_of
from flashmoe_sim.trace import store
from flashmoe_sim.trace._store_columns import crc32_joined
from flashmoe_sim.trace.merge import union
from flashmoe_sim.trace.routing import RoutingTrace
from tests.trace.strategies import random_traces, trace_of

LITTLE = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.parquet"


@given(random_traces())
@LITTLE
def test_every_field_reads_back_equal(path: Path, trace: RoutingTrace) -> None:
    store.write_store(trace, path, force=True)
    again = store.read(path)
    assert trace.equals(again)
    assert again.content_id == trace.content_id
    assert not again.expert.flags.writeable


def test_notes_keep_their_codes(path: Path) -> None:
    written = trace_of((0, [1]), notes=("recorded somewhere", Note(GAP, "one is missing")))
    store.write_store(written, path)
    assert [code_of(note) for note in store.read(path).notes] == [None, GAP]
    assert [code_of(note) for note in union([store.read(path)] * 2).notes] == [None, GAP, None]


def test_many_row_groups(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "CALLS_PER_ROW_GROUP", 2)
    trace = trace_of((0, [1, 2]), (1, [3]), (0, []), (0, [4, 5, 6]), (1, [7]), slots=[[0, 1], [0], [], [2, 3, 4], [1]])
    store.write_store(trace, path)
    assert pq.ParquetFile(path).num_row_groups == 3
    assert store.read(path).equals(trace)


def test_other_tools_see_calls(path: Path) -> None:
    store.write_store(trace_of((0, [1, 2]), (3, [7])), path)
    assert pq.read_table(path, columns=["layer", "expert"]).to_pylist() == [
        {"layer": 0, "expert": [1, 2]},
        {"layer": 3, "expert": [7]},
    ]


def test_an_existing_file_is_kept_without_force(path: Path) -> None:
    path.write_bytes(b"precious")
    with pytest.raises(Exists, match="exists"):
        store.write_store(trace_of((0, [1])), path)
    assert path.read_bytes() == b"precious"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()])
def test_nothing_is_left_half_written(path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    path.write_bytes(b"precious")

    def fail(writer: Any, table: Any) -> None:
        raise error

    monkeypatch.setattr(pq.ParquetWriter, "write_table", fail)
    with pytest.raises((BadInput, KeyboardInterrupt)) as caught:
        store.write_store(trace_of((0, [1])), path, force=True)
    if isinstance(error, OSError):
        assert "cannot be written (No space left on device)" in str(caught.value)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == b"precious"


def test_a_folder_or_device_is_never_replaced(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="not a regular file"):
        store.write_store(trace_of((0, [1])), tmp_path, force=True)
    with pytest.raises(Unusable, match="not a regular file"):
        store.write_store(trace_of((0, [1])), Path(os.devnull), force=True)
    with pytest.raises(Unusable, match="cannot be written"):
        store.write_store(trace_of((0, [1])), tmp_path / "missing" / "a.parquet")
    for length in (240, 300):
        with pytest.raises(Unusable, match="cannot be written"):
            store.write_store(trace_of((0, [1])), tmp_path / ("a" * length + ".parquet"))


def test_wrong_dtypes_are_a_bug_and_say_so(path: Path) -> None:
    trace = trace_of((0, [1]))
    with pytest.raises(TypeError, match="expert is int64, expected int16"):
        store.write_store(trace.with_(expert=trace.expert.astype("i8")), path)
    assert not path.exists()


@given(st.binary(), st.binary())
def test_the_checksum_of_two_pieces_as_one(first: bytes, second: bytes) -> None:
    assert crc32_joined(zlib.crc32(first), zlib.crc32(second), len(second)) == zlib.crc32(first + second)
