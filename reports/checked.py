"""Writes flashmoe_sim/tune/checked.toml: how far the predictions of each system were off in the other reports."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from reports.field.tune import program

HERE = Path(__file__).parent
FILE = HERE.parent / "flashmoe_sim" / "tune" / "checked.toml"
# The rows of each system: its program in several spellings, without versions, and the strategies; any if empty. Rows of
# a fork count for the system of that fork only.
ROWS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "all-gpu": (("llama.cpp",), ("all_gpu",)),
    "placed": (("llama.cpp",), ("n_cpu_moe", "ot_regex")),
    "cached": (("llama.cpp",), ("vram_lru",)),
    "placed-ik": (("ik_llama.cpp",), ("n_cpu_moe", "ot_regex")),
    "hot-cache": (("adrianhoehne/llama.cpp hot-cache",), ()),
    "ktransformers": (("ktransformers", "ktransformers kt-kernel + SGLang"), ()),
    "turbofieldfare": (("TurboFieldfare",), ()),
    "nvmoe": (("nvmoe",), ()),
    "ds4": (("ds4",), ("slot_bank_ssd", "all_gpu")),
    "slotstream": (("slotstream",), ()),
    "crow": (("llama.cpp + moe-stream patch",), ("slot_bank_ssd",)),
    "imp": (("kekzl/imp",), ("vram_lru", "other")),
    "bounded-insert": (("llama.cpp PR #27861",), ()),
    "static-profile": (("thecodacus/llama.cpp moe-cache",), ()),
    "big-moe-on-edge": (("BigMoeOnEdge",), ()),
    "strata": (("Strata",), ("vram_lru",)),
    "moe-cache": (("leloch moe-cache",), ()),
    "cpu": (("llama.cpp",), ("cpu_only", "page_cache_mmap")),
}
FITTED = {"slot-bank": "runtime"}  # groups of the fidelity report
HEAD = """# Written by `./dev report` from reports/field/results.csv and reports/fidelity/results.csv.
# published: by system; of: its rows by the model's architecture (llama.cpp's name) and by the GPU's programming
# interface, empty for the CPU alone. Errors are of predictions without the row's machine: median_error of
# |predicted / measured - 1|, median_ratio of predicted / measured.
"""


def text() -> str:
    """The file as it should be."""
    field = pl.read_csv(HERE / "field" / "results.csv").filter(pl.col("without_machine_tok_s").is_not_null())
    field = field.with_columns(pl.col("arch", "api").fill_null(""))
    lines = [HEAD, *_published("all", field)]
    for name in ROWS:
        rows = of_system(field, name)
        lines += [*_published(name, rows), *_by_kind(name, rows)]
    runs = pl.read_csv(HERE / "fidelity" / "results.csv", infer_schema_length=None)
    for name, group in FITTED.items():
        of_speed = runs.filter((pl.col("group") == group) & (pl.col("quantity") == "tok/s"))
        errors = [abs(float(error)) for error in of_speed["error"]]
        lines += [f"[fitted.{name}]", f"runs = {len(errors)}"]
        lines += [f"median_error = {statistics.median(errors):.4f}", f"worst_error = {max(errors):.4f}", ""]
    return "\n".join(lines)


def of_system(field: pl.DataFrame, name: str) -> pl.DataFrame:
    """The rows of a system's own program."""
    programs, strategies = ROWS[name]
    own = [program(engine) in programs for engine in field["engine"]]
    rows = field.filter(pl.Series(own, dtype=pl.Boolean))
    return rows.filter(pl.col("strategy").is_in(strategies)) if strategies else rows


def _published(name: str, rows: pl.DataFrame) -> list[str]:
    ratios = _ratios(rows)
    if not ratios:
        return []
    near = sum(abs(math.log(ratio)) <= math.log(2) for ratio in ratios) / len(ratios)
    return [
        f"[published.{name}]",
        f"rows = {len(ratios)}",
        f"machines = {rows['machine_id'].fill_null(rows['id']).n_unique()}",
        f"median_error = {_error(ratios):.3f}",
        f"within_2 = {near:.3f}",
        "",
    ]


def _by_kind(name: str, rows: pl.DataFrame) -> list[str]:
    """A table for each architecture and kind of GPU, the one with the most rows first."""
    lines = []
    for (arch, api), group in sorted(rows.group_by("arch", "api"), key=lambda item: (-len(item[1]), item[0])):
        ratios = _ratios(group)
        lines += [
            f"[[published.{name}.of]]",
            f'arch = "{arch}"',
            f'api = "{api}"',
            f"rows = {len(ratios)}",
            f"machines = {group['machine_id'].fill_null(group['id']).n_unique()}",
            f"median_error = {_error(ratios):.3f}",
            f"median_ratio = {statistics.median(ratios):.3f}",
            "",
        ]
    return lines


def _ratios(rows: pl.DataFrame) -> list[float]:
    """Predicted, without the row's machine, over measured."""
    return (rows["without_machine_tok_s"] / rows["measured_tok_s"]).to_list()


def _error(ratios: Sequence[float]) -> float:
    return statistics.median(abs(ratio - 1) for ratio in ratios)


if __name__ == "__main__":
    FILE.write_text(text())
