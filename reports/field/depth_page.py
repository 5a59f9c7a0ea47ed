"""The part of the page on series that differ in how full the context is."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from flashmoe_sim.timeline.attention import QUANTIZED
from reports.field.depth import attended, depth_of, kv_type_of
from reports.field.predict import Raw
from reports.field.rows import FieldRow
from reports.field.tune import price_of
from reports.pages import joined, table

LEAST_TOKENS = 4096  # between the ends of a series: a shorter one says little
# Builds from these days on have other kernels for quantized caches on CUDA (ik_llama.cpp, pull request 370; llama.cpp,
# 16208). On one RTX 3090 with Qwen3-235B-A22B, 1,000 tokens cost 2,419 us a token before the first, 842 after it.
REPLACED = {"ik_llama.cpp": "2025-05-04", "llama.cpp": "2025-09-23"}
OLD_KERNELS = "old kernels"
HEAD = (
    "A series at several depths of the context tells how much longer a token takes for each 1,000 earlier ones. The "
    "slope is that of its ends; *predicted* is from the parts alone, as `sim recommend --depth` has it. The rates at "
    "which attention reads keys and values are medians of published slopes, by backend, and these series are among "
    "them."
)


@dataclass(frozen=True)
class Slope:
    """Seconds that 1,000 more tokens in the context add to a token, measured and predicted."""

    shallow: FieldRow
    deep: FieldRow
    measured_s: float
    predicted_s: float

    @property
    def off(self) -> float:
        """How far the prediction is from the measurement, as a share of it."""
        return abs(self.predicted_s / self.measured_s - 1)

    @property
    def replaced(self) -> bool:
        """Whether the build had kernels for quantized caches that its engine has replaced since."""
        row = self.deep
        return bool(row.gpu) and kv_type_of(row) in QUANTIZED and row.date < REPLACED.get(row.engine, "")


def section(rows: Sequence[Raw]) -> str:
    """Every slope, and their median error."""
    found = slopes(rows)
    cells = [
        (
            one.deep.series,
            *(f"{depth_of(end):,}" for end in (one.shallow, one.deep)),
            *(f"{1e6 * slope_s:,.0f}" for slope_s in (one.measured_s, one.predicted_s)),
            f"{one.predicted_s / one.measured_s - 1:+.0%}",
            OLD_KERNELS if one.replaced else "",
        )
        for one in found
    ]
    counted = [one for one in found if not one.replaced]
    off = statistics.median(one.off for one in counted)
    right, pairs = order(rows)
    summary = (
        f"Of {len(counted)} series the median error of the slope is {off:.0%} (goal 15%). {len(found) - len(counted)} "
        f"others, marked as {OLD_KERNELS}, have quantized caches and builds from before llama.cpp and ik_llama.cpp "
        f"replaced the kernels. Where a machine ran several models at one depth of 32,768 tokens or more, {right} of "
        f"{pairs} pairs of them are in the measured order."
    )
    head = ("series", "from", "to", "measured, us", "predicted, us", "error", "builds")
    return joined(HEAD, summary, table(head, cells, left=None))


def slopes(rows: Sequence[Raw]) -> list[Slope]:
    """The slopes of series that reach at least LEAST_TOKENS deeper, with a measured slope above zero."""
    series = defaultdict(list)
    for one in rows:
        if one.blind is not None and one.row.varies.startswith("context"):
            series[one.row.series].append(one)
    found = []
    for group in series.values():
        ends = sorted(group, key=lambda one: depth_of(one.row))
        shallow, deep = ends[0], ends[-1]
        more = attended(deep.row) - attended(shallow.row)
        if more < LEAST_TOKENS:
            continue
        measured = 1e3 * (1 / _measured(deep) - 1 / _measured(shallow)) / more
        predicted = 1e3 * (1 / _alone(deep) - 1 / _alone(shallow)) / more
        if measured > 0:
            found.append(Slope(shallow.row, deep.row, measured, predicted))
    return sorted(found, key=lambda one: one.deep.series)


def order(rows: Sequence[Raw], *, least: int = 32_768) -> tuple[int, int]:
    """Pairs of models on one machine at one depth that are predicted in the measured order, and all such pairs."""
    at: dict[tuple[str, str, int], list[Raw]] = defaultdict(list)
    for one in rows:
        if one.blind is not None and depth_of(one.row) >= least and one.row.varies.startswith("context"):
            at[one.row.machine_id, one.row.engine_version_or_pr, depth_of(one.row)].append(one)
    right = pairs = 0
    for group in at.values():
        for number, one in enumerate(group):
            for other in group[:number]:
                if one.row.model == other.row.model:
                    continue
                pairs += 1
                faster = _measured(one) > _measured(other)
                right += faster == (_alone(one) > _alone(other))
    return right, pairs


def _measured(one: Raw) -> float:
    assert one.row.decode_tok_s is not None
    return one.row.decode_tok_s


def _alone(one: Raw) -> float:
    return price_of(one).tok_s
