"""The replays of the policy study, and the file of their counts."""

from __future__ import annotations

from pathlib import Path

import polars as pl

import flashmoe_sim.api as sim
from flashmoe_sim.ceilings.gap import gap_to_min, half_gap
from flashmoe_sim.policies.table import POLICIES, parse_policy
from flashmoe_sim.prefetchers.table import WITHOUT_FILE
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import FIXED_SLOT_CONTRACTS
from flashmoe_sim.sweep.plan import plan_setup
from flashmoe_sim.trace.bundled import catalog

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.csv"

SHARES = (16, 8, 4, 2)
MIDDLE = 8
# The bundled traces of which a bank of an eighth holds more than one token's experts: elsewhere all policies are alike.
TRACES = tuple(name for name, entry in catalog().items() if entry.experts // MIDDLE > entry.top_k)
STEPS = (1, 2, 4, 8, 16, 32)
REVERSE = "lru:stamp=reverse"
FIRST_HALF = "static, first half"
CONTRACTS = ("runtime", "protected", "sequential")
COMPARED = tuple(name for name in POLICIES if name != "demand")
PREDICTORS = tuple(name for name in WITHOUT_FILE if name != "none")
COLUMNS = (
    *("trace", "trace_id", "policy", "contract", "prefetch", "bank", "calls", "requests", "hits", "misses"),
    *("evictions", "bypassed", "aliased_refs", "bytes_read"),
    *("prefetch_issued", "prefetch_useful", "prefetch_precision", "prefetch_recall"),
)
ONLINE = tuple(name for name in COMPARED if not POLICIES[name].hindsight)
HINDSIGHT = (*(name for name in COMPARED if POLICIES[name].hindsight), FIRST_HALF)


def lookahead(steps: int) -> str:
    """How the table names the lookahead of so many steps."""
    return parse_policy(f"lookahead-{steps}").spec


def measure(name: str) -> pl.DataFrame:
    """All counts of one bundled trace: a row for each replay.

    question: `policies`, `contracts`, `half` (the lookahead that closes half of LRU's gap to min:forced) or `ahead`
        (LRU with a predictor). share: the bank is one expert in so many of its layer. hit_rate: hits / requests.
        The other columns are those of docs/reference/columns.md.

    A contract under which the bank cannot serve the trace's largest call has no row.
    """
    trace = sim.load_trace(name)
    experts = max(trace.n_experts)
    middle = experts // MIDDLE
    parts = []

    def add(question: str, share: int, table: pl.DataFrame) -> None:
        parts.append(table.select(pl.lit(question).alias("question"), pl.lit(share, pl.Int64).alias("share"), *COLUMNS))

    for share in SHARES:
        first_half = f"static:profile=first-{int(trace.trace.steps.max() + 1) // 2}"
        table = sim.sweep(trace, bank=experts // share, policy=[*COMPARED, first_half, REVERSE], contract="atomic")
        add("policies", share, table.with_columns(pl.col("policy").replace({first_half: FIRST_HALF})))
    more = [lookahead(steps) for steps in STEPS if lookahead(steps) not in COMPARED]
    add("policies", MIDDLE, sim.sweep(trace, bank=middle, policy=more, contract="atomic"))
    largest = max(int(pool.requests.max()) for pool in trace.layer_pools)
    for contract in CONTRACTS:
        if contract not in FIXED_SLOT_CONTRACTS or largest <= middle:
            add("contracts", MIDDLE, sim.replay(trace, bank=middle, contract=contract))
    setup = plan_setup(middle, contract="atomic")
    half = half_gap(trace, setup, gap_to_min(trace, replay(trace, setup)))
    if half is not None:
        table = sim.replay(trace, bank=middle, policy=f"lookahead:steps={half.steps}", contract="atomic")
        add("half", MIDDLE, table)
    for predictor in PREDICTORS:
        add("ahead", MIDDLE, sim.replay(trace, bank=middle, contract="atomic", prefetch=predictor))
    return pl.concat(parts).with_columns((pl.col("hits") / pl.col("requests")).alias("hit_rate"))


def load() -> pl.DataFrame:
    """The committed counts."""
    return pl.read_csv(RESULTS, infer_schema_length=None, schema_overrides={"bank": pl.String})


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
