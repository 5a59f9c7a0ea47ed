"""The table that llama-bench prints, in a text that may have several, with anything around and between their lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from flashmoe_sim.io.errors import BadInput, Malformed, shown
from flashmoe_sim.io.sizes import decimal, parse_size
from flashmoe_sim.measured.documents import NamedValues
from flashmoe_sim.measured.dress import NUMBER, figure, two_meanings

# Columns of the table that have other names than the fields of the other formats; "ot" and "ts" depend on the program.
SHORT = {
    "ngl": "n_gpu_layers",
    "threads": "n_threads",
    "fa": "flash_attn",
    "mmap": "use_mmap",
    "lm": "load_mode",
    "sm": "split_mode",
    "nkvo": "no_kv_offload",
    "dev": "devices",
    "ts": "tensor_split",
    "ot": "tensor_buft_overrides",
    "fitt": "fit_target",
    "mla": "mla_attn",
    "fmoe": "fused_moe",
    "backend": "backends",
    "model": "model_type",
    "nopo": "no_op_offload",
    "embd": "embeddings",
}
OVERRIDES = SHORT["ot"]
TEST, SPEED = "test", "t/s"  # columns of the table that make a row a measurement
_TEST = re.compile(r"(?:pp ?(\d{1,9}))?\+?(?:tg ?(\d{1,9}))?(?:@pp(\d{1,9}))?(?: @ d(\d{1,9}))?")
_SPEED = re.compile(rf"{NUMBER}(?:\s*[^\d\s.,]+\s*{NUMBER})?")
OTHERS = {"S_PP t/s", "peak t/s", "ttfr (ms)", "est_ppt (ms)"}  # columns of other benchmarks, which have such tests too
NO_HEADS = "a row without the line of columns above it; give both"
_RULE = re.compile(r"[\s:=+-]*")
_OF_SPEED = re.compile(r"(?:\b|_)t(?:ok|oken|okens)?/s(?:ec)?\b", re.IGNORECASE)


def has_table(text: str) -> bool:
    """Whether a text has a table of llama-bench, or rows without their heading."""
    lines = [_cells(line) for _, line in _unbroken(text) if "/s" in line or "±" in line]
    if any(_heads(cells) is not None for cells in lines):
        return True
    return any(map(_without_heads, lines)) and all(OTHERS.isdisjoint(cells) for cells in lines)


def rows_of_tables(text: str, where: str) -> tuple[list[NamedValues], list[str]]:
    """The rows, with the fields of the other formats, and a line for each that cannot be read."""
    rows, left_out = list[NamedValues](), list[str]()
    names, whole, skipping, with_bars = list[str](), True, False, False
    for number, line in _unbroken(text):
        place, cells = f"{where}: line {number}", _cells(line)
        if names and with_bars and "|" not in line:
            cells = [line]
        if all(_RULE.fullmatch(cell) for cell in cells[1:-1] or cells):
            skipping = skipping and bool(line.strip())
        elif (heads := _heads(cells)) is not None:
            names, whole, skipping = heads, True, heads.count(SPEED) > 1
            with_bars = "|" in line
            if skipping:
                left_out.append(f"{place}: a table with several columns {SPEED}; give the rows of one build or setting")
        elif len(cells) < 3:
            whole, skipping = False, False  # what no longer fits may be of another table
        elif not OTHERS.isdisjoint(cells):
            names, skipping = [], True
        elif any(_OF_SPEED.search(cell) for cell in cells) and not skipping:
            left_out.append(
                f"{place}: a table without columns {TEST} and {SPEED}; give the one that llama-bench prints"
            )
            names, skipping = [], True
        elif names and not skipping:
            try:
                row = _row(names, cells, place)
                rows += [row] if row is not None else []
                whole = True
            except BadInput as error:
                if whole or len(cells) == len(names):
                    left_out.append(str(error))
                elif _without_heads(cells):
                    left_out.append(f"{place}: {NO_HEADS}")
        elif not skipping and _without_heads(cells):
            left_out.append(f"{place}: {NO_HEADS}")
    with_model = [row for row in rows if "model_type" in row.values]
    if with_model and len(with_model) < len(rows):
        others = f"{len(rows) - len(with_model)} speeds of tables without the column model, beside tables that have it"
        left_out.append(f"{where}: {others}; give them in a file of their own")
    return with_model or rows, left_out


def _unbroken(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a text with their numbers; two are one if a narrow terminal broke a row of a table."""
    begun, first, bars = "", 0, 0
    for number, line in enumerate(text.split("\n"), 1):
        joined, at = line, number
        if begun and line.rstrip().endswith("|") and not line.startswith("|"):
            joined, at = begun.rstrip("\r") + line, first
        elif begun:
            yield first, begun
        bars = joined.count("|") if _heads(_cells(joined)) else bars
        broken = joined.startswith("|") and not (joined.rstrip().endswith("|") and joined.count("|") >= bars > 0)
        begun, first = (joined, at) if broken else ("", 0)
        if not broken:
            yield at, joined
    if begun:
        yield first, begun


def _cells(line: str) -> list[str]:
    """The cells between bars, or between tabs if there are no bars, with what is before the first."""
    return [cell.strip(" \t\r*`") for cell in line.split("|" if "|" in line else "\t")]


def _heads(cells: list[str]) -> list[str] | None:
    """The names of a table's columns, if it is one of llama-bench; the last is empty if a bar closes it."""
    if TEST not in cells or not OTHERS.isdisjoint(cells) or not any(_OF_SPEED.search(cell) for cell in cells):
        return None
    return [SPEED if _OF_SPEED.search(name) else SHORT.get(name, name) for name in cells]


def _without_heads(cells: list[str]) -> bool:
    """Whether the cells end as a row of llama-bench's table does."""
    last = [cell for cell in cells if cell][-2:]
    return len(last) == 2 and len(cells) > 2 and bool(_TEST.fullmatch(last[0])) and "±" in last[1]


def _row(names: list[str], cells: list[str], where: str) -> NamedValues | None:
    """A row of the table; None for one without a test. Raises BadInput for one that is cut off or damaged."""
    if not names[0] and cells[0] and len(cells) == len(names) - 1:
        cells = ["", *cells]
    if not names[-1] and cells[-1]:
        raise torn(where, "no | at its end")
    more = len(cells) - len(names)
    if more > 0 and OVERRIDES in names:  # a regular expression may have bars
        first = names.index(OVERRIDES)
        cells = [*cells[:first], "|".join(cells[first : first + more + 1]), *cells[first + more + 1 :]]
    edges = names[:1].count("") + names[-1:].count("")
    if len(cells) != len(names):
        raise torn(where, f"{len(cells) - edges} values for {len(names) - edges} columns")
    row = dict(zip(names, cells, strict=True))
    return NamedValues(_of_table(row, where), where) if row[TEST] or row[SPEED] else None


def torn(where: str, found: str) -> BadInput:
    """The error for a row or statement that is not whole."""
    return Malformed(f"is cut off or damaged ({found})", where=where, advice="give the whole output of llama-bench")


def _of_table(row: dict[str, Any], where: str) -> dict[str, Any]:
    """A row of the printed table with the fields of the other formats."""
    speed = _SPEED.fullmatch(row[SPEED]) if len(row[SPEED]) < 60 else None
    test = _TEST.fullmatch(row[TEST])
    if speed is None or test is None or not row[TEST]:
        found = f"test {shown(row[TEST])} with t/s {shown(row[SPEED])}"
        raise Malformed(
            f"has {found}, expected such as tg128 and 28.10 ± 0.05", where=where, advice="give it as printed"
        )
    tok_s, deviation = figure(speed[1]), figure(speed[2] or "0")
    if tok_s is None:
        raise Malformed(two_meanings(speed[1]), where=where)
    prompt, generated, before, depth = (int(count or 0) for count in test.groups())
    shapes = {"n_prompt": before or prompt, "n_gen": generated, "n_depth": depth, "test": row[TEST].replace(" ", "")}
    size, params = (re.sub(r"^(\d+),(?=\d\d )", r"\1.", row.get(name, "")) for name in ("size", "params"))
    sizes = {"model_size": parse_size(size), "model_n_params": _weights(params)}
    return {**row, **shapes, **sizes, "avg_ts": tok_s, "stddev_ts": deviation}


def _weights(text: str) -> int | None:
    """The weights of a model from a text such as 30.53 B."""
    match = re.fullmatch(r"([\d.]{1,9}) ([BM])", text)
    number = decimal(match[1]) if match else None
    return round(number * {"B": 1e9, "M": 1e6}[match[2]]) if match and number else None
