"""The Parquet store: a trace that reads back exactly as it was written.

One row per routed call; what belongs to references (`expert`, `weight`, `slot`, `resident`) is a list in the row. Other
tools can then open the file and see calls, and the lists' values lie flat in Arrow's memory, so reading is one copy per
column and never a Python object per call. Flat columns would read faster (10 million references: 0.03 s, against 0.15 s
for the lists), but calls and references differ in number, and a file with columns of two lengths is one that nothing
else can make sense of. Everything that is not an array is JSON in the file's metadata.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.errors import BadInput
from flashmoe_sim.trace.atomic import atomic_writer
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.source import open_bytes

VERSION = 1
MAGIC = b"PAR1"
METADATA_KEY = b"flashmoe_sim.trace"
CALLS_PER_ROW_GROUP = 1 << 18
PER_CALL: dict[str, Any] = {
    "layer": np.int16,
    "n_tokens": np.int32,
    "phase": np.uint8,
    "sequence": np.int32,
    "step": np.int32,
}
PER_REFERENCE: dict[str, Any] = {"expert": np.int16, "weight": np.float32, "slot": np.int16, "resident": np.uint8}
BY_LAYER = ("n_experts", "expert_bytes", "dense_bytes")


def sniff(head: bytes) -> bool:
    """Whether a file that begins with these bytes is a Parquet file."""
    return head.startswith(MAGIC)


def write_store(trace: RoutingTrace, path: Path, *, force: bool = False) -> None:
    """Write a trace as one zstd-compressed Parquet file, all at once.

    Raises BadInput where the file exists without force or cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays, schema = [], []
    for name, dtype in PER_CALL.items():
        if (values := getattr(trace, name)) is not None:
            arrays.append(pa.array(_exact(name, values, dtype)))
            schema.append(pa.field(name, arrays[-1].type, nullable=False))
    offset = pa.array(_exact("offset", trace.offset, np.int64))
    for name, dtype in PER_REFERENCE.items():
        if (values := getattr(trace, name)) is not None:
            item = pa.field("item", pa.from_numpy_dtype(dtype), nullable=False)
            lists = pa.LargeListArray.from_arrays(offset, pa.array(_exact(name, values, dtype)), pa.large_list(item))
            arrays.append(lists)
            schema.append(pa.field(name, lists.type, nullable=False))
    metadata = {METADATA_KEY: json.dumps(_described(trace), sort_keys=True).encode()}
    table = pa.Table.from_arrays(arrays, schema=pa.schema(schema, metadata=metadata))
    with atomic_writer(path, force=force) as stream:
        pq.write_table(table, stream, compression="zstd", row_group_size=CALLS_PER_ROW_GROUP)


def read(path: Path, *, lenient: bool = False, progress: Callable[[int], None] | None = None) -> RoutingTrace:
    """Read a store; every field equals the one written, notes and dtypes included. lenient changes nothing.

    Raises BadInput for a Parquet file that this program did not write, that a newer version wrote, or that is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    del lenient
    with open_bytes(path) as stream:
        content = stream.read()
    try:
        # One thread: Arrow's own threads abort the process when it ends while they start, as it can on bad input.
        table = pq.ParquetFile(pa.BufferReader(content), pre_buffer=False).read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{path}: a damaged Parquet file ({str(error).splitlines()[0]}); write it again") from None
    described = (table.schema.metadata or {}).get(METADATA_KEY)
    if described is None:
        raise BadInput(f"{path}: a Parquet file, but not a trace store; write one with `sim trace convert`")
    if progress:
        progress(len(content))
    try:
        return _restored(table, json.loads(described), path)
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path}: a damaged trace store ({str(error).splitlines()[0]}); convert it again") from None


def _restored(table: Any, about: dict[str, Any], path: Path) -> RoutingTrace:
    """The trace in a table; KeyError, TypeError or ValueError where the two do not fit together."""
    if about["version"] > VERSION:
        raise BadInput(
            f"{path}: a trace store of version {about['version']}; this program knows up to {VERSION}: update it"
        )
    fields: dict[str, Any] = {name: about[name] for name in ("n_experts_known", "top_k", "format", "name")}
    fields |= {name: _from_pairs(about[name]) for name in BY_LAYER}
    for name, dtype in PER_CALL.items():
        if name in table.column_names:
            fields[name] = table.column(name).to_numpy().astype(dtype)
    for name, dtype in PER_REFERENCE.items():
        if name in table.column_names:
            fields[name] = _flat(table.column(name), about["refs"], dtype)
    if table.num_rows != about["calls"]:
        raise ValueError(f"{table.num_rows} calls, {about['calls']} expected")
    return RoutingTrace(**fields, offset=_offsets(table.column("expert"), about["calls"]), notes=tuple(about["notes"]))


def _exact(name: str, values: NDArray[Any], dtype: Any) -> NDArray[Any]:
    if values.dtype != dtype:
        raise TypeError(f"{name} is {values.dtype}, {np.dtype(dtype)} expected")
    return np.ascontiguousarray(values)


def _described(trace: RoutingTrace) -> dict[str, Any]:
    about: dict[str, Any] = {"version": VERSION, "calls": trace.calls, "refs": trace.refs, "notes": list(trace.notes)}
    about |= {name: getattr(trace, name) for name in ("n_experts_known", "top_k", "format", "name")}
    return about | {name: _to_pairs(getattr(trace, name)) for name in BY_LAYER}


def _to_pairs(by_layer: Mapping[int, int] | None) -> list[list[int]] | None:
    return None if by_layer is None else [[int(layer), int(value)] for layer, value in by_layer.items()]


def _from_pairs(pairs: list[list[int]] | None) -> dict[int, int] | None:
    return None if pairs is None else {int(layer): int(value) for layer, value in pairs}


def _flat(column: Any, total: int, dtype: Any) -> NDArray[Any]:
    """The values of a list column as one array of our own; ValueError where they are not `total`."""
    out = np.empty(total, dtype=dtype)
    at = 0
    for chunk in column.chunks:
        values = chunk.flatten().to_numpy(zero_copy_only=True)
        out[at : at + len(values)] = values
        at += len(values)
    if at != total:
        raise ValueError(f"{at} references, {total} expected")
    return out


def _offsets(column: Any, calls: int) -> NDArray[np.int64]:
    offset = np.zeros(calls + 1, dtype=np.int64)
    lengths = [np.diff(chunk.offsets.to_numpy()) for chunk in column.chunks]
    if lengths:
        np.cumsum(np.concatenate(lengths), out=offset[1:])
    return offset
