"""The Parquet store: a trace that reads back exactly as it was written.

One row per routed call; what belongs to references (`expert`, `weight`, `slot`, `resident`) is a list in the row. Other
tools can then open the file and see calls, and the lists' values lie flat in Arrow's memory, so reading is one copy per
column and never a Python object per call. Flat columns would read faster (10 million references: 0.03 s, against 0.15 s
for the lists), but calls and references differ in number, and a file with columns of two lengths is one that nothing
else can make sense of. Everything that is not an array is JSON in the file's metadata.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io import strict_json
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.notes import CODES, code_of, with_code
from flashmoe_sim.io.whole import atomic_writer
from flashmoe_sim.trace.check import BY_LAYER, PER_CALL, PER_REFERENCE, REQUIRED
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.source import most_bytes, open_bytes

VERSION = 1
MAGIC = b"PAR1"
METADATA_KEY = b"flashmoe_sim.trace"
CHECKSUM = "checksum"
NOTE_CODES = "note_codes"
CALLS_PER_ROW_GROUP = 1 << 18
VALUE_BYTES = 8  # at most, of a value in memory
PLAIN = ("n_experts_known", "top_k", "format", "name")


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
    for name, bounds in PER_CALL.items():
        if (values := getattr(trace, name)) is not None:
            arrays.append(pa.array(_exact(name, values, bounds.dtype)))
            schema.append(pa.field(name, arrays[-1].type, nullable=False))
    offset = pa.array(_exact("offset", trace.offset, np.int64))
    for name, bounds in PER_REFERENCE.items():
        if (values := getattr(trace, name)) is not None:
            item = pa.field("item", pa.from_numpy_dtype(bounds.dtype), nullable=False)
            flat = pa.array(_exact(name, values, bounds.dtype))
            arrays.append(pa.LargeListArray.from_arrays(offset, flat, pa.large_list(item)))
            schema.append(pa.field(name, arrays[-1].type, nullable=False))
    about = _described(trace)
    about[CHECKSUM] = _checksum(trace, about)
    metadata = {METADATA_KEY: json.dumps(about, sort_keys=True).encode()}
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
        # One thread: Arrow's own threads abort the process when it ends while they start, as it can on bad input. The
        # file's own metadata is not looked at: Arrow aborts if that is damaged.
        file = pq.ParquetFile(pa.BufferReader(content), pre_buffer=False)
        _refuse_bomb(path, file.metadata, len(content))
        table = file.read(use_threads=False)
        described = (table.schema.metadata or {}).get(METADATA_KEY)
        names = table.column_names
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: a damaged Parquet file ({str(error).splitlines()[0]}); write it again") from None
    if described is None:
        raise BadInput(f"{path}: a Parquet file, but not a trace store; name its columns: sim trace import --columns")
    if progress:
        progress(len(content))
    try:
        return _restored(table, names, strict_json.loads(described), path)
    except (KeyError, TypeError, ValueError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error).splitlines()[0]
        raise BadInput(f"{path}: a damaged trace store ({what}); convert it again") from None


def _refuse_bomb(path: Path, metadata: Any, size: int) -> None:
    """Raise BadInput for more values than a trace in so many bytes has: a value that repeats takes nearly none."""
    columns = [metadata.row_group(group).column(at) for group in range(metadata.num_row_groups)
               for at in range(metadata.num_columns)]  # fmt: skip
    values = sum(column.num_values for column in columns)
    if VALUE_BYTES * values > most_bytes(size):
        raise BadInput(
            f"{path}: {values:,} values in {size:,} bytes: not a trace; if it is one, give it in another format"
        )


def _restored(table: Any, names: list[str], about: Any, path: Path) -> RoutingTrace:
    """The trace in a table; KeyError, TypeError or ValueError if the two do not fit together."""
    if not isinstance(about["version"], int):
        raise ValueError(f"version is {about['version']!r}, a number expected")
    if about["version"] > VERSION:
        raise BadInput(
            f"{path}: a trace store of version {about['version']}; this program knows up to {VERSION}: update it"
        )
    if odd := [name for name in names if name not in (*PER_CALL, *PER_REFERENCE) or names.count(name) > 1]:
        raise ValueError(f"a column {odd[0]!r} that no store has")
    if missing := [name for name in REQUIRED if name not in names]:
        raise ValueError(f"no column {missing[0]!r}")
    fields: dict[str, Any] = {name: about[name] for name in PLAIN}
    fields |= {name: _from_pairs(name, about[name]) for name in BY_LAYER}
    for name in PER_CALL:
        if name in names:
            fields[name] = _values(name, table.column(name), PER_CALL[name].dtype)
    offset = _offsets("expert", table.column("expert"))
    for name in PER_REFERENCE:
        if name in names:
            if not np.array_equal(_offsets(name, table.column(name)), offset):
                raise ValueError(f"the lists of {name} are not as long as the lists of expert")
            fields[name] = _flat(name, table.column(name), PER_REFERENCE[name].dtype)
    found = {"calls": table.num_rows, "refs": len(fields["expert"])}
    for what, number in found.items():
        if about[what] != number:
            raise ValueError(f"{number} {what}, {about[what]} expected")
    if not isinstance(about["notes"], list):
        raise ValueError(f"notes are {about['notes']!r}, a list expected")
    codes = about.get(NOTE_CODES, [None] * len(about["notes"]))
    if not isinstance(codes, list) or not {None, *CODES}.issuperset(codes):
        raise ValueError(f"{NOTE_CODES} are {codes!r}; a list of {', '.join(CODES)} or null expected")
    notes = tuple(with_code(code, note) for code, note in zip(codes, about["notes"], strict=True))
    trace = RoutingTrace(**fields, offset=offset, notes=notes)
    if CHECKSUM in about and about.pop(CHECKSUM) != _checksum(trace, about):
        raise ValueError("its checksum is of another content: bytes of it changed after it was written")
    return trace


def _checksum(trace: RoutingTrace, about: Mapping[str, Any]) -> str:
    """A checksum of everything that is stored: the metadata, and each column with its name."""
    check = zlib.crc32(json.dumps(about, sort_keys=True).encode())
    for name in ("offset", *PER_CALL, *PER_REFERENCE):
        if (values := getattr(trace, name)) is not None:
            check = zlib.crc32(np.ascontiguousarray(values).data, zlib.crc32(name.encode(), check))
    return f"{check:08x}"


def _described(trace: RoutingTrace) -> dict[str, Any]:
    about: dict[str, Any] = {"version": VERSION, "calls": trace.calls, "refs": trace.refs, "notes": list(trace.notes)}
    about |= {name: getattr(trace, name) for name in PLAIN} | {"top_k": int(trace.top_k)}
    if any(codes := [code_of(note) for note in trace.notes]):
        about[NOTE_CODES] = codes
    return about | {name: _to_pairs(getattr(trace, name)) for name in BY_LAYER}


def _to_pairs(by_layer: Mapping[int, int] | None) -> list[list[int]] | None:
    return None if by_layer is None else [[int(layer), int(value)] for layer, value in by_layer.items()]


def _from_pairs(name: str, pairs: list[tuple[int, int]] | None) -> dict[int, int] | None:
    if pairs is None:
        return None
    by_layer = dict(pairs)
    if len(by_layer) < len(pairs):
        raise ValueError(f"{name} names a layer twice")
    return by_layer


def _exact(name: str, values: NDArray[Any], dtype: Any) -> NDArray[Any]:
    if values.dtype != dtype:
        raise TypeError(f"{name} is {values.dtype}, {np.dtype(dtype)} expected")
    return np.ascontiguousarray(values)


def _values(name: str, column: Any, dtype: Any) -> NDArray[Any]:
    """A column of numbers as an array of our own; ValueError if it has another type, or nulls."""
    _check_type(name, column, column.type, dtype)
    return np.array(column.to_numpy())


def _flat(name: str, column: Any, dtype: Any) -> NDArray[Any]:
    """The values of a list column as one array of our own; ValueError if they have another type, or nulls."""
    found = [chunk.flatten() for chunk in column.chunks]
    for values in found:
        _check_type(name, values, values.type, dtype)
    return np.concatenate([np.empty(0, dtype), *(values.to_numpy() for values in found)])


def _check_type(name: str, values: Any, found: Any, dtype: Any) -> None:
    import pyarrow as pa

    if found != pa.from_numpy_dtype(dtype) or values.null_count:
        raise ValueError(f"{name} is {found} with {values.null_count} nulls, {np.dtype(dtype)} expected")


def _offsets(name: str, column: Any) -> NDArray[np.int64]:
    """Where each list of a column begins in its values, and how many there are; i64 [lists + 1]."""
    import pyarrow as pa

    if not (pa.types.is_large_list(column.type) or pa.types.is_list(column.type)) or column.null_count:
        raise ValueError(f"{name} is {column.type} with {column.null_count} nulls, lists expected")
    lengths = [np.diff(chunk.offsets.to_numpy()) for chunk in column.chunks]
    return np.concatenate([[0], np.cumsum(np.concatenate([np.empty(0, np.int64), *lengths]))]).astype(np.int64)
