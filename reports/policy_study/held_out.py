"""How sure the ranking is, and what parameters are worth on text that they were not chosen on."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import polars as pl

import flashmoe_sim.api as sim
from flashmoe_sim.io.sections import signed
from flashmoe_sim.verbs.judge_policies import LEAST_P
from reports.pages import table
from reports.policy_study.measure import FOLDER, MIDDLE, ONLINE, TRACES

JUDGED, FITTED = FOLDER / "judged.csv", FOLDER / "fitted.csv"
NOTHING = 0.1  # points
ASKED: dict[str, Any] = {"bank": f"1/{MIDDLE}", "contract": "atomic"}
# The parameter of each policy that is fitted, around its default.
FITS = {
    "lfu-decay": "half_life=4,8,16,32,64",
    "s3fifo": "small=0.05,0.1,0.2,0.4",
    "window": "share=0.05,0.1,0.2",
}


def judge() -> pl.DataFrame:
    """schema.JUDGED: every policy without hindsight against LRU, on each trace and on all."""
    return _rounded(sim.judge_policies(list(TRACES), policy=[name for name in ONLINE if name != "lru"], **ASKED))


def fit() -> pl.DataFrame:
    """schema.FITTED: each policy of FITS with the parameter that does best on the other traces."""
    tables = [sim.fit_policy(list(TRACES), policy=name, values=values, **ASKED) for name, values in FITS.items()]
    return _rounded(pl.concat(tables))


def _rounded(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.selectors.float().round_sig_figs(6))


def load() -> tuple[pl.DataFrame, pl.DataFrame]:
    """The committed tables of `judge` and `fit`."""
    judged, fitted = (pl.read_csv(path, infer_schema_length=None) for path in (JUDGED, FITTED))
    return judged, fitted


def section(judged: pl.DataFrame, fitted: pl.DataFrame) -> str:
    """The part of the page."""
    means = judged.filter(pl.col("trace").is_null()).sort("more_hits", descending=True)
    sure = means.filter((pl.col("more_hits_lo") > 0) & (pl.col("p") < 0.05))
    first = means.row(0, named=True)
    return f"""## How sure it is

Points of hit rate above LRU with 1/{MIDDLE} of the experts, the mean over the traces with its 95% interval, which says
how far more of the same text could move it; on how many traces a policy is ahead; and the chance *p* of such a mean if
nothing differed, corrected for {means.height} policies (`sim policy judge` makes such tables of your traces).
{sure.height} policies are surely above LRU; `{first["policy"]}` is ahead of it on {first["ahead"]} of
{first["traces"]} traces.

{_judged(means)}

### On text that they were not chosen on

A parameter is chosen on the other traces and judged on the one left out (`sim policy fit`): points of hit rate above
the default, the mean over the traces, beside those of the best parameter in hindsight. {_in_short(fitted)}

{_fitted(fitted)}"""


def _rows(fitted: pl.DataFrame, name: str) -> list[dict[str, Any]]:
    return [row for row in fitted.iter_rows(named=True) if row["policy"].partition(":")[0] == name]


def _gain(fitted: pl.DataFrame, name: str) -> float:
    return fmean(100 * row["more_hits"] for row in _rows(fitted, name))


def _in_short(fitted: pl.DataFrame) -> str:
    nothing = [f"`{name}`" for name in FITS if _gain(fitted, name) < NOTHING]
    more = [f"`{name}` {signed(_gain(fitted, name))}" for name in FITS if _gain(fitted, name) >= NOTHING]
    said = [f"{' and '.join(nothing)} gain nothing, so their defaults are as good as what other text says"]
    return "; ".join([*said * bool(nothing), *[f"fitting gains {', '.join(more)} points"] * bool(more)]) + "."


def _judged(means: pl.DataFrame) -> str:
    rows = []
    for row in means.iter_rows(named=True):
        more, lo, hi = (signed(100 * row[f"more_hits{end}"]) for end in ("", "_lo", "_hi"))
        p = "<0.001" if row["p"] < LEAST_P else f"{row['p']:.3f}"
        rows.append((f"`{row['policy']}`", f"{more} ({lo} … {hi})", f"{row['ahead']} of {row['traces']}", p))
    return table(("policy", "points above LRU", "ahead on", "p"), rows)


def _fitted(fitted: pl.DataFrame) -> str:
    rows = []
    for name, values in FITS.items():
        worst = min(100 * row["more_hits"] for row in _rows(fitted, name))
        known = fmean(
            100 * (row["hindsight_hit_rate"] - row["hit_rate"] + row["more_hits"]) for row in _rows(fitted, name)
        )
        gains = (signed(one, 2) for one in (_gain(fitted, name), worst, known))
        rows.append((f"`{name}`", f"`{values}`", *gains))
    return table(("policy", "among", "fitted on the others", "its worst trace", "in hindsight"), rows)
