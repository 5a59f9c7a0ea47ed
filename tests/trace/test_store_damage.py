"""Stores that something else than this program wrote, or that changed afterwards: refused in one line, or equal."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.io.errors import BadInput, Malformed, TooLarge, Unsupported
from flashmoe_sim.trace import store
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.routing import RoutingTrace
from tests.support import refused
from tests.trace.strategies import trace_of

TRACE = trace_of(
    (0, [1, 2]),
    (3, [7, 0]),
    (0, [2, 3]),
    slots=[[0, 1], [0, 1], [1, 2]],
    n_experts={0: 8, 3: 8},
    top_k=2,
    weight=np.array([0.5, 0.25, 1, 2, 3, 4], np.float32),
    step=np.array([0, 0, 1], np.int32),
    expert_bytes={0: 100, 3: 100},
    dense_bytes={0: 0, 3: 7},
    name="t",
    notes=("a note",),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "t.parquet"
    store.write_store(TRACE, path)
    return path


def rewrite(path: Path, table: pa.Table | None = None, *, checksum: bool = False, **changes: Any) -> None:
    """Write other columns and metadata, by default without the checksum, as stores of the first version are."""
    stored = pq.ParquetFile(path).read()
    about = json.loads(stored.schema.metadata[store.METADATA_KEY]) | changes
    if not checksum:
        about.pop(store.CHECKSUM, None)
    with_metadata(path, json.dumps(about).encode(), stored if table is None else table)


def with_metadata(path: Path, metadata: bytes, table: pa.Table | None = None) -> None:
    table = pq.ParquetFile(path).read() if table is None else table
    pq.write_table(table.replace_schema_metadata({store.METADATA_KEY: metadata}), path)


def lists(values: list[Any], item: pa.DataType, widths: tuple[int, ...] = (2, 2, 2)) -> pa.Array:
    return pa.LargeListArray.from_arrays(pa.array(np.cumsum([0, *widths])), pa.array(values, item))


# What the store itself demands; bounds are the gate's, of which test_check.py has all.
METADATA: list[tuple[dict[str, Any], str]] = [
    ({"n_experts": [[0, 3], [3, 8]]}, "layer 0 asks for expert 3; it has 3, numbered from 0"),
    ({"n_experts": None}, "n_experts is nothing"),
    ({"n_experts": [[0, 8], [3, 8], [3, 9]]}, "n_experts names a layer twice"),
    ({"n_experts": 8}, "damaged trace store"),
    ({"n_experts": [[0, 8, 1]]}, "damaged trace store"),
    ({"refs": 10**11}, "6 refs, expected 100000000000"),
    ({"refs": "6"}, "refs is '6', expected a number"),
    ({"calls": 4}, "3 calls, expected 4"),
    ({"name": "\ud800"}, "damaged trace store"),
    ({"notes": "abc"}, "notes are 'abc', expected a list"),
    ({"note_codes": "gap"}, "note_codes are 'gap'; expected a list of skipped-lines, "),
    ({"note_codes": ["gap"]}, "note_codes are ['gap']"),
    ({"note_codes": []}, "damaged trace store"),
    ({"version": "1"}, "version is '1', expected a number"),
]
COLUMNS: list[tuple[str, pa.Array, str]] = [
    ("expert", lists([1, 2, 7, -5, 2, 3], pa.int16()), "expert 3 is -5; expected 0 to 32767"),
    ("expert", lists([1, 2, 7, 0, 2, 3], pa.int64()), "expert is int64 with 0 nulls, expected int16"),
    ("expert", pa.array([1, 2, 3], pa.int16()), "expert is int16 with 0 nulls, expected lists"),
    ("expert", pa.FixedSizeListArray.from_arrays(pa.array([1] * 6, pa.int16()), 2), "expected lists"),
    ("expert", lists([1, 2, None, 0, 2, 3], pa.int16()), "expert is int16 with 1 nulls"),
    ("slot", lists([0, 1, 0, 1, 1, 2], pa.int16(), (1, 3, 2)), "the lists of slot are not as long as the lists of exp"),
    ("layer", pa.array([0, 65537, 0], pa.int64()), "layer is int64 with 0 nulls, expected int16"),
    ("layer", pa.array([0, None, 0], pa.int16()), "layer is int16 with 1 nulls"),
]


@pytest.mark.parametrize(("about", "found"), METADATA, ids=str)
def test_metadata_that_no_store_has(path: Path, about: dict[str, Any], found: str) -> None:
    rewrite(path, **about)
    with refused(Malformed, found, begins=f"{path}: "):
        load_trace(path)


@pytest.mark.parametrize(("name", "values", "found"), COLUMNS, ids=str)
def test_columns_that_no_store_has(path: Path, name: str, values: pa.Array, found: str) -> None:
    table = pq.ParquetFile(path).read()
    field = pa.field(name, values.type, nullable=values.null_count > 0)
    rewrite(path, table.set_column(table.column_names.index(name), field, values))
    with refused(Malformed, found, begins=f"{path}: "):
        load_trace(path)


@pytest.mark.parametrize("renamed", ["slot layer", "slot slow", "layer step"])
def test_columns_of_other_names(path: Path, renamed: str) -> None:
    table, (old, new) = pq.ParquetFile(path).read(), renamed.split()
    rewrite(path, table.rename_columns([new if name == old else name for name in table.column_names]))
    with refused(Malformed, f"a column {new!r} that no store has", begins=f"{path}: "):
        load_trace(path)


def test_files_that_are_no_store(path: Path) -> None:
    """Metadata with a key twice, nested deeply or of another kind; a newer version; a column less; other Parquet."""
    about = pq.ParquetFile(path).read().schema.metadata[store.METADATA_KEY]
    for metadata, found in (
        (about[:-1] + b', "top_k": 2}', "a damaged trace store (key 'top_k' occurs twice"),
        (b"[" * 100_000 + b"]" * 100_000, "a damaged trace store"),
        (b"[]", "a damaged trace store"),
    ):
        with_metadata(path, metadata)
        with refused(Malformed, found, begins=f"{path}: "):
            load_trace(path)
    with_metadata(path, about)
    rewrite(path, version=3)
    with refused(Unsupported, "version 3; this program knows up to 2", begins=f"{path}: "):
        load_trace(path)
    rewrite(path, pq.ParquetFile(path).read().drop_columns(["expert"]), version=1)
    with refused(Malformed, "a damaged trace store (no column 'expert')", begins=f"{path}: "):
        load_trace(path)
    pq.write_table(pa.table({"layer": [1]}), path)
    with refused(
        Malformed, "a Parquet file, but not a trace store; name its columns", "it has 'layer'", begins=f"{path}: "
    ):
        load_trace(path)
    path.write_bytes(b"PAR1 and then nothing of the sort PAR1")
    with refused(Malformed, "a damaged Parquet file", begins=f"{path}: "):
        load_trace(path)


def test_a_store_without_a_checksum_reads(path: Path) -> None:
    """As the first version wrote them."""
    rewrite(path)
    assert load_trace(path).equals(TRACE)


def test_a_checksum_of_other_content(path: Path) -> None:
    for about in ({"name": "u"}, {"notes": []}, {"top_k": 0}, {"n_experts": [[0, 9], [3, 8]]}):
        rewrite(path, checksum=True, **about)
        with refused(Malformed, "its checksum does not match"):
            load_trace(path)
        store.write_store(TRACE, path, force=True)


def accepted(path: Path) -> RoutingTrace | None:
    try:
        return load_trace(path, format="parquet")
    except BadInput as error:
        message = str(error)
    assert "\n" not in message
    return None


def test_every_bit_flip_is_found_or_changes_nothing(path: Path) -> None:
    """One bit in every fifth byte of the file, which one by a fixed seed."""
    whole, rng = path.read_bytes(), random.Random(1)
    refused = 0
    for at in range(0, len(whole), 5):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        found = accepted(path)
        refused += found is None
        assert found is None or found.equals(TRACE), f"byte {at}"
    assert refused > len(whole) // 15


def test_random_damage_never_ends_otherwise_than_in_one_line(path: Path) -> None:
    """Bytes changed, taken out and put in, without a checksum to find it: what is accepted replays."""
    rewrite(path)
    whole, rng = path.read_bytes(), random.Random(2)
    for _ in range(250):
        damaged = bytearray(whole)
        for _ in range(rng.choice([1, 1, 2, 4, 16])):
            at, kind = rng.randrange(len(damaged)), rng.randrange(4)
            if kind == 0:
                damaged[at] = rng.randrange(256)
            elif kind == 1:
                del damaged[at : at + rng.randrange(1, 9)]
            elif kind == 2:
                damaged[at:at] = rng.randbytes(rng.randrange(1, 9))
            else:
                damaged[at : at + 4] = damaged[-4:]
        path.write_bytes(damaged)
        if accepted(path) is not None:
            assert main(["replay", str(path), "--bank", "16", "--contract", "atomic"]) in (0, 2)


def test_a_store_that_would_fill_the_memory(path: Path) -> None:
    """Nine million equal values take a few KB."""
    calls = 3_000_000
    columns = {
        "layer": np.zeros(calls, np.int16),
        "n_tokens": np.ones(calls, np.int32),
        "expert": pa.LargeListArray.from_arrays(np.arange(calls + 1), pa.array(np.zeros(calls, np.int16))),
    }
    rewrite(path, pa.table(columns), calls=calls, refs=calls)
    assert path.stat().st_size < 100_000
    with refused(TooLarge, "9,000,000 values in"):
        load_trace(path)
