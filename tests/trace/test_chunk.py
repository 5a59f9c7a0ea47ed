"""A trace read or written in chunks is the trace read or written whole."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashmoe_sim.cli.main import main
from flashmoe_sim.io.errors import BadInput, Malformed, Unusable
from flashmoe_sim.trace import runtime_jsonl, store
from flashmoe_sim.trace.load import load_trace, open_long
from flashmoe_sim.trace.long_traces import Chunk, cut_up, joined, regrouped, whole
from flashmoe_sim.trace.requests import ReadOptions
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.write_jsonl import write_jsonl
from tests.trace.strategies import model_traces, random_traces, trace_of

LITTLE = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def put_together(head: Chunk, chunks: Iterable[Chunk]) -> RoutingTrace:
    return whole(reduce(joined, chunks, head))


@given(random_traces(), st.integers(1, 5), st.integers(1, 9), st.data())
@LITTLE
def test_a_store_in_chunks(tmp_path: Path, trace: RoutingTrace, calls: int, refs: int, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, trace.calls), max_size=4)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "CALLS_PER_ROW_GROUP", calls)
        patch.setattr(store, "REFS_PER_ROW_GROUP", refs)
        store.write_chunks(cut_up(trace, cuts), tmp_path / "cut.parquet", force=True)
        store.write_store(trace, tmp_path / "whole.parquet", force=True)
        assert (tmp_path / "cut.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
        long = store.read_chunks(tmp_path / "cut.parquet")
        assert long.head.layers == trace.layers
        for _ in range(2):
            chunks = list(long.read())
            assert all(chunk.calls <= calls for chunk in chunks)
            assert put_together(long.head, chunks).equals(trace)


@given(random_traces(), st.integers(1, 5), st.integers(1, 9))
@LITTLE
def test_regrouped_chunks_are_as_long_as_allowed(trace: RoutingTrace, calls: int, refs: int) -> None:
    chunks = list(regrouped(cut_up(trace, [trace.calls // 2]).read(), calls=calls, refs=refs))
    assert put_together(cut_up(trace, []).head, chunks).equals(trace)
    for chunk, following in itertools.pairwise(chunks):
        assert chunk.calls == 1 or (chunk.calls <= calls and chunk.refs <= refs)
        assert chunk.calls == calls or chunk.refs + following.offset[1] > refs


def test_a_store_with_its_metadata_in_the_schema(tmp_path: Path) -> None:
    """As whole stores were written first: one row group for all calls."""
    trace, path = trace_of((0, [1, 2]), (3, [7, 0]), (0, [2, 3]), n_experts={0: 8, 2: 8, 3: 8}), tmp_path / "a.parquet"
    store.write_store(trace, path)
    pq.write_table(pq.ParquetFile(path).read(), path)
    assert store.read(path).equals(trace)
    long = store.read_chunks(path)
    assert long.head.layers == (0, 3)
    assert put_together(long.head, long.read()).equals(trace)


def test_a_changed_store_is_found_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    store.write_store(trace_of((0, [1, 2]), (1, [3, 0])), path)
    table = pq.ParquetFile(path).read()
    about = json.loads(table.schema.metadata[store.METADATA_KEY])
    about["name"] = "another"
    pq.write_table(table.replace_schema_metadata({store.METADATA_KEY: json.dumps(about).encode()}), path)
    chunks = store.read_chunks(path).read()
    assert next(chunks).calls == 2
    with pytest.raises(Malformed, match="checksum does not match"):
        next(chunks)


@given(model_traces(), st.integers(1, 5))
@LITTLE
def test_jsonl_in_chunks(tmp_path: Path, traces: list[RoutingTrace], calls: int) -> None:
    path = tmp_path / "a.jsonl"
    try:
        write_jsonl(traces[0], path, force=True)
    except BadInput:
        return
    _assert_read_alike(path, calls)


@pytest.mark.parametrize(
    "lines",
    [
        ['{"layer":0,"experts":[1,2],"slots":[0,1]}', '{"layer":1,"experts":[5,2]}', '{"layer":0,"experts":[1,2]}'],
        ['{"layer":0,"experts":[1],"phase":1,"step":4}', '{"layer":0,"experts":[300],"step":9}'],
        ['{"layer":0,"experts":[1],"weights":[0.5]}'] * 5,
        ['{"layer":2,"experts":[1]}', "rubbish", '{"layer":0,"experts":[1]}', '{"layer":0,"exp'],
        ['{"seq":0,"layer":2,"experts":[1]}', '{"seq":7,"layer":0,"experts":[1]}', '{"layer":0,"experts":[2]}'],
    ],
)
@pytest.mark.parametrize("calls", [1, 2, 9])
def test_jsonl_with_parts_missing_in_chunks(tmp_path: Path, lines: list[str], calls: int) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines))
    _assert_read_alike(path, calls)


def _assert_read_alike(path: Path, calls: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime_jsonl, "CHUNK_BYTES", 64)
        patch.setattr(runtime_jsonl, "CALLS_PER_CHUNK", calls)
        expected = load_trace(path, lenient=True)
        with open_long(path, ReadOptions(lenient=True)) as long:
            for _ in range(2):
                assert put_together(long.head, long.read()).equals(expected)
            assert long.head.layers == expected.layers


def test_a_jsonl_that_changes_between_two_readings(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"layer":0,"experts":[1]}\n' * 3)
    with open_long(path) as long:
        with path.open("a") as more:
            more.write('{"layer":0,"experts":[1]}\n')
        with pytest.raises(Unusable, match="changed while it was read"):
            list(long.read())


def test_convert_in_chunks(tmp_path: Path) -> None:
    out = tmp_path / "a.parquet"
    assert main(["trace", "convert", "python-256", str(out)]) == 0
    assert load_trace(out).with_(format="", notes=()).equals(load_trace("python-256").with_(format="", notes=()))


def test_a_chunk_shares_the_references_of_its_trace() -> None:
    trace = trace_of((0, [1, 2]), (3, [7, 0]), (0, [2, 3]))
    assert all(np.shares_memory(chunk.expert, trace.expert) for chunk in cut_up(trace, [1]).read())
