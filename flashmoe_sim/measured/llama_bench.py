"""llama-bench of llama.cpp and of ik_llama.cpp, in each format that it prints.

Source: ggml-org/llama.cpp tools/llama-bench/llama-bench.cpp; ikawrakow/ik_llama.cpp 8337e4cd3,
examples/llama-bench/llama-bench.cpp.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from flashmoe_sim.io.errors import BadInput, Malformed, Unsupported, shown
from flashmoe_sim.io.numbers import decimal
from flashmoe_sim.io.sizes import parse_size
from flashmoe_sim.measured.documents import NamedValues, rows_in
from flashmoe_sim.measured.dress import NUMBER, figure, two_meanings, undressed
from flashmoe_sim.measured.placement import IK, system_of
from flashmoe_sim.measured.value import MOST_TOKENS, FoundSpeeds, Measured, quant_of

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
    "rtr": "repack",
}
OVERRIDES = SHORT["ot"]
ONLY_IK = {
    "mla_attn",
    "fused_moe",
    "attn_max_batch",
    "override_tensor",
    "amb",
    "ser",
    "repack",
    "ger",
    "gr",
    "mqkv",
    "muge",
}
OF_IK = {"cuda": "CUDA", "vulkan": "Vulkan", "metal": "Metal", "sycl": "SYCL", "rpc": "RPC"}  # fields, 1 if built in
SETTINGS = {  # names in `Measured.settings`, and fields
    "threads": "n_threads",
    "batch": "n_batch",
    "ubatch": "n_ubatch",
    "type_k": "type_k",
    "type_v": "type_v",
    "flash_attn": "flash_attn",
    "mmap": "use_mmap",
    "load_mode": "load_mode",
    "n_gpu_layers": "n_gpu_layers",
    "n_cpu_moe": "n_cpu_moe",
    "overrides": "tensor_buft_overrides",
    "tensor_split": "tensor_split",
    "split_mode": "split_mode",
    "gpu": "gpu_info",
    "cpu": "cpu_info",
    "build": "build_number",
    "no_op_offload": "no_op_offload",
    "repack": "repack",
}
SWITCH = {"-1": "auto", "0": "off", "1": "on"}

TEST, SPEED = "test", "t/s"  # columns of the table that make a row a measurement
_TEST = re.compile(r"(?:pp ?(\d{1,9}))?\+?(?:tg ?(\d{1,9}))?(?:@pp(\d{1,9}))?(?: @ d(\d{1,9}))?")
_SPEED = re.compile(rf"{NUMBER}(?:\s*[^\d\s.,]+\s*{NUMBER})?")
NO_HEADS = "a row without the line of columns above it; give both"
_RULE = re.compile(r"[\s:=+-]*")
_OF_SPEED = re.compile(r"(?:\b|_)t(?:ok|oken|okens)?/s(?:ec)?\b", re.IGNORECASE)
_INSERT = re.compile(r"^[ \t]*INSERT INTO (?:llama_bench|test) \(([^)]*)\) VALUES \((.*)\);\s*$", re.MULTILINE)
_CSV_HEAD = re.compile(r"^[ \t]*build_commit,.*\bavg_ts\b.*$", re.MULTILINE)


def detect_json(text: str) -> bool:
    return '"avg_ts"' in text and '"n_gen"' in text and '"model_type"' in text


def detect_csv(text: str) -> bool:
    return _CSV_HEAD.search(undressed(text)) is not None


def detect_sql(text: str) -> bool:
    return (
        re.search(r"^[ \t]*INSERT INTO (?:llama_bench|test) \(build_commit", undressed(text), re.MULTILINE) is not None
    )


def detect_md(text: str) -> bool:
    lines = ((line, _cells(line)) for _, line in _unbroken(text) if "/s" in line or "±" in line)
    return any(_heads(cells) is not None or _without_heads(cells) for _, cells in lines)


def read_json(text: str, where: str) -> FoundSpeeds:
    """The list that `-o json` prints, or the lines of `-o jsonl`; also as a part of other JSON."""
    rows, torn = rows_in(text, where, lambda one: "avg_ts" in one and ("n_gen" in one or "n_prompt" in one), "test")
    return _measured(rows, [torn] if torn else [])


def read_csv(text: str, where: str) -> FoundSpeeds:
    """The table of `-o csv`, among any other lines."""
    lines = [line.strip() for line in undressed(text).split("\n")]
    first = next(number for number, line in enumerate(lines) if _CSV_HEAD.match(line))
    names = [name.strip() for name in lines[first].split(",")]
    rows, left_out = list[NamedValues](), list[str]()
    for number, line in enumerate(lines[first + 1 :], first + 2):
        if (not line.startswith('"') and line.count(",") < len(names) - 1) or line == lines[first]:
            continue
        place = f"{where}: line {number}"
        try:
            if line.startswith('"') and not line.endswith('"'):
                raise _torn(place, "no quote at its end")
            cells = next(csv.reader([line], strict=True))
            rows.append(NamedValues(_named(names, cells, place), place))
        except (csv.Error, StopIteration) as error:
            left_out.append(str(_torn(place, str(error))))
        except BadInput as error:
            left_out.append(str(error))
    return _measured(rows, left_out)


def read_sql(text: str, where: str) -> FoundSpeeds:
    """The statements of `-o sql`."""
    rows, left_out = list[NamedValues](), list[str]()
    for number, line in enumerate(undressed(text).split("\n"), 1):
        if not line.lstrip().startswith("INSERT INTO "):
            continue
        place = f"{where}: line {number}"
        try:
            statement = _INSERT.match(line)
            if statement is None:
                raise _torn(place, "not a whole statement")
            values = statement[2].strip()
            if len(values) < 2 or values[0] != "'" or values[-1] != "'":
                raise _torn(place, "values without quotes")
            rows.append(NamedValues(_named(statement[1].split(", "), values[1:-1].split("', '"), place), place))
        except BadInput as error:
            left_out.append(str(error))
    return _measured(rows, left_out)


def read_md(text: str, where: str) -> FoundSpeeds:
    """The tables of `-o md`, of which a text may have several, with any prefix before their lines and lines between."""
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
    return _measured(with_model or rows, left_out)


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
    if TEST not in cells or not any(_OF_SPEED.search(cell) for cell in cells):
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
        raise _torn(where, "no | at its end")
    more = len(cells) - len(names)
    if more > 0 and OVERRIDES in names:  # a regular expression may have bars
        first = names.index(OVERRIDES)
        cells = [*cells[:first], "|".join(cells[first : first + more + 1]), *cells[first + more + 1 :]]
    edges = names[:1].count("") + names[-1:].count("")
    if len(cells) != len(names):
        raise _torn(where, f"{len(cells) - edges} values for {len(names) - edges} columns")
    row = dict(zip(names, cells, strict=True))
    return NamedValues(_of_table(row, where), where) if row[TEST] or row[SPEED] else None


def _named(names: list[str], cells: list[str], where: str) -> dict[str, Any]:
    if len(cells) != len(names):
        raise _torn(where, f"{len(cells)} values for {len(names)} columns")
    return dict(zip(names, cells, strict=True))


def _torn(where: str, found: str) -> BadInput:
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
    sizes = {"model_size": parse_size(row.get("size", "")), "model_n_params": _weights(row.get("params", ""))}
    return {**row, **shapes, **sizes, "avg_ts": tok_s, "stddev_ts": deviation}


def _weights(text: str) -> int | None:
    """The weights of a model from a text such as 30.53 B."""
    match = re.fullmatch(r"([\d.]{1,9}) ([BM])", text)
    number = decimal(match[1]) if match else None
    return round(number * {"B": 1e9, "M": 1e6}[match[2]]) if match and number else None


def _measured(rows: Iterable[NamedValues], left_out: list[str]) -> FoundSpeeds:
    found = FoundSpeeds([], left_out)
    for row in rows:
        found.add(partial(_one, row))
    return found


def _one(row: NamedValues) -> Measured:
    prompt, generated = row.count("n_prompt") or 0, row.count("n_gen") or 0
    after = bool(row.text("test").partition("@pp")[2])  # ik_llama.cpp: generated after a prompt that is not timed
    if not prompt and not generated:
        raise Malformed("has no tokens in n_prompt and n_gen", where=row.where, advice="give the output as printed")
    if prompt and generated and not after:
        raise Unsupported(
            f"pp{prompt}+tg{generated} is a prompt and its answer together",
            where=row.where,
            advice="measure them by -p and -n",
        )
    if other := _other_work(row):
        raise Unsupported(other, where=row.where)
    depth = prompt if after else row.count("n_depth") or 0
    if max(prompt, generated, depth) > MOST_TOKENS:
        raise row.bad("a number of tokens", max(prompt, generated, depth), f"at most {MOST_TOKENS:,}")
    speed, deviation = row.needed("avg_ts"), row.number("stddev_ts")
    ik = not ONLY_IK.isdisjoint(row.values)
    settings = {name: row.text(key) for name, key in SETTINGS.items()} | {"backend": _backend(row)}
    counts = {name: row.whole(SETTINGS[name]) for name in ("batch", "ubatch", "threads", "n_cpu_moe", "n_gpu_layers")}
    settings |= {name: str(count) for name, count in counts.items() if count is not None}
    settings |= {name: SWITCH.get(settings[name], settings[name]) for name in ("flash_attn", "mmap")}
    settings["overrides"] = _overrides(row)
    elsewhere = _elsewhere(row)
    settings |= {"backend": "CPU"} if row.text("devices") == "none" else {}
    settings |= {"elsewhere": elsewhere} if elsewhere else {}
    settings = {name: value for name, value in settings.items() if value}
    engine = IK if ik else "llama.cpp"
    system, unplaced = system_of(settings, engine=engine, prompt=not generated)
    return Measured(
        where=row.where,
        engine=engine,
        system=system,
        unplaced=unplaced,
        model=row.text("model_filename") or row.text("model_type"),
        model_bytes=row.count("model_size"),
        model_weights=row.count("model_n_params"),
        quant=quant_of(row.text("model_filename"), row.text("model_type")),
        depth=depth,
        prompt=not generated,
        tokens=generated or prompt,
        tok_s=speed,
        sd=abs(deviation / speed) if deviation and speed else None,
        settings=settings,
    )


def _other_work(row: NamedValues) -> str:
    """A setting with which other work is done than that of the whole model, as a sentence."""
    reduced = row.text("ser")
    if reduced and not reduced.startswith(("-", "0")):
        return f"computes fewer experts than the model (ser {reduced})"
    if row.text("embeddings") == "1":
        return "computes embeddings, not text"
    return ""


def _elsewhere(row: NamedValues) -> str:
    """A setting that puts context or experts where no system has them, as a sentence."""
    if row.text("no_kv_offload") == "1":
        return "has the context in RAM (no_kv_offload), which no system does"
    if row.count("fit_target"):
        return "was placed by --fit-target, and does not say where the experts were"
    return ""


def _backend(row: NamedValues) -> str:
    """As the table prints it; ik_llama.cpp's other formats have a field for each backend."""
    if backends := row.text("backends"):
        return backends
    return ",".join(name for key, name in OF_IK.items() if row.text(key) == "1") or (
        "CPU" if row.text("cuda") == "0" else ""
    )


def _overrides(row: NamedValues) -> str:
    """The overrides of tensors, separated by commas. The table of ik_llama.cpp calls them ot too."""
    overrides = row.text("override_tensor") or row.text("tensor_buft_overrides")
    return "" if overrides == "none" else overrides.replace(";", ",")
