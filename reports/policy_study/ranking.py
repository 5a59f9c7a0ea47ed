"""How the policies compare, from the counts: what the page and the figures both need."""

from __future__ import annotations

import polars as pl

from flashmoe_sim.policies.table import POLICIES
from reports.policy_study.measure import COMPARED, FIRST_HALF, MIDDLE

ONLINE = tuple(name for name in COMPARED if not POLICIES[name].hindsight)
HINDSIGHT = (*(name for name in COMPARED if POLICIES[name].hindsight), FIRST_HALF)


def against_lru(results: pl.DataFrame) -> pl.DataFrame:
    """A row for each share, trace and policy: hits and misses beside those of LRU and of min.

    points: of hit rate above LRU. ceiling: of min above LRU. fewer: share of LRU's misses that are saved.
    """
    rows = results.filter(pl.col("question") == "policies")
    key = ["share", "trace"]
    for name in ("lru", "min"):
        one = rows.filter(pl.col("policy") == name).select(*key, pl.col("hit_rate", "misses").name.suffix(f"_{name}"))
        rows = rows.join(one, on=key, maintain_order="left")
    return rows.with_columns(
        points=(pl.col("hit_rate") - pl.col("hit_rate_lru")) * 100,
        ceiling=(pl.col("hit_rate_min") - pl.col("hit_rate_lru")) * 100,
        fewer=1 - pl.col("misses") / pl.col("misses_lru"),
    )


def ranked(against: pl.DataFrame) -> pl.DataFrame:
    """A row for each share and policy, best mean first; `closed` is the part of the mean way from LRU to min."""
    return (
        against.group_by("share", "policy", maintain_order=True)
        .agg(
            pl.col("hit_rate", "points", "ceiling", "fewer").mean(),
            worst=pl.col("points").min(),
            best=pl.col("points").max(),
        )
        .with_columns(closed=pl.col("points") / pl.col("ceiling"))
        .sort("share", "points", descending=True, maintain_order=True)
    )


def best_online(ranks: pl.DataFrame) -> str:
    """The policy without hindsight that is furthest above LRU on the mean, with an eighth of the experts."""
    middle = ranks.filter((pl.col("share") == MIDDLE) & pl.col("policy").is_in(ONLINE))
    return str(middle["policy"][0])
