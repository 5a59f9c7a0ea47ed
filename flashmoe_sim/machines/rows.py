"""Rows of a published table as anchors of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import Conflict, Incomplete, Malformed, TooLarge, UnknownName
from flashmoe_sim.io.files import as_utf8, regular_file_bytes, unreadable
from flashmoe_sim.io.sizes import decimal
from flashmoe_sim.io.tables import parse_table, share_of
from flashmoe_sim.machines.anchors import Anchor

MAX_BYTES = 2**20
SPEEDS = ("decode_tok_s", "tok_s")
Row = dict[str, str]


def read_rows(path: str | Path, selectors: Sequence[str], model: ModelGeometry, *, top_k: int | None) -> list[Anchor]:
    """The rows of a CSV file that `COLUMN=VALUE` select, one each.

    The misses per token are `misses_per_call` times the layers, else follow from `hit_pct` and top-k experts per layer.
    top_k: of the runs; by default the column `topk`, else the model's.
    Raises BadInput for a table without a speed, misses or a condition, a selector of no or several rows, values that
    are not numbers, and rows measured under different conditions.
    """
    file = Path(path)
    columns, rows = read_table(file)
    speed = next((column for column in SPEEDS if column in columns), None)
    if speed is None:
        raise Malformed(f"{file}: no column {' or '.join(SPEEDS)}; found: {', '.join(columns)}; give another table")
    if "misses_per_call" not in columns and "hit_pct" not in columns:
        raise Malformed(
            f"{file}: no column misses_per_call or hit_pct; found: {', '.join(columns)}; give another table"
        )
    if "condition" not in columns:
        raise Malformed(f"{file}: no column condition, which names the machine; found: {', '.join(columns)}; add it")
    chosen: list[tuple[int, Row]] = []
    for selector in selectors:
        number, row = _select(file, columns, rows, selector)
        if any(number == other for other, _ in chosen):
            raise Conflict(f"{file}: --row {selector}: line {number} is chosen twice; choose another row")
        chosen.append((number, row))
    for number, row in chosen[1:]:
        if row["condition"] != chosen[0][1]["condition"]:
            raise Conflict(
                f"{file}: line {number}: condition is {row['condition']!r}, but {chosen[0][1]['condition']!r} in line "
                f"{chosen[0][0]}: the rows are of two machines or models; choose rows of one"
            )
    return [
        _anchor(f"{file}: line {number}", selector, row, speed, model, top_k)
        for selector, (number, row) in zip(selectors, chosen, strict=True)
    ]


def read_table(file: Path) -> tuple[list[str], list[tuple[int, Row]]]:
    """The columns of a published table, and its rows with their lines; see `parse_table`.

    Raises BadInput if it cannot be read, and whenever `parse_table` does.
    """
    kind = "a table as CSV"
    if regular_file_bytes(file, kind=kind) > MAX_BYTES:
        raise TooLarge(f"{file}: more than {MAX_BYTES // 2**20} MiB; expected {kind}")
    try:
        text = as_utf8(file.read_bytes()).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Malformed(f"{file}: is not UTF-8 text (at byte {error.start}); expected {kind}") from None
    except OSError as error:
        raise unreadable(file, error) from None
    return parse_table(text, where=str(file))


def _select(file: Path, columns: list[str], rows: list[tuple[int, Row]], selector: str) -> tuple[int, Row]:
    column, equals, value = selector.partition("=")
    if not equals or column not in columns:
        raise Malformed(f"{file}: --row {selector}: expected COLUMN=VALUE with a column of {', '.join(columns)}")
    found = [(number, row) for number, row in rows if _same(row[column], value)]
    if not found:
        there = ", ".join(dict.fromkeys(row[column] for _, row in rows))
        raise UnknownName(f"{file}: --row {selector}: no such row; {column} is one of {there}")
    if len(found) > 1:
        lines = ", ".join(str(number) for number, _ in found)
        raise Incomplete(
            f"{file}: --row {selector}: {len(found)} rows (lines {lines}); choose a column that distinguishes them"
        )
    return found[0]


def _same(cell: str, value: str) -> bool:
    number = decimal(cell)
    return cell == value.strip() or (number is not None and number == decimal(value.strip()))


def _anchor(place: str, selector: str, row: Row, speed: str, model: ModelGeometry, top_k: int | None) -> Anchor:
    used = top_k or (int(_number(place, row, "topk", least=1)) if "topk" in row else model.top_k)
    if used > model.top_k:
        raise Conflict(
            f"{place}: {used} experts a token, but {model.name} routes at most {model.top_k}; give its model"
        )
    layers = list(model.layers.values())
    if "misses_per_call" in row:
        per_call = _number(place, row, "misses_per_call", most=used)
    else:
        rate = share_of("hit_pct", row["hit_pct"])
        if rate is None or not 0 <= rate <= 1:
            raise Malformed(f"{place}: hit_pct is {row['hit_pct']!r}; expected a number from 0 to 100")
        per_call = used * (1 - rate)
    dense_bytes = model.streamed_bytes
    streamed = None if dense_bytes is None else model.token_cycle_bytes(top_k=used) + dense_bytes
    return Anchor(
        name=selector,
        tok_s=_number(place, row, speed, least=1e-6),
        layers=len(layers),
        top_k=used,
        misses=per_call * len(layers),
        bytes_read=per_call * sum(layer.expert_bytes for layer in layers),
        reads=per_call * sum(layer.read_ops() for layer in layers),
        weight_bytes=streamed,
        condition=row["condition"],
    )


def _number(place: str, row: Row, column: str, *, least: float = 0, most: float = 1e9) -> float:
    value = decimal(row[column])
    if value is None or not isfinite(value) or not least <= value <= most:
        raise Malformed(f"{place}: {column} is {row[column]!r}; expected a number from {least:g} to {most:g}")
    return value
