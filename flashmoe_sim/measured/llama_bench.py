"""llama-bench of llama.cpp and of ik_llama.cpp, in each format that it prints.

Source: ggml-org/llama.cpp tools/llama-bench/llama-bench.cpp; ikawrakow/ik_llama.cpp 8337e4cd3,
examples/llama-bench/llama-bench.cpp.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from functools import partial
from typing import Any

from flashmoe_sim.io.errors import BadInput, Malformed, Unsupported
from flashmoe_sim.measured.bench_table import has_table, rows_of_tables, torn
from flashmoe_sim.measured.documents import NamedValues, rows_in
from flashmoe_sim.measured.dress import undressed
from flashmoe_sim.measured.value import MOST_TOKENS, FoundSpeeds, Measured, quant_of
from flashmoe_sim.systems.llama_flags import IK, system_of

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
    "no_op_offload": "no_op_offload",
}
SWITCH = {"-1": "auto", "0": "off", "1": "on"}

_INSERT = re.compile(r"^[ \t]*INSERT INTO (?:llama_bench|test) \(([^)]*)\) VALUES \((.*)\);\s*$", re.MULTILINE)
_CSV_HEAD = re.compile(r"^[ \t]*\"?build_commit\"?[,;].*\bavg_ts\b.*$", re.MULTILINE)


def detect_json(text: str) -> bool:
    return '"avg_ts"' in text and '"n_gen"' in text and '"model_type"' in text


def detect_csv(text: str) -> bool:
    return _CSV_HEAD.search(undressed(text)) is not None


def detect_sql(text: str) -> bool:
    return (
        re.search(r"^[ \t]*INSERT INTO (?:llama_bench|test) \(build_commit", undressed(text), re.MULTILINE) is not None
    )


def detect_md(text: str) -> bool:
    return has_table(text)


def read_json(text: str, where: str) -> FoundSpeeds:
    """The list that `-o json` prints, or the lines of `-o jsonl`; also as a part of other JSON."""
    rows, torn = rows_in(text, where, lambda one: "avg_ts" in one and ("n_gen" in one or "n_prompt" in one), "test")
    return _measured(rows, [torn] if torn else [])


def read_csv(text: str, where: str) -> FoundSpeeds:
    """The table of `-o csv`, among any other lines."""
    lines = [line.strip() for line in undressed(text).split("\n")]
    first = next(number for number, line in enumerate(lines) if _CSV_HEAD.match(line))
    apart = max(",;", key=lines[first].count)
    names = [name.strip(' "') for name in lines[first].split(apart)]
    rows, left_out = list[NamedValues](), list[str]()
    for number, line in enumerate(lines[first + 1 :], first + 2):
        if (not line.startswith('"') and line.count(apart) < len(names) - 1) or line == lines[first]:
            continue
        place = f"{where}: line {number}"
        try:
            if line.startswith('"') and not line.endswith('"'):
                raise torn(place, "no quote at its end")
            cells = next(csv.reader([line], delimiter=apart, strict=True))
            rows.append(NamedValues(_named(names, cells, place), place))
        except (csv.Error, StopIteration) as error:
            left_out.append(str(torn(place, str(error))))
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
                raise torn(place, "not a whole statement")
            values = statement[2].strip()
            if len(values) < 2 or values[0] != "'" or values[-1] != "'":
                raise torn(place, "values without quotes")
            rows.append(NamedValues(_named(statement[1].split(", "), values[1:-1].split("', '"), place), place))
        except BadInput as error:
            left_out.append(str(error))
    return _measured(rows, left_out)


def read_md(text: str, where: str) -> FoundSpeeds:
    """The tables of `-o md`."""
    return _measured(*rows_of_tables(text, where))


def _named(names: list[str], cells: list[str], where: str) -> dict[str, Any]:
    if len(cells) != len(names):
        raise torn(where, f"{len(cells)} values for {len(names)} columns")
    return dict(zip(names, cells, strict=True))


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
    settings["repack"] = row.text("rtr") or (row.text("repack") if ik else "")  # llama.cpp means another thing by it
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
