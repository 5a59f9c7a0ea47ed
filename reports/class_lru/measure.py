"""Every policy without hindsight against class-lru, in one bank for all layers, as llama.cpp plans its calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

import flashmoe_sim.api as sim
from flashmoe_sim.policies.base import EvictingPolicy
from flashmoe_sim.policies.table import POLICIES
from flashmoe_sim.trace.bundled import catalog

FOLDER = Path(__file__).parent
JUDGED = FOLDER / "judged.csv"
RULE = "class-lru"
SHARES = ("1/8", "1/4", "1/2")
TRACES = tuple(catalog())
STAMP = "hits-first-sorted"
# shared-class-lru leaves misses out for the CPU, which is no choice of victims.
JUDGES = tuple(
    name
    for name, kind in POLICIES.items()
    if issubclass(kind, EvictingPolicy) and not kind.hindsight and name not in (RULE, "shared-class-lru")
)


def planned(policy: str) -> str:
    """A policy in the engine's order of uses: of a call the hits, by first reference, then the misses, by number."""
    return f"{policy}:stamp={STAMP}"


def judge(policies: tuple[str, ...] = JUDGES) -> pl.DataFrame:
    """schema.JUDGED for each share of all experts: on each trace, and means over them; `share` is added."""
    asked: dict[str, Any] = {"contract": "atomic", "scope": "global", "against": planned(RULE)}
    tables = [
        sim.judge_policies(TRACES, bank=share, policy=[planned(one) for one in policies], **asked).select(
            pl.lit(share).alias("share"), pl.all()
        )
        for share in SHARES
    ]
    rows = pl.concat(tables).with_columns(pl.col("policy").str.replace(f":stamp={STAMP}", "", literal=True))
    return rows.with_columns(pl.selectors.float().round_sig_figs(6))


def load() -> pl.DataFrame:
    """The committed table of `judge`."""
    return pl.read_csv(JUDGED, infer_schema_length=None)
