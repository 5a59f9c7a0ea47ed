"""The page of the comparison with class-lru, made of its table."""

from __future__ import annotations

import polars as pl

from flashmoe_sim.io.sections import signed
from flashmoe_sim.trace.bundled import catalog
from flashmoe_sim.verbs.judge_policies import LEAST_P
from reports.class_lru.measure import RULE, SHARES, STAMP, TRACES
from reports.pages import table, wrapped

SURE = 0.05
SHOWN = 6  # policies of which each trace is shown


def markdown(judged: pl.DataFrame) -> str:
    """The text of README.md."""
    means = judged.filter(pl.col("trace").is_null())
    on_mean = means.group_by("policy", maintain_order=True).agg(pl.col("more_hits").mean())
    best = on_mean.sort("more_hits", descending=True, maintain_order=True)["policy"]
    head = ("policy", *(f"{share} of the experts" for share in SHARES))
    return wrapped(
        f"""# Is there a better rule for llama.cpp's cache?

llama.cpp keeps experts of all layers in one bank on the GPU (`--moe-cache-mib`), since build 12170 by the rule that is
`{RULE}` here. Every other policy without hindsight takes its place, and all else stays: one bank for all layers, empty
at first; a call is planned as a whole, hits count as used first, in the router's order, then misses, by number
(`stamp={STAMP}`), and no expert of the call is evicted for another (`atomic`). `python -m reports.class_lru` makes
this page and [judged.csv](judged.csv) again.

## In short

{_in_short(means)}

## The rule

Each use halves an expert's count once for every 128 tokens since its last use, and adds 1; counts stay when the expert
leaves. log2 of the count, rounded down, is its class, 0 to 7, until its next use. Of the least recently used expert of
each class the one with the largest age / 2^class leaves, age in tokens of its layer. So a victim costs eight
comparisons, and a use a few operations on the lists; `lfu` and its kin compare all slots, or keep a heap. The engine's
rule was read in its first comment;
[what that leaves open](../measured/README.md#llamacpps-own-cache) is worth up to 1.4 points with an eighth of the
experts, and 0.4 with more.

## Traces

{table(("trace", "layers", "experts", "top-k", "tokens", "origin"), _traces())}

## All policies

Points of hit rate above `{RULE}`: the mean over {len(TRACES)} traces, its 95% interval, which says how far more of the
same text could move it, on how many traces the policy is ahead, and the chance *p* of such a mean if nothing differed,
corrected for all policies of the column.

{table(head, ((f"`{policy}`", *(_cell(means, policy, share) for share in SHARES)) for policy in best))}

## By trace

The {SHOWN} best on the mean of the table above, and `lru`: points above `{RULE}`.

{_by_trace(judged, [*best[:SHOWN], "lru"])}
"""
    )


def _in_short(means: pl.DataFrame) -> str:
    points = []
    for share in SHARES:
        rows = means.filter(share=share).sort("more_hits", descending=True, maintain_order=True)
        sure = rows.filter((pl.col("more_hits_lo") > 0) & (pl.col("p") < SURE))["policy"]
        behind = rows.filter((pl.col("more_hits_hi") < 0) & (pl.col("p") < SURE)).height
        ahead = ", ".join(f"`{name}`" for name in sure) or "none"
        first, lru = rows.row(0, named=True), rows.row(by_predicate=pl.col("policy") == "lru", named=True)
        points.append(
            f"- With {share} of the experts, surely ahead of `{RULE}`: {ahead}; surely behind: {behind} of "
            f"{rows.height}. The best is `{first['policy']}`, {_interval(first)}; `lru` is at {_interval(lru)}."
        )
    return "\n".join(points)


def _traces() -> list[tuple[object, ...]]:
    shown = ((name, catalog()[name]) for name in TRACES)
    return [(name, one.layers, one.experts, one.top_k, f"{one.tokens:,}", one.origin) for name, one in shown]


def _cell(means: pl.DataFrame, policy: str, share: str) -> str:
    row = means.row(by_predicate=(pl.col("policy") == policy) & (pl.col("share") == share), named=True)
    p = "<0.001" if row["p"] < LEAST_P else f"{row['p']:.3f}"
    return f"{_interval(row)}, {row['ahead']} of {row['traces']}, p {p}"


def _interval(row: dict[str, float]) -> str:
    more, lo, hi = (signed(100 * row[f"more_hits{end}"]) for end in ("", "_lo", "_hi"))
    return f"{more} ({lo} … {hi})"


def _by_trace(judged: pl.DataFrame, policies: list[str]) -> str:
    rows = []
    for trace in TRACES:
        of = judged.filter(pl.col("trace") == trace)
        cells = []
        for policy in policies:
            found = dict(of.filter(policy=policy).select("share", "more_hits").iter_rows())
            cells.append(" / ".join(signed(100 * found[share]) for share in SHARES))
        rows.append((trace, *cells))
    return table(("trace", *(f"`{policy}`, {' / '.join(SHARES)}" for policy in policies)), rows)
