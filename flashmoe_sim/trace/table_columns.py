"""The columns of a table as arrays, checked value by value."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io import strict_json
from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, Malformed, UnknownName, shown, unknown_name
from flashmoe_sim.io.files import BOM
from flashmoe_sim.trace.calls import ID_MAX
from flashmoe_sim.trace.csv_rows import LARGEST_REAL
from flashmoe_sim.trace.lines import Skipped, json_lines
from flashmoe_sim.trace.plain_csv import PHASES
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT
from flashmoe_sim.trace.source import open_bytes
from flashmoe_sim.trace.store import refuse_bomb

if TYPE_CHECKING:
    import polars as pl

FIELDS = ("layer", "expert", "step", "call", "rank", "weight", "phase", "request", "n_tokens", "position", "time")
LISTS = ("expert", "weight")
NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
ONE_NUMBER = rf"^\s*(?:{NUMBER})?\s*$"
APART = rf"^(?:{NUMBER}(?:[\s,;|:/]+{NUMBER})*)?[\s,;|:/]*$"
JOINED = r"^\d+(?:[-_+]\d+)+$"
WRAPPED = r"\b(?:np\.|numpy\.)?u?int\d*\((-?\d+)\)"  # as numpy 2 prints its numbers in a list
DATED = r"^\s*(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(?:Z|[+-]\d\d:?\d\d)?\s*$"
ENDS_IN_ZEROS = r"^\s*(-?\d+)\.0+\s*$"  # as pandas writes whole numbers of a column that has gaps
WORDS = PHASES | dict.fromkeys(("generation", "generate", "decoding", "tg", "2"), PHASE_DECODE)
WORDS |= dict.fromkeys(("extend", "prefilling", "context", "pp", "1"), PHASE_PROMPT) | {"0": 0}
CALL_BY = ("step,layer", "run")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The meaning of a table's columns.

    columns: the table's column for each of FIELDS; for experts and weights also a prefix, `id*` for id0, id1, …. where:
    a column and the text that it must have in the rows to read. header: whether the first line of a CSV has names; else
    they are 0, 1, 2, …. call_by: one of CALL_BY; with `run`, consecutive rows of a layer are one call. layer_from_name:
    a pattern whose group is the layer's number in a file's name. first_id: the table's id of the first expert. records:
    the key of a JSON document under which its rows are, `a.b` for a key in a key.
    """

    columns: Mapping[str, str]
    where: tuple[str, str] | None = None
    header: bool = True
    call_by: str = CALL_BY[0]
    layer_from_name: str | None = None
    first_id: int = 0
    records: str | None = None

    def __post_init__(self) -> None:
        for name in self.columns:
            if name not in FIELDS:
                raise unknown_name("field of --columns", name, FIELDS)
        given = {*self.columns, *({"layer"} if self.layer_from_name else ())}
        if missing := [name for name in ("layer", "expert") if name not in given]:
            raise Incomplete(
                f"--columns names no {missing[0]}; layer and expert are required, for example layer=blk,expert=e"
            )
        if self.call_by not in CALL_BY:
            raise unknown_name("--call-by", self.call_by, CALL_BY)

    def reads(self, name: str) -> bool:
        """Whether a column of the table has one of the fields, or decides which rows are read."""
        used = [*self.columns.values(), *(self.where or ())[:1]]
        return any(name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in used)

    def left_out(self, names: Sequence[str]) -> list[str]:
        """A note if one of several experts of a token is read: `e0` in a table that also has `e1`."""
        name = self.columns.get("expert", "")
        prefix = name.rstrip("0123456789")
        others = [one for one in names if re.fullmatch(re.escape(prefix) + "[0-9]+", one) and not self.reads(one)]
        if prefix in ("", name) or not others:
            return []
        return [
            f"expert={name} leaves out {', '.join(others)}; to read all of them as experts of a token: expert={prefix}*"
        ]


def read_frame(
    path: Path, columns: Columns, progress: Callable[[int], None] | None, *, skipped: Skipped
) -> pl.DataFrame:
    """The requested columns of the requested rows. skipped: counts or refuses malformed lines of JSON."""
    import polars as pl

    with open_bytes(path) as stream:
        content = stream.read()
    if progress:
        progress(len(content))
    content = content.removeprefix(BOM)
    try:
        if columns.records is not None:
            frame = _records(path, content, columns.records)
        elif content.startswith(b"PAR1"):
            frame = _parquet(path, content)
        elif content.lstrip().startswith(b"{"):
            frame = pl.read_ndjson(io.BytesIO(_whole_lines(path, content, skipped)), infer_schema_length=None)
        elif content.lstrip().startswith(b"["):
            frame = pl.read_json(io.BytesIO(content), infer_schema_length=None)
            _strict(content)
        else:
            first = next((line for line in io.BytesIO(content) if not line.startswith(b"#")), b"")
            separator = max((b",", b";", b"\t"), key=first.count).decode()
            names = next(csv.reader([first.decode("utf-8-sig", "replace")], delimiter=separator), [])
            if columns.header and (twice := [name for name in names if columns.reads(name) and names.count(name) > 1]):
                raise Malformed(f"{path}: two columns are called {shown(twice[0], 40)}; rename or remove one")
            frame = pl.read_csv(
                io.BytesIO(content),
                has_header=columns.header,
                separator=separator,
                infer_schema=False,
                comment_prefix="#",
            )
            if not columns.header:
                frame.columns = [str(number) for number in range(frame.width)]
    except ValueError as error:
        raise Malformed(f"{path}: {error}") from None
    except (pl.exceptions.PolarsError, OSError, csv.Error) as error:
        raise Malformed(
            f"{path}: not a table ({str(error).splitlines()[0]}); expected CSV, JSON lines or Parquet"
        ) from None
    if columns.where:
        name, text = columns.where
        frame = frame.filter(_column(path, frame, name).cast(pl.String) == text)
    if not frame.height:
        raise Malformed(f"{path}: no row of it is left; check --where" if columns.where else f"{path}: has no rows")
    return frame


def _records(path: Path, content: bytes, key: str) -> pl.DataFrame:
    """The rows under a key of a JSON document."""
    import polars as pl

    try:
        found = strict_json.loads(content)
    except ValueError as error:
        raise Malformed(f"{path}: --records {key}: not one JSON document ({error})") from None
    for name in key.split("."):
        if not isinstance(found, dict) or name not in found:
            there = ", ".join(found) if isinstance(found, dict) else f"no keys but {shown(found, 40)}"
            raise UnknownName(f"{path}: --records {key}: no key {shown(name)}; there are {there}")
        found = found[name]
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise Malformed(f"{path}: --records {key}: is {shown(found, 40)}; expected a list of objects")
    return pl.DataFrame(found, infer_schema_length=None)


def _whole_lines(path: Path, content: bytes, skipped: Skipped) -> bytes:
    """JSON lines without a torn last one, and without malformed ones if these are skipped.

    Raises BadInput for one document over several lines.
    """
    try:
        return b"".join(line for _, line in json_lines(io.BytesIO(content), _strict, skipped=skipped))
    except BadInput:
        with suppress(ValueError):
            _strict(content)
            raise Incomplete(
                f"{path}: is one JSON document; name the key under which its rows are: --records KEY"
            ) from None
        raise


def _strict(text: bytes) -> bytes:
    """The text itself. Raises ValueError if it is not JSON, or an object in it has a key twice."""
    try:
        strict_json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        raise ValueError(f"{error}; expected each key once") from None
    return text


def _parquet(path: Path, content: bytes) -> pl.DataFrame:
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.BufferReader(content), pre_buffer=False)
        refuse_bomb(path, file, len(content))
        found = pl.from_arrow(file.read(use_threads=False))
    except pa.ArrowException as error:
        raise Malformed(f"{path}: a damaged Parquet file ({str(error).splitlines()[0]}); write it again") from None
    assert isinstance(found, pl.DataFrame)
    return found


def _column(path: Path, frame: pl.DataFrame, name: str) -> pl.Series:
    import polars as pl

    if name in frame.columns:
        return frame[name]
    unknown = unknown_name(f"column of {path}", name, frame.columns)
    nested = [one for one in frame.columns if isinstance(frame[one].dtype, pl.List) and frame.height == 1]
    raise UnknownName(f"{unknown}; rows under a key: --records {nested[0]}") if nested else unknown


def values_of(path: Path, frame: pl.DataFrame, columns: Columns) -> dict[str, NDArray[Any]]:
    """Each field as an array: i64 [rows]; experts [rows, width], weights likewise in f32, times f64 [rows]."""
    value: dict[str, NDArray[Any]] = {}
    frame = _by_token(path, frame, columns)
    for field, name in columns.columns.items():
        if field in LISTS:
            value[field] = _lists(path, frame, field, name, columns.first_id)
        elif field == "phase":
            value[field] = _phases(path, _column(path, frame, name))
        elif field == "request":
            value[field] = _requests(path, _column(path, frame, name))
        elif field == "time":
            value[field] = _times(path, _column(path, frame, name))
        else:
            high = ID_MAX if field in ("layer", "rank") else (1 << 31) - 2
            low = -high if field == "position" else 0
            series = _column(path, frame, name)
            value[field] = _whole(path, _layers(path, series) if field == "layer" else series, low, high)
    if columns.layer_from_name:
        found = re.search(columns.layer_from_name, path.name)
        if not found or not found.groups() or not str(found[1]).isdecimal() or int(found[1]) > ID_MAX:
            raise Conflict(f"{path}: --layer-from-name {columns.layer_from_name!r} finds no number in its name")
        value["layer"] = np.full(frame.height, int(found[1]), np.int64)
    if "weight" in value and value["weight"].shape != value["expert"].shape:
        raise Malformed(f"{path}: weights and experts are not lists of one length; leave weight= out")
    return value


def _by_token(path: Path, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    """A row for each token, of a table whose rows have a list of tokens with a list of experts for each."""
    import polars as pl

    lists = pl.List, pl.Array
    named = [columns.columns[field] for field in LISTS if columns.columns.get(field) in frame.columns]
    of_tokens = [
        name for name in named if isinstance(kind := frame[name].dtype, lists) and isinstance(kind.inner, lists)
    ]
    if not of_tokens:
        return frame
    if "position" in columns.columns:
        raise Conflict(
            f"{path}: column {of_tokens[0]!r} has the experts of several tokens in a row, which has one position; "
            "give step= instead of position="
        )
    frame = frame.with_columns(frame[name].cast(pl.List(frame[name].dtype.inner)) for name in of_tokens)  # type: ignore[attr-defined]
    try:
        return frame.filter(pl.col(of_tokens[0]).list.len() != 0).explode(of_tokens)
    except pl.exceptions.PolarsError:
        raise Malformed(f"{path}: columns {' and '.join(of_tokens)} differ in their number of tokens") from None


def _lists(path: Path, frame: pl.DataFrame, field: str, name: str, first_id: int) -> NDArray[Any]:
    """[rows, width] from a column of lists, columns with a common prefix, or one column."""
    import polars as pl

    if name.endswith("*"):
        named = [one for one in frame.columns if re.fullmatch(re.escape(name[:-1]) + "[0-9]+", one)]
        if not named:
            raise unknown_name(f"column of {path}", name, frame.columns)
        named.sort(key=lambda one: int(one[len(name) - 1 :]))
        parts = [_numbers(path, frame[one], field, first_id) for one in named]
        return np.stack(parts, axis=1)
    series = _column(path, frame, name)
    if series.dtype == pl.String and not series.str.contains(ONE_NUMBER).all():
        series = _written_lists(path, series)
    if not isinstance(series.dtype, pl.List | pl.Array):
        return _numbers(path, series, field, first_id)[:, np.newaxis]
    series = series.cast(pl.List(series.dtype.inner))
    widths = series.list.len().unique().drop_nulls().sort().to_list()
    if len(widths) != 1 or not widths[0] or series.null_count():
        listed = " and ".join(map(str, widths[:3])) or "no"
        raise Malformed(f"{path}: column {name!r} has lists of {listed} entries (mixed top-k); expected one length")
    return _numbers(path, series.explode(), field, first_id, widths[0]).reshape(-1, widths[0])


def _written_lists(path: Path, series: pl.Series) -> pl.Series:
    """Lists from texts with numbers, such as `[3, 0]`, `3 0`, `3;0`, `3|0`, `"3-0"` and `tensor([3, 0])`.

    Raises BadInput for a text with anything else.
    """
    import polars as pl

    inner = series.str.replace_all(WRAPPED, "$1").str.replace_all("['\"]", "")
    inner = inner.str.extract(r"^[^\[\]]*\[([^\[\]]*)\][^\[\]]*$").fill_null(inner)
    inner = inner.str.strip_chars(" \t()[]{}<>")
    joined = inner.str.contains(JOINED).fill_null(value=False)
    inner = inner.zip_with(~joined, inner.str.replace_all("[-_+]", " "))
    odd = ~inner.str.contains(APART).fill_null(value=False)
    if odd.any():
        expected = "a number, or several with spaces, commas, semicolons or bars between them"
        raise _wrong(path, series, odd.arg_max() or 0, expected)
    return inner.str.extract_all(NUMBER).cast(pl.List(pl.Float64)).alias(series.name)


def _numbers(path: Path, series: pl.Series, field: str, first_id: int, width: int = 1) -> NDArray[Any]:
    """Experts or weights, `width` of each row."""
    import polars as pl

    if field == "expert":
        return _whole(path, series, first_id, first_id + ID_MAX, width) - first_id
    _refuse_nested(path, series, "a number")
    values = np.array(series.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy())
    if len(values) and not (np.abs(values) <= LARGEST_REAL).all():
        raise _wrong(path, series, int((~(np.abs(values) <= LARGEST_REAL)).argmax()), "a number", width)
    return values.astype(np.float32)


def _wrong(path: Path, series: pl.Series, at: int, expected: str, width: int = 1) -> BadInput:
    found = series.slice(at, 1).to_list()[0]
    return Malformed(f"{path}: row {at // width + 1}: {series.name} is {shown(found, 40)}; expected {expected}")


def _refuse_nested(path: Path, series: pl.Series, expected: str) -> None:
    """Raise BadInput for a column of objects or lists."""
    if series.dtype.is_nested():
        raise _wrong(path, series, 0, expected)


def _whole(path: Path, series: pl.Series, low: int, high: int, width: int = 1) -> NDArray[np.int64]:
    """Whole numbers, `width` of each row."""
    import polars as pl

    _refuse_nested(path, series, f"a whole number {low}..{high}")
    numbers = series
    if series.dtype == pl.String:
        numbers = series.str.replace(ENDS_IN_ZEROS, "$1").str.strip_chars()
    numbers = numbers.cast(pl.Int64, strict=False)
    wrong = numbers.is_null() | (numbers < low) | (numbers > high)
    if series.dtype.is_float():
        wrong = wrong | (series != series.floor())
    if (row := wrong.arg_max()) is not None and wrong[row]:
        raise _wrong(path, series, row, f"a whole number {low}..{high}", width)
    return np.array(numbers.to_numpy(), np.int64)


def _layers(path: Path, series: pl.Series) -> pl.Series:
    """Numbers of layers, also from texts with one number in each, such as `model.layers.3.mlp`."""
    import polars as pl

    if series.dtype != pl.String or series.str.contains(r"^\s*-?\d+(?:\.0+)?\s*$").fill_null(value=False).all():
        return series
    numbers = series.str.extract_all(r"\d+")
    if (several := numbers.list.len().fill_null(0) != 1).any():
        expected = "a layer's number, alone or as the only number of a text such as model.layers.3.mlp"
        raise _wrong(path, series, several.arg_max() or 0, expected)
    return numbers.list.first().alias(series.name)


def _phases(path: Path, series: pl.Series) -> NDArray[np.int64]:
    import polars as pl

    _refuse_nested(path, series, f"one of {', '.join(WORDS)}")
    words = series.cast(pl.String).str.strip_chars().str.to_lowercase()
    for row, word in enumerate(words.unique(maintain_order=True)):
        if word not in WORDS:
            raise Malformed(
                f"{path}: {series.name} is {shown(word, 40)} (value {row + 1}); expected one of {', '.join(WORDS)}"
            )
    return np.array(words.replace_strict(WORDS, return_dtype=pl.Int64).to_numpy(), np.int64)


def _times(path: Path, series: pl.Series) -> NDArray[np.float64]:
    """Numbers of any unit, or dates, as text of one time zone too, f64 [rows]: only their order matters."""
    import polars as pl

    expected = "a time as a number, or as 2026-05-01T12:00:00.123"
    _refuse_nested(path, series, expected)
    if series.dtype == pl.String and series.str.contains(DATED).fill_null(value=False).all():
        parts = series.str.extract_groups(DATED).struct
        fraction = parts.field("3").fill_null("0")
        series = (parts.field("1") + " " + parts.field("2") + "." + fraction).str.to_datetime(
            "%Y-%m-%d %H:%M:%S%.f", strict=False
        )
    numbers = series.to_physical() if series.dtype.is_temporal() else series
    values = np.array(numbers.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy())
    if not np.isfinite(values).all():
        raise _wrong(path, series, int((~np.isfinite(values)).argmax()), expected)
    return values


def _requests(path: Path, series: pl.Series) -> NDArray[np.int64]:
    """The number of each request, in the order of first occurrence."""
    import polars as pl

    _refuse_nested(path, series, "a request's name or number")
    names = series.cast(pl.String).fill_null("")
    place = {name: number for number, name in enumerate(names.unique(maintain_order=True))}
    return np.array(names.replace_strict(place, return_dtype=pl.Int64).to_numpy(), np.int64)
