"""Writes flashmoe_sim/tune/checked.toml: how far the answers of each system were off in the other reports."""

from __future__ import annotations

import statistics
from pathlib import Path

import polars as pl

from reports.field.residuals import TABLE, known, on_parts, score

HERE = Path(__file__).parent
FILE = HERE.parent / "flashmoe_sim" / "tune" / "checked.toml"
FITTED = {"slot-bank": "runtime"}  # groups of the fidelity report
HEAD = """# Written by `./dev report` from reports/field/residuals.csv and reports/fidelity/results.csv.
# published: by system, what the commands answered for speeds that others published, on the machine of their parts.
# people: who published them, each on however many machines. median_error: of |predicted / measured - 1|, and within_2:
# the share within a factor of two, if all is fitted without who published a row; inside_without: the share in the
# interval, if all is fitted without the row's machine or source.
# of: rows by the model's architecture (llama.cpp's name) and the GPU's programming interface, empty for the CPU alone.
"""


def text() -> str:
    """The file as it should be."""
    rows = known(on_parts(pl.read_csv(TABLE))).with_columns(pl.col("arch", "api").fill_null(""))
    lines = [HEAD, *_published("all", rows)]
    for (name,), of_system in sorted(rows.group_by("system")):
        lines += [*_published(str(name), of_system), *_by_kind(str(name), of_system)]
    runs = pl.read_csv(HERE / "fidelity" / "results.csv", infer_schema_length=None)
    for name, group in FITTED.items():
        of_speed = runs.filter((pl.col("group") == group) & (pl.col("quantity") == "tok/s"))
        errors = [abs(float(error)) for error in of_speed["error"]]
        lines += [f"[fitted.{name}]", f"runs = {len(errors)}"]
        lines += [f"median_error = {statistics.median(errors):.4f}", f"worst_error = {max(errors):.4f}", ""]
    return "\n".join(lines)


def _published(name: str, rows: pl.DataFrame) -> list[str]:
    machine, source = (score(rows, f"without_{by}_") for by in ("machine", "source"))
    return [
        f"[published.{name}]",
        *_counts(rows),
        f"median_error = {source.error:.3f}",
        f"within_2 = {source.within_2:.3f}",
        f"inside_without_machine = {machine.inside:.3f}",
        f"inside_without_source = {source.inside:.3f}",
        "",
    ]


def _by_kind(name: str, rows: pl.DataFrame) -> list[str]:
    """A table for each architecture and kind of GPU, the one with the most rows first."""
    lines = []
    for (arch, api), group in sorted(rows.group_by("arch", "api"), key=lambda item: (-len(item[1]), item[0])):
        of = score(group, "without_source_")
        lines += [f"[[published.{name}.of]]", f'arch = "{arch}"', f'api = "{api}"', *_counts(group)]
        lines += [f"median_error = {of.error:.3f}", f"median_ratio = {of.ratio:.3f}", ""]
    return lines


def _counts(rows: pl.DataFrame) -> list[str]:
    return [
        f"rows = {len(rows)}",
        f"people = {rows['source'].n_unique()}",
        f"machines = {rows['machine_id'].n_unique()}",
    ]


if __name__ == "__main__":
    FILE.write_text(text())
