"""Writes flashmoe_sim/tune/checked.toml: how far the predictions of each system were off in the other reports."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import polars as pl

HERE = Path(__file__).parent
FILE = HERE.parent / "flashmoe_sim" / "tune" / "checked.toml"
# The rows of each system: how the row's engine begins, and its strategies; any if empty.
ROWS: dict[str, tuple[str, tuple[str, ...]]] = {
    "all-gpu": ("llama.cpp", ("all_gpu",)),
    "placed": ("llama.cpp", ("n_cpu_moe", "ot_regex")),
    "placed-ik": ("ik_llama.cpp", ("n_cpu_moe", "ot_regex")),
    "ktransformers": ("ktransformers", ()),
    "turbofieldfare": ("TurboFieldfare", ()),
    "nvmoe": ("nvmoe", ()),
    "crow": ("llama.cpp + moe-stream patch", ("slot_bank_ssd",)),
    "imp": ("kekzl/imp", ("vram_lru", "other")),
    "bounded-insert": ("llama.cpp PR #27861", ()),
    "static-profile": ("thecodacus", ()),
    "big-moe-on-edge": ("BigMoeOnEdge", ()),
    "cpu": ("", ("cpu_only", "page_cache_mmap")),
}
FITTED = {"slot-bank": "runtime"}  # groups of the fidelity report
HEAD = "# Written by `./dev report` from reports/field/results.csv and reports/fidelity/results.csv.\n"


def text() -> str:
    """The file as it should be."""
    field = pl.read_csv(HERE / "field" / "results.csv").filter(pl.col("without_machine_tok_s").is_not_null())
    lines = [HEAD, *_published("all", field)]
    for name, (engine, strategies) in ROWS.items():
        rows = field.filter(pl.col("engine").str.starts_with(engine))
        lines += _published(name, rows.filter(pl.col("strategy").is_in(strategies)) if strategies else rows)
    runs = pl.read_csv(HERE / "fidelity" / "results.csv", infer_schema_length=None)
    for name, group in FITTED.items():
        of_speed = runs.filter((pl.col("group") == group) & (pl.col("quantity") == "tok/s"))
        errors = [abs(float(error)) for error in of_speed["error"]]
        lines += [f"[fitted.{name}]", f"runs = {len(errors)}"]
        lines += [f"median_error = {statistics.median(errors):.4f}", f"worst_error = {max(errors):.4f}", ""]
    return "\n".join(lines)


def _published(name: str, rows: pl.DataFrame) -> list[str]:
    ratios = (rows["without_machine_tok_s"] / rows["measured_tok_s"]).to_list()
    if not ratios:
        return []
    error = statistics.median(abs(ratio - 1) for ratio in ratios)
    near = sum(abs(math.log(ratio)) <= math.log(2) for ratio in ratios) / len(ratios)
    return [
        f"[published.{name}]",
        f"rows = {len(ratios)}",
        f"median_error = {error:.3f}",
        f"within_2 = {near:.3f}",
        "",
    ]


if __name__ == "__main__":
    FILE.write_text(text())
