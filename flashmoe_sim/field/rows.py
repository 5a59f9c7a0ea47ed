"""The rows of a table of published speeds: what ran, on which machine, and how fast."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from flashmoe_sim.io.errors import Conflict, Incomplete, Malformed, Missing, OutOfRange, shown
from flashmoe_sim.io.files import unreadable


@dataclass(frozen=True, kw_only=True)
class FieldRow:
    """One published speed. A text is empty and a number None if the source does not say it.

    where: the file and line. gpu_vram_gib: the sum over cards; gpu_mem_gb_s: of one card. The settings
    `slots_per_layer_or_cache_gib` and `experts_on_cpu_layers` are texts as told: `run_of` reads them.
    """

    where: str
    id: str
    engine: str
    strategy: str
    model: str
    quant: str
    model_file_gib: float | None
    total_experts: int | None
    top_k: int | None
    moe_layers: int | None
    gpu: str
    gpu_vram_gib: float | None
    gpu_mem_gb_s: float | None
    pcie: str
    cpu: str
    ram_gib: float | None
    ram_gb_s: float | None
    ram_gb_s_basis: str
    ssd_gb_s: float | None
    flags: str
    slots_per_layer_or_cache_gib: str
    experts_on_cpu_layers: str
    context: str
    batch_ubatch: str
    source: str = ""
    engine_version_or_pr: str = ""
    date: str = ""
    notes: str = ""
    prompt_tok_s: float | None = None
    decode_tok_s: float | None = None
    hit_rate_pct: float | None = None
    bytes_per_token_read: float | None = None
    other_breakdown_ms: str = ""
    confidence: str = ""
    machine_id: str = ""
    series: str = ""
    varies: str = ""


WAYS = {  # to run a model, and how the tables call them
    "all on the GPU": ("all_gpu",),
    "some experts on the CPU": ("n_cpu_moe", "ot_regex"),
    "a cache of experts on the GPU": ("vram_lru", "vram_static_profile"),
    "a cache, misses from a drive": ("slot_bank_ssd",),
    "read from a drive, or mapped": ("ssd_stream", "page_cache_mmap"),
    "on the CPU, and others": ("cpu_only", "other"),
}
# Repositories and sites where many people publish: there a source is a thread, or a machine.
MEETING_PLACES = {
    "ggml-org/llama.cpp",
    "ikawrakow/ik_llama.cpp",
    "alexsjones/llmfit",
    "llmfit",
    "kvcache-ai/ktransformers",
    "drumih/turbo-fieldfare",
    "justvugg/colibri",
    "niko1221/strata",
    "antirez/ds4",
    "raullenchai/rapid-mlx",
    "nibor1896/crow",
    "kekzl/imp",
}
_LATER = re.compile(r"\(.*")
WHOLE = ("total_experts", "top_k", "moe_layers")
NUMBERS = (
    "model_file_gib",
    "gpu_vram_gib",
    "gpu_mem_gb_s",
    "ram_gib",
    "ram_gb_s",
    "ssd_gb_s",
    "prompt_tok_s",
    "decode_tok_s",
    "hit_rate_pct",
    "bytes_per_token_read",
)
MEASURED = ("prompt_tok_s", "decode_tok_s", "hit_rate_pct", "bytes_per_token_read", "other_breakdown_ms")
UNNEEDED = (
    *MEASURED,
    "source",
    "engine_version_or_pr",
    "date",
    "notes",
    "confidence",
    "machine_id",
    "series",
    "varies",
)
COLUMNS = tuple(field.name for field in fields(FieldRow) if field.name != "where")
HEAD = (  # of the tables in data/published
    *("id", "source", "date", "source_url", "engine", "engine_version_or_pr"),
    *COLUMNS[2 : COLUMNS.index("source")],
    *("prompt_tok_s", "decode_tok_s", "hit_rate_pct", "bytes_per_token_read", "other_breakdown_ms"),
    *("notes", "confidence", "machine_id", "series", "varies"),
)
EXPECTED = "give a CSV with the columns of data/published/field.csv, as `sim field add` writes it"
NEEDED = tuple(name for name in COLUMNS if name not in UNNEEDED)


def read_rows(path: Path) -> list[FieldRow]:
    """Every row of a CSV file with the columns of `FieldRow`; other columns are ignored.

    Raises BadInput with the file and line for a missing column that a prediction needs, a number that is none, a row
    with more or fewer cells than the head, and an id that is empty or there twice.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            _check_head(path, reader.fieldnames)
            rows: list[FieldRow] = []
            while (row := _next_row(path, reader)) is not None:
                rows.append(row)
    except UnicodeDecodeError:
        raise Malformed(f"{path}: is no text in UTF-8; save it as a CSV file") from None
    except FileNotFoundError:
        raise Missing(f"{path}: no such file; {EXPECTED}") from None
    except OSError as error:
        raise unreadable(path, error) from None
    _check_ids(rows)
    return rows


def _check_head(path: Path, columns: object) -> None:
    found = list(columns) if isinstance(columns, list) else []
    if missing := [name for name in NEEDED if name not in found]:
        raise Malformed(f"{path}: line 1: no column {', '.join(missing)}; {EXPECTED}")
    if twice := sorted({name for name in found if found.count(name) > 1}):
        raise Malformed(f"{path}: line 1: column {', '.join(twice)} is there twice")


def _next_row(path: Path, reader: csv.DictReader[str]) -> FieldRow | None:
    first = reader.line_num + 1
    try:
        cells = next(reader)
    except StopIteration:
        return None
    except csv.Error as error:
        raise Malformed(f"{path}: line {first}: {error}") from None
    where = f"{path}: line {first}"
    if None in cells or None in cells.values():
        raise Malformed(f"{where}: more or fewer cells than the head has columns")
    return row_of(where, cells)


def row_of(where: str, cells: Mapping[str, str]) -> FieldRow:
    """The row that cells of these columns are. Raises BadInput for a number that is none. where: for messages."""
    given = {name: cells[name].strip() for name in COLUMNS if name in cells}
    values: dict[str, object] = dict(given)
    for name in (*NUMBERS, *WHOLE):
        if name in given:
            values[name] = _number(where, name, given[name])
    for name in WHOLE:
        if (value := values[name]) is not None:
            values[name] = _whole(where, name, value)
    return FieldRow(where=where, **values)  # type: ignore[arg-type]


def _number(where: str, name: str, text: str) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0 or (value == 0 and name != "hit_rate_pct"):
        raise Malformed(f"{where}: {name} is {shown(text)}; expected a number above 0, or nothing")
    if name == "hit_rate_pct" and value > 100:
        raise OutOfRange(f"{where}: {name} is {shown(text)}; expected at most 100")
    return value


def _whole(where: str, name: str, value: object) -> int:
    if not isinstance(value, float) or value != int(value):
        raise Malformed(f"{where}: {name} is {value}; expected a whole number")
    return int(value)


def _check_ids(rows: list[FieldRow]) -> None:
    seen: dict[str, str] = {}
    for row in rows:
        if not row.id:
            raise Incomplete(f"{row.where}: no id")
        if row.id in seen:
            raise Conflict(f"{row.where}: id {shown(row.id)} is there twice, first in {seen[row.id]}")
        seen[row.id] = row.where


def source_of(row: FieldRow) -> str:
    """Who measured a row: a person or a repository with all its machines, or a thread where many people write."""
    source = _LATER.sub("", row.source.removeprefix("https://"))
    name, *rest = re.split(r"[ @]|(?=#)", source, maxsplit=1)
    if name.lower() not in MEETING_PLACES:
        return name
    thread = re.search(r"#\d+", rest[0]) if rest else None
    return f"{name} {thread[0]}" if thread else f"{name} {row.machine_id or row.id}"


def counts(row: FieldRow, *, decode: bool = True) -> bool:
    """Whether a row is judged: confidence A or B, no note against it, and a decode speed if that is what is judged."""
    good = row.confidence in ("A", "B") and "exclude from fits" not in row.notes.lower()
    return good and (bool(row.decode_tok_s) or not decode)
