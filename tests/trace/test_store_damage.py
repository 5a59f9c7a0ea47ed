"""Stores that something else than this program wrote, or that changed afterwards: refused in one line, or equal."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.io.errors import BadInput, Malformed, TooLarge
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


def about_of(table: pa.Table) -> dict[str, Any]:
    return dict(json.loads(table.schema.metadata[store.METADATA_KEY]))


def rewrite(path: Path, table: pa.Table, metadata: bytes) -> None:
    pq.write_table(table.replace_schema_metadata({store.METADATA_KEY: metadata}), path)


def write_about(path: Path, about: dict[str, Any], *, checksum: bool = False) -> None:
    """Write other metadata, by default without the checksum, as stores of the first version are."""
    table = pq.ParquetFile(path).read()
    known = {store.CHECKSUM: about_of(table)[store.CHECKSUM]} if checksum else {}
    rewrite(path, table, json.dumps(about_of(table) | about | known).encode())
    if not checksum:
        without_checksum(path)


def without_checksum(path: Path) -> None:
    table = pq.ParquetFile(path).read()
    about = about_of(table)
    about.pop(store.CHECKSUM, None)
    rewrite(path, table, json.dumps(about).encode())


def column(path: Path, name: str, values: pa.Array) -> None:
    """Put another column in the place of one, or at the end."""
    without_checksum(path)
    table = pq.ParquetFile(path).read()
    at = table.column_names.index(name)
    pq.write_table(table.set_column(at, pa.field(name, values.type, nullable=values.null_count > 0), values), path)


def lists(values: list[int], item: pa.DataType, widths: tuple[int, ...] = (2, 2, 2)) -> pa.Array:
    return pa.LargeListArray.from_arrays(pa.array(np.cumsum([0, *widths])), pa.array(values, item))


def experts(*values: int) -> pa.Array:
    return lists(list(values), pa.int16())


def numbers(*values: Any, of: pa.DataType) -> pa.Array:
    return pa.array(values, of)


METADATA: dict[str, tuple[dict[str, Any], str]] = {
    "fewer experts": ({"n_experts": [[0, 3], [3, 8]]}, "layer 0 asks for expert 3; it has 3, numbered from 0"),
    "no experts": ({"n_experts": [[0, 0], [3, 8]]}, "n_experts of layer 0 is 0; expected a whole number 1 to 32768"),
    "experts negative": ({"n_experts": [[0, -8], [3, 8]]}, "n_experts of layer 0 is -8"),
    "experts 1e12": ({"n_experts": [[0, 10**12], [3, 8]]}, "n_experts of layer 0 is 1000000000000"),
    "experts 1e30": ({"n_experts": [[0, 10**30], [3, 8]]}, "n_experts of layer 0 is 1e+30"),
    "experts 256.7": ({"n_experts": [[0, 256.7], [3, 8]]}, "n_experts of layer 0 is 256.7"),
    "experts 256.0": ({"n_experts": [[0, 256.0], [3, 8]]}, "n_experts of layer 0 is 256.0"),
    "experts text": ({"n_experts": [[0, "256"], [3, 8]]}, "n_experts of layer 0 is '256'"),
    "experts true": ({"n_experts": [[0, True], [3, 8]]}, "n_experts of layer 0 is True"),
    "experts null": ({"n_experts": None}, "n_experts is nothing"),
    "experts of a layer null": ({"n_experts": [[0, None], [3, 8]]}, "n_experts of layer 0 is nothing"),
    "experts of a layer missing": ({"n_experts": [[0, 8]]}, "n_experts lacks layer 3, which is routed"),
    "a layer twice": ({"n_experts": [[0, 8], [3, 8], [3, 9]]}, "n_experts names a layer twice"),
    "experts a number": ({"n_experts": 8}, "damaged trace store"),
    "experts unpaired": ({"n_experts": [[0, 8, 1]]}, "damaged trace store"),
    "expert bytes 1e25": ({"expert_bytes": [[0, 10**25], [3, 1]]}, "expert_bytes of layer 0 is 1e+25"),
    "expert bytes 2^62": ({"expert_bytes": [[0, 1 << 62], [3, 1]]}, "expert_bytes of layer 0 is 4611686018427387904"),
    "expert bytes 0": ({"expert_bytes": [[0, 0], [3, 1]]}, "expert_bytes of layer 0 is 0"),
    "expert bytes of a layer missing": ({"expert_bytes": [[0, 1]]}, "expert_bytes lacks layer 3"),
    "dense bytes of a layer missing": ({"dense_bytes": []}, "dense_bytes lacks layer 0"),
    "refs 1e11": ({"refs": 10**11}, "6 refs, expected 100000000000"),
    "refs 1e17": ({"refs": 10**17}, "6 refs, expected 100000000000000000"),
    "calls": ({"calls": 4}, "3 calls, expected 4"),
    "top_k of another model": ({"top_k": 1}, "top_k is 1, but call 0 has 2 references of 1 tokens"),
    "top_k text": ({"top_k": "eight"}, "top_k is 'eight'"),
    "top_k list": ({"top_k": [8]}, "top_k is [8]"),
    "top_k negative": ({"top_k": -1}, "top_k is -1"),
    "known": ({"n_experts_known": 1}, "n_experts_known is 1; expected true or false"),
    "name number": ({"name": 5}, "name is 5; expected a text"),
    "name null": ({"name": None}, "name is nothing"),
    "name list": ({"name": ["t"]}, "name is ['t']"),
    "name surrogate": ({"name": "\ud800"}, "damaged trace store"),
    "name 2 MB": ({"name": "n" * 2_000_000}, "name has 2,000,000 characters; expected at most 65,536"),
    "notes numbers": ({"notes": [1]}, "a note is 1; expected a text"),
    "notes text": ({"notes": "abc"}, "notes are 'abc', expected a list"),
    "notes null": ({"notes": None}, "notes are None, expected a list"),
    "notes 4 MB": ({"notes": ["n" * 4_000_000]}, "a note has 4,000,000 characters"),
    "note codes text": (
        {"note_codes": "gap"},
        "note_codes are 'gap'; expected a list of skipped-lines, torn-last-line, ",
    ),
    "note codes unknown": ({"note_codes": ["gap"]}, "note_codes are ['gap']"),
    "note codes too few": ({"note_codes": []}, "damaged trace store"),
    "format null": ({"format": None}, "format is nothing; expected a text"),
    "version text": ({"version": "1"}, "version is '1', expected a number"),
}
COLUMNS: dict[str, tuple[str, Callable[[], pa.Array], str]] = {
    "expert 30000": ("expert", lambda: experts(1, 2, 7, 30000, 2, 3), "layer 3 asks for expert 30000; it has 8"),
    "expert -5": ("expert", lambda: experts(1, 2, 7, -5, 2, 3), "expert 3 is -5; expected 0 to 32767"),
    "expert -32768": ("expert", lambda: experts(-32768, 2, 7, 0, 2, 3), "expert 0 is -32768"),
    "expert i64": (
        "expert",
        lambda: lists([1, 2, 7, 0, 2, 3], pa.int64()),
        "expert is int64 with 0 nulls, expected int16",
    ),
    "expert flat": ("expert", lambda: numbers(1, 2, 3, of=pa.int16()), "expert is int16 with 0 nulls, expected lists"),
    "expert fixed": (
        "expert",
        lambda: pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 7, 0, 2, 3], pa.int16()), 2),
        "expected lists",
    ),
    "expert null": ("expert", lambda: lists([1, 2, None, 0, 2, 3], pa.int16()), "expert is int16 with 1 nulls"),
    "slot -2": ("slot", lambda: experts(0, 1, 0, 1, -2, 2), "slot 4 is -2; expected -1 to 32767"),
    "slot elsewhere": (
        "slot",
        lambda: lists([0, 1, 0, 1, 1, 2], pa.int16(), (1, 3, 2)),
        "the lists of slot are not as long as the lists of expert",
    ),
    "weight nan": (
        "weight",
        lambda: lists([0, 0, float("nan"), 0, 0, 0], pa.float32()),
        "weight 2 is nan; expected a finite number",
    ),
    "layer -1": ("layer", lambda: numbers(0, -1, 0, of=pa.int16()), "layer 1 is -1; expected 0 to 32767"),
    "layer i64": ("layer", lambda: numbers(0, 65537, 0, of=pa.int64()), "layer is int64 with 0 nulls, expected int16"),
    "layer f64": ("layer", lambda: numbers(0, 3.5, 0, of=pa.float64()), "layer is double"),
    "layer text": ("layer", lambda: numbers("0", "1", "0", of=pa.string()), "layer is string"),
    "layer null": ("layer", lambda: numbers(0, None, 0, of=pa.int16()), "layer is int16 with 1 nulls"),
    "tokens": ("n_tokens", lambda: numbers(1, -5, 1, of=pa.int32()), "n_tokens 1 is -5; expected 0 to 2147483647"),
    "step": ("step", lambda: numbers(0, -1, 1, of=pa.int32()), "step 1 is -1"),
}


@pytest.mark.parametrize("name", METADATA)
def test_metadata_that_no_store_has(path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    about, found = METADATA[name]
    write_about(path, about)
    with refused(Malformed, found, begins=f"{path}: "):
        load_trace(path)
    for verb in (["trace", "inspect"], ["trace", "lint"], ["replay", "--bank", "4"], ["sweep", "--bank", "2,4"]):
        assert main([*verb, str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 4


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_that_no_store_has(path: Path, name: str) -> None:
    of, values, found = COLUMNS[name]
    column(path, of, values())
    with refused(Malformed, found, begins=f"{path}: "):
        load_trace(path)


def test_columns_of_other_names(path: Path) -> None:
    without_checksum(path)
    table = pq.ParquetFile(path).read()
    for names, found in (
        (["layer" if name == "slot" else name for name in table.column_names], "a column 'layer' that no store has"),
        (["slow" if name == "slot" else name for name in table.column_names], "a column 'slow' that no store has"),
        (["step" if name == "layer" else name for name in table.column_names], "a column 'step' that no store has"),
    ):
        pq.write_table(table.rename_columns(names).replace_schema_metadata(table.schema.metadata), path)
        with pytest.raises(Malformed, match=found):
            load_trace(path)


def test_a_key_twice_in_the_metadata(path: Path) -> None:
    table = pq.ParquetFile(path).read()
    about = json.dumps(about_of(table))
    rewrite(path, table, f'{about[:-1]}, "top_k": 2}}'.encode())
    with pytest.raises(Malformed, match=r"a damaged trace store \(key 'top_k' occurs twice"):
        load_trace(path)


def test_metadata_nested_deeply(path: Path) -> None:
    rewrite(path, pq.ParquetFile(path).read(), b"[" * 100_000 + b"]" * 100_000)
    with pytest.raises(Malformed, match="a damaged trace store"):
        load_trace(path)


def test_a_store_without_a_checksum_reads(path: Path) -> None:
    """As the first version wrote them."""
    without_checksum(path)
    assert store.CHECKSUM not in about_of(pq.ParquetFile(path).read())
    assert load_trace(path).equals(TRACE)


def test_a_checksum_of_other_content(path: Path) -> None:
    for about in ({"name": "u"}, {"notes": []}, {"top_k": 0}, {"n_experts": [[0, 9], [3, 8]]}):
        write_about(path, about, checksum=True)
        with pytest.raises(Malformed, match="its checksum does not match"):
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
    without_checksum(path)
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
    about = about_of(pq.ParquetFile(path).read()) | {"calls": calls, "refs": calls}
    rewrite(path, pa.table(columns), json.dumps(about).encode())
    assert path.stat().st_size < 100_000
    with pytest.raises(TooLarge, match="9,000,000 values in"):
        load_trace(path)
