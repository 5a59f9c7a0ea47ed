"""The part of the page on series that differ in how full the context is."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from flashmoe_sim.field.engines import attended, depth_of, kv_type_of
from flashmoe_sim.field.rows import FieldRow
from flashmoe_sim.machines.belief import published_times
from flashmoe_sim.timeline.attention_cost import QUANTIZED
from reports.pages import joined

LEAST_TOKENS = 4096  # between the ends of a series: a shorter one says little
# Builds from these days on have other kernels for quantized caches on CUDA (ik_llama.cpp, pull request 370; llama.cpp,
# 16208). On one RTX 3090 with Qwen3-235B-A22B, 1,000 tokens cost 2,419 us a token before the first, 842 after it.
REPLACED = {"ik_llama.cpp": "2025-05-04", "llama.cpp": "2025-09-23"}
# Systems with kernels of their own on whose slopes no rate was set.
UNSET = {"mlx": "MLX", "cpu-ik": "ik_llama.cpp on the CPU"}
HEAD = (
    "A series at several depths of the context tells how much longer a token takes for each 1,000 earlier ones. The "
    "slope is that of its ends. The rates at which attention reads keys and values are medians of published slopes, by "
    "backend, and these series are among them."
)


class Timed(NamedTuple):
    """A row with its predicted speed, and the system that it was asked of."""

    row: FieldRow
    tok_s: float
    system: str

    @property
    def measured(self) -> float:
        assert self.row.decode_tok_s is not None
        return self.row.decode_tok_s


@dataclass(frozen=True)
class Slope:
    """Seconds that 1,000 more tokens in the context add to a token, measured and predicted."""

    shallow: FieldRow
    deep: FieldRow
    measured_s: float
    predicted_s: float
    system: str

    @property
    def off(self) -> float:
        """How far the prediction is from the measurement, as a share of it."""
        return abs(self.predicted_s / self.measured_s - 1)

    @property
    def replaced(self) -> bool:
        """Whether the build had kernels for quantized caches that its engine has replaced since."""
        row = self.deep
        return bool(row.gpu) and kv_type_of(row) in QUANTIZED and row.date < REPLACED.get(row.engine, "")


def section(printed: Sequence[Timed], of_parts: Sequence[Timed]) -> str:
    """The median error of slopes as printed and of the parts alone, and of how many."""
    found = slopes(printed)
    counted = [one for one in found if not one.replaced]
    off, alone = (
        statistics.median(one.off for one in slopes(rows) if not one.replaced and one.system not in UNSET)
        for rows in (printed, of_parts)
    )
    unset = [one for one in slopes(of_parts) if not one.replaced and one.system in UNSET]
    others = " and ".join(
        f"{statistics.median(one.off for one in unset if one.system == system):.0%} of "
        f"{sum(one.system == system for one in unset)} of {name}"
        for system, name in UNSET.items()
    )
    right, pairs = order(printed)
    summary = (
        f"Of {len(counted) - len(unset)} series the median error of the slope is {alone:.0%} of the parts alone "
        f"(goal 15%), and {off:.0%} as printed, with how fast engines are beside their parts. Of series on which no "
        f"rate was set it is {others}. "
        f"{len(found) - len(counted)} others have quantized caches and builds from before llama.cpp and ik_llama.cpp "
        f"replaced the kernels. Where a machine ran several models at one depth of 32,768 tokens or more, {right} of "
        f"{pairs} pairs of them are in the measured order."
    )
    return joined(HEAD, summary)


def timed(rows: Iterable[FieldRow], answered: pl.DataFrame) -> tuple[list[Timed], list[Timed]]:
    """Rows as printed, and of the parts alone, without how fast engines are beside them. answered: of residuals.csv."""
    known = {row.id: row for row in rows}
    lines = [
        (known[name], system, tok_s) for name, system, tok_s in answered.select("id", "system", "tok_s").iter_rows()
    ]
    return [Timed(row, tok_s, system) for row, system, tok_s in lines], [
        Timed(row, tok_s / published_times(system), system) for row, system, tok_s in lines
    ]


def slopes(rows: Sequence[Timed]) -> list[Slope]:
    """The slopes of series that reach at least LEAST_TOKENS deeper, with a measured slope above zero."""
    series = defaultdict(list)
    for one in rows:
        if one.row.varies.startswith("context"):
            series[one.row.series].append(one)
    found = []
    for group in series.values():
        ends = sorted(group, key=lambda one: depth_of(one.row))
        shallow, deep = ends[0], ends[-1]
        more = attended(deep.row) - attended(shallow.row)
        if more < LEAST_TOKENS:
            continue
        measured = 1e3 * (1 / deep.measured - 1 / shallow.measured) / more
        predicted = 1e3 * (1 / deep.tok_s - 1 / shallow.tok_s) / more
        if measured > 0:
            found.append(Slope(shallow.row, deep.row, measured, predicted, deep.system))
    return sorted(found, key=lambda one: one.deep.series)


def order(rows: Sequence[Timed], *, least: int = 32_768) -> tuple[int, int]:
    """Pairs of models on one machine at one depth that are predicted in the measured order, and all such pairs."""
    at: dict[tuple[str, str, int], list[Timed]] = defaultdict(list)
    for one in rows:
        if depth_of(one.row) >= least and one.row.varies.startswith("context"):
            at[one.row.machine_id, one.row.engine_version_or_pr, depth_of(one.row)].append(one)
    right = pairs = 0
    for group in at.values():
        for number, one in enumerate(group):
            for other in group[:number]:
                if one.row.model == other.row.model:
                    continue
                pairs += 1
                faster = one.measured > other.measured
                right += faster == (one.tok_s > other.tok_s)
    return right, pairs
