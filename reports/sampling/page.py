"""The page of the sampling report, made of its two tables."""

from __future__ import annotations

import polars as pl

from reports.pages import table

SHOWN = 1 / 4
COLUMNS = ("bias", "rms", "half", "covered", "plain_rms")
HEAD = ("bias", "error", "half-width", "exact rate in the interval", "error without LRU")


def markdown(results: pl.DataFrame, others: pl.DataFrame) -> str:
    """The text of README.md."""
    traces, policies = (results[name].n_unique() for name in ("trace", "policy"))
    estimates = int(results["estimates"].sum())
    at_quarter = results.filter(pl.col("share") == SHOWN)
    ways = []
    for row in others.sort("way", "policy", pl.col("share").neg(), maintain_order=True).iter_rows(named=True):
        beside = ("", "") if row["policy"] == "lru" else (f"{row['bias']:+.2f}", f"{row['rms']:.2f}")
        errors = (f"{row['plain_bias']:+.2f}", f"{row['plain_rms']:.2f}", *beside)
        ways.append((row["way"], f"`{row['policy']}`", _share(row["share"]), f"{row['replayed']:.0%}", *errors))
    head = ("way", "policy", "share", "replayed", "bias", "error", "bias beside LRU", "error beside LRU")
    return f"""\
# How far samples are from the exact hit rates

`sim curve --sample` on {traces} bundled traces under {policies} policies, in banks of an eighth to seven
eighths of the experts: {estimates:,} estimates, each beside the exact rate. Bias, error (root mean square)
and half-width of the 90% interval (median) are in points of the hit rate.
[docs/guides/more.md](../../docs/guides/more.md) says what follows from it;
`./dev report` makes this page again.

## By share of the layers

{_table(_pooled(results, "share"), "share")}

## A quarter of the layers, by trace

The traces of 256 experts have six layers, of which two are replayed.

{_table(_pooled(at_quarter, "trace", "replayed", "layers"), "trace", "replayed", "layers")}

## A quarter of the layers, by policy

{_table(_pooled(at_quarter, "policy", "contract"), "policy", "contract")}

## Other ways to sample

Experts: of every layer, in banks as much smaller. Steps: windows of 32, each after 32 that are not counted,
in a bank that keeps what it had. `replayed` is the share of the references or calls that are replayed.
Errors are given as they are, and beside the exact rate of LRU, as above. python-256, deepseek-v2-lite and
gpt-oss-120b, banks of a quarter, half and three quarters of the experts, six draws.

{table(head, ways, left=None)}
"""


def _pooled(results: pl.DataFrame, *by: str) -> pl.DataFrame:
    """All estimates of a group together: a row counts as often as it has estimates."""
    weight = pl.col("estimates") / pl.col("estimates").sum()
    mean = [(pl.col(name) * weight).sum().alias(name) for name in ("bias", "covered")]
    square = [(pl.col(name) ** 2 * weight).sum().sqrt().alias(name) for name in ("rms", "plain_rms")]
    return results.group_by(by, maintain_order=True).agg(*mean, *square, pl.col("half").median())


def _table(rows: pl.DataFrame, *by: str) -> str:
    formats = {"bias": "{:+.2f}", "covered": "{:.0%}"}
    cells = (
        (
            *(_share(row[name]) if name == "share" else row[name] for name in by),
            *(formats.get(name, "{:.2f}").format(row[name]) for name in COLUMNS),
        )
        for row in rows.iter_rows(named=True)
    )
    return table((*by, *HEAD), cells, left=None)


def _share(share: float) -> str:
    return f"1/{round(1 / share)}"
