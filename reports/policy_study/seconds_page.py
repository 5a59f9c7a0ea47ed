"""The part of the page on seconds: the same policies and predictors, judged by speed."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path
from typing import Any

import polars as pl

from flashmoe_sim.io.sections import signed
from flashmoe_sim.paired import BLOCKS
from flashmoe_sim.prefetchers.table import PREFETCHERS
from reports.pages import table
from reports.policy_study.seconds import AHEAD, KINDS, SHARES, SWITCHED, TURNS

PUBLISHED = Path(__file__).parents[2] / "data" / "published" / "field.csv"
# Runs of one engine with the same routing, and the policies nearest to their rules: (row of field.csv, rule, policy).
MEASURED = (
    ("neu-pol-lru330", "LRU", "lru"),
    ("neu-pol-slru332", "segmented LRU", "slru"),
    ("neu-pol-lru-2331", "LRU-2", "lru-k"),
    ("neu-pol-aging333", "counts that are halved", "lfu-decay"),
    ("neu-pol-default,335", "admission on the second use within 64 tokens", "second-miss"),
)
FEW = ("second-miss", "bounded-lru", "lfu-decay", "cacheus", "lru-k", "slru", "lfu")  # of those shown with switches
TITLES = {"cpu": "the CPU computes misses", "upload": "misses are uploaded", "ssd": "misses are read from SSD"}


def section(results: pl.DataFrame) -> str:
    """The part of the page."""
    where = {kind.name: f"{kind.machine}, `{kind.execution.name}`" for kind in KINDS}
    return f"""## In seconds

The same banks and traces on three kinds of machine: the CPU computes misses, and what a policy installs is uploaded
beside it ({where["cpu"]}); every miss is uploaded from pinned RAM and computed on the GPU ({where["upload"]}); every
miss is read from an SSD past the page cache ({where["ssd"]}). Gain: how many times as fast as LRU, the geometric mean
over the traces; in brackets the 90% interval, from {BLOCKS} stretches of each trace with both policies' seconds (`sim
policy judge` makes such tables of your traces). **Bold** gains are above 1 with their whole interval. *Hits* are points
above LRU with 1/{SHARES[0]} of the experts.

{in_short(results)}

{policies_table(results)}

### Against measured speeds

One engine ran five rules with the same routing on one machine (GLM-5.3-Flash, 100 of 288 experts of a layer on two RTX
3090, the CPU computes misses; rows `neu-policy` of [field.csv](../../data/published/field.csv)). Nothing of it was used
here, and the traces are of other models. That engine uploads in the background, for at most a quarter of a token's
time; here a call waits for its uploads.

{measured_table(results)}

### When prompts switch

{", ".join(f"`{name}`" for name in SWITCHED)} are of one model: alone, one after another, and in turns of {TURNS} steps.
Gains over LRU with 1/{SHARES[0]} of the experts.

{switches_table(results)}

### Predictors in seconds

LRU with a predictor: gains over LRU without. `*` knows the future. {_measured_predictors()}

{ahead_table(results)}
"""


def in_short(results: pl.DataFrame) -> str:
    """What to take from it, in sentences that are true whatever the numbers are."""
    best = {kind.name: _ranked(results, "policies", kind.name, SHARES[0])[0] for kind in KINDS}
    second = {kind.name: _one(results, "policies", kind.name, SHARES[0], "second-miss") for kind in KINDS}
    traces = results.filter(pl.col("question") == "policies")["trace"].n_unique()
    behind = results.filter(
        (pl.col("question") == "policies")
        & (pl.col("kind") == "cpu")
        & (pl.col("share") == SHARES[0])
        & (pl.col("policy") == "placed")
        & (pl.col("gain") > 1)
    )
    known = [
        row
        for row in _ranked(results, "ahead", "cpu", SHARES[0])
        if row["prefetch"] != "none" and not PREFETCHERS[row["prefetch"]].hindsight
    ]
    more_hits = [row for row in known if row["points"] > 0]
    slower = [row for row in more_hits if row["gain"] < 1]
    firsts = ", ".join(f"`{row['policy']}` if {TITLES[kind]} ({_times(row['gain'])})" for kind, row in best.items())
    return f"""- **Fastest:** {firsts}.
- **Hits mislead where the CPU computes misses:** `second-miss` hits {signed(second["cpu"]["points"])} points against
LRU and is {_times(second["cpu"]["gain"])} as fast, since it uploads fewer experts; if misses must be uploaded it is
{_times(second["upload"]["gain"])}, and from SSD {_times(second["ssd"]["gain"])}.
- **Whole layers instead of a cache** (`placed`) are faster than LRU on {len(behind)} of {traces} traces there: a
pageable upload takes longer than the CPU needs for the expert.
- **Predictors:** {len(more_hits)} of those that do not know the future add hits there. Slower for it:
{", ".join(f"`{row['prefetch']}`" for row in slower) or "none"}."""


def policies_table(results: pl.DataFrame) -> str:
    """Every policy's gain on each kind of machine, sorted by the first."""
    rows = []
    for first in _ranked(results, "policies", KINDS[0].name, SHARES[0]):
        cells = [f"`{first['policy']}`", signed(first["points"])]
        for kind in KINDS:
            cells += [_gain(_one(results, "policies", kind.name, share, first["policy"])) for share in SHARES]
        rows.append(cells)
    return table(("policy", "hits", *(f"{kind.name} 1/{share}" for kind in KINDS for share in SHARES)), rows)


def measured_table(results: pl.DataFrame) -> str:
    """The gains that an engine measured, beside those of the policies nearest to its rules."""
    speeds = {row["id"]: float(row["decode_tok_s"]) for row in _published("neu-policy")}
    base = speeds[MEASURED[0][0]]
    rows = [
        (
            rule,
            f"{speeds[name]:.2f}",
            f"{speeds[name] / base:.3f}",
            f"`{policy}`",
            *(f"{_one(results, 'policies', 'cpu', share, policy)['gain']:.3f}" for share in SHARES),
        )
        for name, rule, policy in MEASURED
    ]
    return table(("rule", "tok/s", "gain", "policy", *(f"here, 1/{share}" for share in SHARES)), rows)


def _measured_predictors() -> str:
    """What the same engine measured of its own predictors."""
    none, *rows = _published("neu-pred")
    points = [float(row["hit_rate_pct"]) - float(none["hit_rate_pct"]) for row in rows]
    slower = [1 - float(row["decode_tok_s"]) / float(none["decode_tok_s"]) for row in rows]
    return (
        f"The engine above measured {len(rows)} predictors of its own (rows `neu-pred`): they hit {min(points):.1f} to "
        f"{max(points):.1f} points more, and were {min(slower):.0%} to {max(slower):.0%} slower."
    )


def _published(series: str) -> list[dict[str, str]]:
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["series"] == series]


def switches_table(results: pl.DataFrame) -> str:
    """Gains of some policies without and with switches."""
    of = results.filter(pl.col("policy").is_in(FEW) & (pl.col("share") == SHARES[0]))
    rows = []
    for policy in FEW:
        cells = [f"`{policy}`"]
        for kind in ("cpu", "ssd"):
            own = of.filter((pl.col("policy") == policy) & (pl.col("kind") == kind))
            alone = own.filter((pl.col("question") == "policies") & pl.col("trace").is_in(SWITCHED))["gain"]
            made = own.filter(pl.col("question") == "switches")["gain"]
            cells += [f"{gain:.3f}" for gain in (statistics.geometric_mean(alone), *made)]
        rows.append(cells)
    heads = [f"{kind} {how}" for kind in ("cpu", "ssd") for how in ("alone", "after another", "in turns")]
    return table(("policy", *heads), rows)


def ahead_table(results: pl.DataFrame) -> str:
    """Predictors' gains on each kind of machine, sorted by the first."""
    rows = []
    for first in _ranked(results, "ahead", KINDS[0].name, SHARES[0]):
        name = first["prefetch"]
        if name in AHEAD:
            mark = "*" if PREFETCHERS[name].hindsight else ""
            gains = [_one(results, "ahead", kind.name, share, "lru", name) for kind in KINDS for share in SHARES]
            rows.append((f"`{name}`{mark}", signed(first["points"]), *map(_gain, gains)))
    return table(("predictor", "hits", *(f"{kind.name} 1/{share}" for kind in KINDS for share in SHARES)), rows)


def _ranked(results: pl.DataFrame, question: str, kind: str, share: int) -> list[dict[str, Any]]:
    """The means over the traces of one question, kind and share, the fastest first. points: of hit rate above LRU."""
    rows = results.filter((pl.col("question") == question) & (pl.col("kind") == kind) & (pl.col("share") == share))
    means = rows.group_by("policy", "prefetch", maintain_order=True).agg(
        pl.col("hit_rate").mean(), pl.col("gain").log().mean().exp(), pl.col("gain_lo", "gain_hi").first()
    )
    lru = means.row(by_predicate=(pl.col("policy") == "lru") & (pl.col("prefetch") == "none"), named=True)
    means = means.with_columns(points=(pl.col("hit_rate") - lru["hit_rate"]) * 100)
    return means.sort("gain", descending=True, maintain_order=True).rows(named=True)


def _one(
    results: pl.DataFrame, question: str, kind: str, share: int, policy: str, predictor: str = "none"
) -> dict[str, Any]:
    rows = _ranked(results, question, kind, share)
    return next(row for row in rows if (row["policy"], row["prefetch"]) == (policy, predictor))


def _gain(row: dict[str, Any]) -> str:
    text = f"{row['gain']:.3f}"
    if row["gain_lo"] == row["gain_hi"]:
        return text
    return f"{f'**{text}**' if row['gain_lo'] > 1 else text} ({row['gain_lo']:.2f} … {row['gain_hi']:.2f})"


def _times(gain: float) -> str:
    return f"{gain:.2f} times"
