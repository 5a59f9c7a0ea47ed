"""llama-bench of llama.cpp and of ik_llama.cpp, in each format that it prints.

Source: ggml-org/llama.cpp tools/llama-bench/llama-bench.cpp; ikawrakow/ik_llama.cpp 8337e4cd3,
examples/llama-bench/llama-bench.cpp.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from typing import Any

from flashmoe_sim.io.errors import BadInput, Malformed, shown
from flashmoe_sim.io.sizes import parse_size
from flashmoe_sim.measured.documents import NamedValues, document, objects_by_line
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
}
ONLY_IK = {
    "mla_attn",
    "fused_moe",
    "attn_max_batch",
    "override_tensor",
    "amb",
    "ser",
    "rtr",
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
}
SWITCH = {"-1": "auto", "0": "off", "1": "on"}

_HEAD = re.compile(r"^[ \t>]*\|[ \t]*model[ \t]*\|.*\|[ \t]*test[ \t]*\|[ \t]*t/s[ \t]*\|?[ \t]*\r?$", re.MULTILINE)
_TEST = re.compile(r"(?:pp ?(\d{1,9}))?\+?(?:tg ?(\d{1,9}))?(?:@pp(\d{1,9}))?(?: @ d(\d{1,9}))?")
_SPEED = re.compile(r"(\S+?)(?:\s*[^\d\s.]+\s*(\S+))?")
_INSERT = re.compile(r"^INSERT INTO (?:llama_bench|test) \(([^)]*)\) VALUES \((.*)\);\s*$", re.MULTILINE)
_CSV_HEAD = re.compile(r"^build_commit,.*\bavg_ts\b.*$", re.MULTILINE)


def detect_json(text: str) -> bool:
    return '"avg_ts"' in text and '"n_gen"' in text and '"model_type"' in text


def detect_csv(text: str) -> bool:
    return _CSV_HEAD.search(text) is not None


def detect_sql(text: str) -> bool:
    return re.search(r"^INSERT INTO (?:llama_bench|test) \(build_commit", text, re.MULTILINE) is not None


def detect_md(text: str) -> bool:
    return _HEAD.search(text) is not None


def read_json(text: str, where: str) -> FoundSpeeds:
    """The list that `-o json` prints, or the lines of `-o jsonl`."""
    a_list = text.lstrip().startswith("[") or re.search(r"^\s*\[\s*$", text, re.MULTILINE)
    if not a_list and re.search(r"^\s*\{\s*\"", text, re.MULTILINE):
        return _measured(objects_by_line(text, where))
    return _measured(document(text, where, "test"))


def read_csv(text: str, where: str) -> FoundSpeeds:
    """The table of `-o csv`, after any other lines."""
    lines = text.split("\n")
    first = next(number for number, line in enumerate(lines) if _CSV_HEAD.match(line))
    names = [name.strip() for name in lines[first].split(",")]
    rows = []
    for number, line in enumerate(lines[first + 1 :], first + 2):
        if not line.strip() or line.strip() == lines[first].strip():
            continue
        place = f"{where}: line {number}"
        if line.startswith('"') and not line.rstrip().endswith('"'):
            raise _torn(place, "no quote at its end")
        try:
            cells = next(csv.reader([line.rstrip("\r")], strict=True))
        except (csv.Error, StopIteration) as error:
            raise _torn(place, str(error)) from None
        rows.append(NamedValues(_named(names, cells, place), place))
    return _measured(rows)


def read_sql(text: str, where: str) -> FoundSpeeds:
    """The statements of `-o sql`."""
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.startswith("INSERT INTO "):
            continue
        place = f"{where}: line {number}"
        statement = _INSERT.match(line)
        if statement is None:
            raise _torn(place, "not a whole statement")
        values = statement[2].strip()
        if len(values) < 2 or values[0] != "'" or values[-1] != "'":
            raise _torn(place, "values without quotes")
        rows.append(NamedValues(_named(statement[1].split(", "), values[1:-1].split("', '"), place), place))
    return _measured(rows)


def read_md(text: str, where: str) -> FoundSpeeds:
    """The tables of `-o md`, of which a text may have several."""
    rows: list[NamedValues] = []
    names: list[str] | None = None
    closed = True
    for number, line in enumerate(text.split("\n"), 1):
        if _HEAD.match(line):
            names, closed = [SHORT.get(name, name) for name in _cells(line)], line.rstrip().endswith("|")
        elif "|" not in line:
            names = None if line.strip() else names
        elif names is not None and not set(line) <= set("|-: >\t\r"):
            place = f"{where}: line {number}"
            if closed and not line.rstrip().endswith("|"):
                raise _torn(place, "no | at its end")
            rows.append(NamedValues(_of_table(_named(names, _cells(line), place), place), place))
    return _measured(rows)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip(" \t\r>").removeprefix("|").removesuffix("|").split("|")]


def _named(names: list[str], cells: list[str], where: str) -> dict[str, Any]:
    if len(cells) != len(names):
        raise _torn(where, f"{len(cells)} values for {len(names)} columns")
    return dict(zip(names, cells, strict=True))


def _torn(where: str, found: str) -> BadInput:
    return Malformed(f"is cut off or damaged ({found})", where=where, advice="give the whole output of llama-bench")


def _of_table(row: dict[str, Any], where: str) -> dict[str, Any]:
    """A row of the printed table with the fields of the other formats."""
    speed = _SPEED.fullmatch(row["t/s"]) if len(row["t/s"]) < 60 else None
    test = _TEST.fullmatch(row["test"])
    if speed is None or test is None or not row["test"]:
        found = f"test {shown(row['test'])} with t/s {shown(row['t/s'])}"
        raise Malformed(
            f"has {found}, expected such as tg128 and 28.10 ± 0.05", where=where, advice="give it as printed"
        )
    size = parse_size(row.get("size", ""))
    prompt, generated, before, depth = (int(count or 0) for count in test.groups())
    shapes = {"n_prompt": before or prompt, "n_gen": generated, "n_depth": depth, "test": row["test"].replace(" ", "")}
    return {**row, **shapes, "model_size": size, "avg_ts": speed[1], "stddev_ts": speed[2]}


def _measured(rows: Iterable[NamedValues]) -> FoundSpeeds:
    found = FoundSpeeds()
    for row in rows:
        prompt, generated = row.count("n_prompt") or 0, row.count("n_gen") or 0
        after = row.text("test").partition("@pp")[2]  # ik_llama.cpp: generated after a prompt that is not timed
        if prompt and generated and not after:
            found.left_out.append(
                f"{row.where}: pp{prompt}+tg{generated} is a prompt and its answer together; measure them by -p and -n"
            )
            continue
        found.measured.append(_one(row, prompt=prompt, generated=generated, after=bool(after)))
    return found


def _one(row: NamedValues, *, prompt: int, generated: int, after: bool) -> Measured:
    if not prompt and not generated:
        raise Malformed("has no tokens in n_prompt and n_gen", where=row.where, advice="give the output as printed")
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
        quant=quant_of(row.text("model_filename"), row.text("model_type")),
        depth=depth,
        prompt=not generated,
        tokens=generated or prompt,
        tok_s=speed,
        sd=abs(deviation / speed) if deviation and speed else None,
        settings=settings,
    )


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
