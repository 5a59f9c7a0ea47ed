"""The Parquet store: a trace that reads back exactly as it was written.

One row per routed call; values per reference (`expert`, `weight`, `slot`, `resident`) are a list in the row. Other
tools can then open the file and see calls, and the lists' values are flat in Arrow's memory, so reading is one copy per
column and never a Python object per call. Flat columns would read faster (10 million references: 0.03 s, against 0.15 s
for the lists), but calls and references differ in number, and no other tool can read a file with columns of two
lengths. Everything that is not an array is JSON in the file's metadata.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flashmoe_sim.io import strict_json
from flashmoe_sim.io.errors import BadInput, Malformed, TooLarge, Unsupported, shown
from flashmoe_sim.io.notes import CODES, code_of, with_code
from flashmoe_sim.io.provenance import program
from flashmoe_sim.io.whole import atomic_writer
from flashmoe_sim.trace._store_columns import CHECKSUM, Checksum, arrays_of, arrays_of_calls, columns_of
from flashmoe_sim.trace.calls import ID_MAX
from flashmoe_sim.trace.check import BY_LAYER, PER_REFERENCE
from flashmoe_sim.trace.long_traces import Chunk, LongTrace, cut_up, joined, regrouped, whole
from flashmoe_sim.trace.requests import DEFAULTS, ReadOptions
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.source import most_bytes, open_bytes

VERSION = 2
VERSION_WITHOUT_TEXT = 1  # of a trace without `n_text`, which older programs can read
METADATA_KEY = b"flashmoe_sim.trace"
NOTE_CODES = "note_codes"
CALLS_PER_ROW_GROUP, REFS_PER_ROW_GROUP = 1 << 18, 1 << 22
MOST_LISTED = 8  # columns, in a message
VALUE_BYTES = 8  # the most that a value takes in memory
PLAIN = ("n_experts_known", "top_k", "format", "name")


def write_store(
    trace: RoutingTrace, path: Path, *, force: bool = False, progress: Callable[[int, int], None] | None = None
) -> None:
    """Write a trace as one zstd-compressed Parquet file, all at once.

    progress: called with the calls written and all.
    Raises BadInput if the file exists without force or cannot be written.
    """

    def written(calls: int) -> None:
        if progress:
            progress(calls, trace.calls)

    write_chunks(cut_up(trace, []), path, force=force, progress=written)


class StoreSize(NamedTuple):
    """What was written to a store."""

    calls: int
    refs: int
    tokens: int


def write_chunks(
    trace: LongTrace, path: Path, *, force: bool = False, progress: Callable[[int], None] | None = None
) -> StoreSize:
    """Write a long trace while it is read; the file is the same as from `write_store`.

    progress: called with the calls written.
    Raises what `write_store` raises.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    head, checksum = trace.head, Checksum(trace.head)
    columns, tokens = columns_of(head), np.zeros(max(head.layers, default=0) + 1, np.int64)
    schema = pa.schema([pa.field(name, column.type, nullable=False) for name, column in columns.items()])
    with (
        atomic_writer(path, force=force) as stream,
        pq.ParquetWriter(stream, schema, compression="zstd", **_encodings(schema.names)) as writer,
    ):
        for chunk in regrouped(trace.read(), calls=CALLS_PER_ROW_GROUP, refs=REFS_PER_ROW_GROUP):
            checksum.add(chunk)
            tokens += np.bincount(chunk.layer, chunk.text, len(tokens)).astype(np.int64)
            writer.write_table(pa.Table.from_arrays([*columns_of(chunk).values()], schema=schema))
            if progress:
                progress(checksum.calls)
        about = _described(head, checksum.calls, checksum.refs)
        about[CHECKSUM] = checksum.of(about)
        writer.add_key_value_metadata({METADATA_KEY: json.dumps(about, sort_keys=True).encode()})
    return StoreSize(checksum.calls, checksum.refs, int(tokens.max()))


def _encodings(columns: Sequence[str]) -> dict[str, Any]:
    """Weights by all their first bytes, then their second ones and so on, which compresses to two thirds."""
    if "weight" not in columns:
        return {}
    leaf = {name: f"{name}.list.element" if name in PER_REFERENCE else name for name in columns}
    others = [leaf[name] for name in columns if name != "weight"]
    return {"use_dictionary": others, "column_encoding": {leaf["weight"]: "BYTE_STREAM_SPLIT"}}


def read(path: Path, options: ReadOptions = DEFAULTS) -> RoutingTrace:
    """Read a store; every field equals the one written, notes and dtypes included. lenient changes nothing.

    Raises BadInput for a Parquet file that this program did not write, that a newer version wrote, or that is damaged.
    """
    long = read_chunks(path, options)
    return whole(joined(long.head, *long.read()))


def read_chunks(path: Path, options: ReadOptions = DEFAULTS) -> LongTrace:
    """A store as a long trace; its checksum is verified when all of it was read. lenient changes nothing.

    Raises what `read` raises; for a damaged column only when it is read.
    """
    import pyarrow as pa

    with _parquet(path) as (file, _):
        # An old store may have layers in n_experts without calls.
        seen = np.zeros(ID_MAX + 1, np.bool_)
        try:
            # The file's own metadata is not read: Arrow aborts if that is damaged.
            empty = file.read_row_groups([], use_threads=False)
            about = _known((empty.schema.metadata or {}).get(METADATA_KEY), path, empty.schema.names)
            columns = [column.combine_chunks() for column in empty.columns]
            arrays = arrays_of(pa.RecordBatch.from_arrays(columns, schema=empty.schema))
            for batch in _batches(file, CALLS_PER_ROW_GROUP, columns=["layer"]):
                seen[arrays_of_calls(batch)["layer"]] = True
            fields = {name: about[name] for name in PLAIN} | {name: _from_pairs(name, about[name]) for name in BY_LAYER}
            notes = _notes(about)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise _damaged_store(path, error) from None
    head = Chunk(**fields, **arrays, notes=notes, all_layers=tuple(np.flatnonzero(seen).tolist()))
    per_batch = max(REFS_PER_ROW_GROUP // max(about["refs"] // max(about["calls"], 1), 1), 1)
    return LongTrace(head, partial(_read_on, path, head, about, min(per_batch, CALLS_PER_ROW_GROUP), options))


def _read_on(path: Path, head: Chunk, about: dict[str, Any], calls: int, options: ReadOptions) -> Iterator[Chunk]:
    checksum = Checksum(head)
    with _parquet(path) as (file, size):
        try:
            for batch in _batches(file, calls):
                chunk = replace(head, **arrays_of(batch))
                checksum.add(chunk)
                yield chunk
                if options.progress:
                    options.progress(size * chunk.calls // max(about["calls"], 1))
            checksum.compare(about)
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged_store(path, error) from None


@contextmanager
def _parquet(path: Path) -> Iterator[tuple[Any, int]]:
    """The Parquet file, and its size in bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_bytes(path) as stream:
        source = stream if stream.seekable() else io.BytesIO(stream.read())
        size = source.seek(0, io.SEEK_END)
        try:
            file = pq.ParquetFile(source, pre_buffer=False)
            refuse_bomb(path, file, size)
            yield file, size
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            what = str(error).splitlines()[0]
            raise Malformed(f"{path}: a damaged Parquet file ({what}); write it again") from None


def refuse_bomb(path: Path, file: Any, size: int) -> None:
    """Raise BadInput for more values than a trace of that many bytes can have: repeated values take nearly none.

    Raises OSError if what the file says of its columns is damaged.
    """
    groups = range(file.num_row_groups)
    for group in groups:  # no rows, whose reader raises an error where Arrow below would end the process
        list(file.reader.iter_batches(0, row_groups=[group], use_threads=False))
    metadata = file.metadata
    columns = [metadata.row_group(group).column(at) for group in groups for at in range(metadata.num_columns)]
    values = sum(column.num_values for column in columns)
    if VALUE_BYTES * values > most_bytes(size):
        raise TooLarge(
            f"{path}: {values:,} values in {size:,} bytes: not a trace; if it is one, give it in another format"
        )


def _batches(file: Any, calls: int, columns: list[str] | None = None) -> Iterator[Any]:
    """Record batches of at most `calls` calls, each within one row group.

    By one thread: Arrow's own threads abort the process if it ends while they start, which bad input can cause.
    """
    for group in range(file.num_row_groups):
        yield from file.iter_batches(calls, row_groups=[group], columns=columns, use_threads=False)


def _damaged_store(path: Path, error: Exception) -> BadInput:
    what = f"no {error}" if isinstance(error, KeyError) else str(error).splitlines()[0]
    return Malformed(f"{path}: a damaged trace store ({what}); convert it again")


def _known(described: bytes | None, path: Path, columns: Sequence[str]) -> dict[str, Any]:
    """The metadata's values; raises KeyError, TypeError or ValueError if it is damaged."""
    if described is None:
        raise Malformed(
            f"{path}: a Parquet file, but not a trace store; name its columns: sim trace import --columns "
            f"layer=A,expert=B; it has {', '.join(shown(name, 40) for name in columns[:MOST_LISTED])}"
        )
    about = strict_json.loads(described)
    if not isinstance(about["version"], int):
        raise ValueError(f"version is {about['version']!r}, expected a number")
    if about["version"] > VERSION:
        raise Unsupported(
            f"{path}: a trace store of version {about['version']}; this program knows up to {VERSION}: update it"
        )
    for name in ("calls", "refs"):
        if not isinstance(about[name], int):
            raise ValueError(f"{name} is {about[name]!r}, expected a number")
    return about  # type: ignore[no-any-return]


def _notes(about: dict[str, Any]) -> tuple[str, ...]:
    if not isinstance(about["notes"], list):
        raise ValueError(f"notes are {about['notes']!r}, expected a list")
    codes = about.get(NOTE_CODES, [None] * len(about["notes"]))
    if not isinstance(codes, list) or not {None, *CODES}.issuperset(codes):
        raise ValueError(f"{NOTE_CODES} are {codes!r}; expected a list of {', '.join(CODES)} or null")
    return tuple(with_code(code, note) for code, note in zip(codes, about["notes"], strict=True))


def _described(trace: RoutingTrace, calls: int, refs: int) -> dict[str, Any]:
    about: dict[str, Any] = {
        "version": VERSION_WITHOUT_TEXT if trace.n_text is None else VERSION,
        "program": program(),
        "calls": calls,
        "refs": refs,
        "notes": list(trace.notes),
    }
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
