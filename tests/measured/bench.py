"""What llama-bench prints of one test, in each of its formats."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

FIELDS = {
    "build_commit": "0eca4d490",
    "build_number": 9196,
    "cpu_info": "AMD Ryzen 5 5600 6-Core Processor",
    "gpu_info": "NVIDIA GeForce RTX 3060",
    "backends": "CUDA",
    "model_filename": "models/gpt-oss-120b-mxfp4-00001-of-00003.gguf",
    "model_type": "gpt-oss 120B MXFP4 MoE",
    "model_size": 63375933440,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_threads": 6,
    "type_k": "f16",
    "type_v": "f16",
    "n_gpu_layers": 99,
    "n_cpu_moe": 31,
    "split_mode": "layer",
    "no_kv_offload": False,
    "flash_attn": 1,
    "devices": "auto",
    "tensor_split": "0.00",
    "tensor_buft_overrides": "none",
    "load_mode": "mmap",
    "fit_target": 0,
    "n_prompt": 0,
    "n_gen": 128,
    "n_depth": 0,
    "test_time": "2026-03-01T12:01:00Z",
    "avg_ns": 8000000000,
    "stddev_ns": 80000000,
    "avg_ts": 16.0,
    "stddev_ts": 0.16,
}
COLUMNS = ("n_gpu_layers", "n_cpu_moe", "n_threads", "n_ubatch", "tensor_buft_overrides")
SHORT = {"n_gpu_layers": "ngl", "n_threads": "threads", "tensor_buft_overrides": "ot"}

Row = dict[str, Any]


def row(**changed: Any) -> Row:
    return {**FIELDS, **changed}


def as_json(rows: list[Row]) -> str:
    return (
        "[\n" + ",\n".join("  " + json.dumps(one | {"samples_ts": [one["avg_ts"]]}, indent=4) for one in rows) + "\n]\n"
    )


def as_jsonl(rows: list[Row]) -> str:
    return "".join(json.dumps(one) + "\n" for one in rows)


def as_csv(rows: list[Row]) -> str:
    lines = [",".join(rows[0])]
    lines += [",".join('"' + text(value).replace('"', '""') + '"' for value in one.values()) for one in rows]
    return "\n".join(lines) + "\n"


def as_sql(rows: list[Row]) -> str:
    into = f"INSERT INTO llama_bench ({', '.join(rows[0])}) VALUES "
    values = (", ".join(f"'{text(value)}'" for value in one.values()) for one in rows)
    return "CREATE TABLE IF NOT EXISTS llama_bench (\n  x TEXT\n);\n\n" + "".join(f"{into}({one});\n" for one in values)


def as_md(rows: list[Row]) -> str:
    names = [SHORT.get(name, name) for name in COLUMNS]
    lines = ["| model | size | params | backend | " + " | ".join(names) + " | test | t/s |"]
    lines.append("| --- | " + "---: | " * (len(COLUMNS) + 5))
    for one in rows:
        cells = [one["model_type"], f"{one['model_size'] / 2**30:.2f} GiB", "116.83 B", one["backends"]]
        cells += [text(one[name]) for name in COLUMNS]
        test = f"pp{one['n_prompt']}" if one["n_prompt"] else f"tg{one['n_gen']}"
        test += f" @ d{one['n_depth']}" if one["n_depth"] else ""
        lines.append("| " + " | ".join([*cells, test, f"{one['avg_ts']:.2f} ± {one['stddev_ts']:.2f}"]) + " |")
    return "\n".join([*lines, "", "build: 0eca4d490 (9196)", ""])


WRITTEN = {"json": as_json, "jsonl": as_jsonl, "csv": as_csv, "sql": as_sql, "md": as_md}


def text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


@st.composite
def any_rows(draw: st.DrawFn) -> Row:
    """Any single test with settings that name a system."""
    prompt = draw(st.booleans())
    hundredths = draw(st.integers(1, 9_999_999))
    return row(
        n_prompt=draw(st.integers(1, 65536)) if prompt else 0,
        n_gen=0 if prompt else draw(st.integers(1, 4096)),
        n_depth=draw(st.sampled_from([0, 1, 512, 131072])),
        n_cpu_moe=draw(st.integers(0, 48)),
        n_ubatch=draw(st.sampled_from([128, 512, 2048])),
        n_gpu_layers=draw(st.sampled_from([-1, 99, 999])),
        avg_ts=hundredths / 100,
        stddev_ts=draw(st.integers(0, hundredths)) / 100,
    )
