"""The page of the policy study, from the counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

import polars as pl

import flashmoe_sim.api as sim
from flashmoe_sim.io.sections import signed
from flashmoe_sim.policies.lookahead import Lookahead
from flashmoe_sim.prefetchers.table import PREFETCHERS
from reports.pages import table, wrapped
from reports.policy_study import held_out, seconds_page
from reports.policy_study.figures import STRONGEST
from reports.policy_study.measure import (
    FIRST_HALF,
    HINDSIGHT,
    MIDDLE,
    ONLINE,
    PREDICTORS,
    REVERSE,
    SHARES,
    against_lru,
    best_online,
    ranked,
)

NEAR = 2
WORTH_FROM = 0.01
SHARE = "an eighth of the experts"
ORDINALS = {2: "a half", 4: "a quarter", 8: "an eighth", 16: "a sixteenth"}


def markdown(results: pl.DataFrame, seconds: pl.DataFrame, judged: pl.DataFrame, fitted: pl.DataFrame) -> str:
    """README.md; every number in it is of these tables, or of the bundled traces themselves."""
    against = against_lru(results)
    policies, traces = len(ONLINE) + len(HINDSIGHT) - 1, against["trace"].n_unique()  # one is there twice
    return wrapped(f"""# Which eviction policy?

All {policies} policies that keep anything, on {traces} bundled traces, with banks of {ORDINALS[SHARES[0]]} to
{ORDINALS[SHARES[-1]]} of each layer's experts. `./dev report` makes this page, its figures and
[results.csv](results.csv) again; no number in it is typed.

## In short

{in_short(results, against)}

Hit rate is not speed: [in seconds](#in-seconds) the order is another one where the CPU computes misses. And these are
only the bundled traces: see [docs/background/why.md](../../docs/background/why.md).

To compare them on your own trace: `sim sweep YOUR-TRACE --bank 16..128 --policy all --contract atomic`

## What is compared

{traces_table(against)}

Banks are shares of a layer's experts, one bank for each layer, empty when the run begins. The contract is `atomic`: it
accepts prompts that request more than a bank holds, and only under it is the optimum defined with and without bypass
([which contract when](../../docs/background/why.md#which-contract-when)). Every policy has its default parameters, and
draws from a fixed seed; [docs/reference/policies.md](../../docs/reference/policies.md) has their rules.

## Ranking

Points of hit rate above LRU: the mean over the traces, and in brackets the worst and the best trace. *Way to min* is
the part of the mean distance from LRU to `min` that is closed, *misses* the mean change against LRU, both with
{SHARE}, by which the table is sorted.

{ranking_table(against, ONLINE)}

These know the future, or a part of it; `lookahead` sees {Lookahead().steps} steps. `static` and its kin are loaded
before the run, which is not a miss, so they can be above `min` on a short trace; *{FIRST_HALF}* is chosen by the
first half of the trace (`static:profile=first-N`).

{ranking_table(against, HINDSIGHT)}

![Hit rate against the bank for six policies, a panel for each trace](curves.png)

Each trace with {SHARE}, policies with hindsight above the line; colours end at ±{STRONGEST:.0f} points:

![Points of hit rate above LRU for every policy on every trace](points.png)

{held_out.section(judged, fitted)}

## Victims, admission, and how far ahead to see

`min:forced` evicts optimally but must install every miss; `min` may also decline to. So the way from LRU to
`min` has two parts, here in points of hit rate with {SHARE}. *Half by* is how many steps of the model evictions must
see ahead, going by LRU beyond them, to close half of the first part (`sim diagnose` finds it for any bank).

{gap_table(results, against)}

![Hit rate of policies that see 1 to 32 steps ahead, between LRU and min:forced](lookahead.png)

## What the contract changes

Misses of LRU with {SHARE}. *flat* (`sequential`) replays one reference at a time, as a cache simulator would; `runtime`
is what the patched runtime counts, where an *aliased* request is a hit with another expert's weights. A dash marks a
bank that cannot hold the largest call of the trace, which `runtime` and `protected` refuse. The last column is
`{REVERSE}`, in points of hit rate above `lru` (`atomic`): the experts of a call count as used in reverse, so that the
router's first choice is evicted last.

{contracts_table(results, against)}

Flat, a request is a reference: a prompt that names an expert several times in one call has more requests.

## Reading ahead

LRU with {SHARE} and a predictor, means over the traces: *saved* is how many of LRU's misses are no more, *read ahead*
how many experts are read for that, both as shares of LRU's misses. *Worth* is the ratio of the two on the traces
where as much as {_percent(WORTH_FROM)} is read ahead, and on the worst and the best of them;
below 1, more is read in total. `*` knows the future. `sim prefetch judge` compares predictors on your trace;
[docs/guides/prefetch.md](../../docs/guides/prefetch.md) says what they do.

{ahead_table(results)}

Naming a resident expert keeps it, so a predictor can change misses while it reads little or nothing.

{seconds_page.section(seconds)}""")


def in_short(results: pl.DataFrame, against: pl.DataFrame) -> str:
    """What to take from it, in sentences that are true whatever the numbers are."""
    ranks, middle = ranked(against), against.filter(pl.col("share") == MIDDLE)
    best = _rank(ranks, MIDDLE, best_online(ranks))
    lru = {share: _rank(ranks, share, "lru")["hit_rate"] * 100 for share in SHARES}
    least = min(of["min"]["points"] for _, of in _by_trace(against))
    online = middle.filter(pl.col("policy").is_in(ONLINE) & (pl.col("policy") != "lru"))
    leaders = online.sort("points", descending=True, maintain_order=True).group_by("trace", maintain_order=True).first()
    gains, firsts = leaders["points"].to_list(), sorted(leaders["policy"].unique())
    worst = online.group_by("policy").agg(pl.col("points").min())["points"]
    victims = _rank(ranks, MIDDLE, "min:forced")["closed"]
    half = [_steps(policy) for policy in results.filter(pl.col("question") == "half")["policy"]]
    flat = [row["flat"] for row in _flat(results, against)]
    known = [row for row in _ahead(results) if not PREFETCHERS[row["prefetch"]].hindsight]
    predictor = max(known, key=lambda row: row["saved"])
    twice, half_the_bank = lru[MIDDLE // 2] - lru[MIDDLE], lru[MIDDLE] - lru[2 * MIDDLE]
    return f"""- **Best without knowing the future:** `{best["policy"]}`, on the mean with {SHARE}:
{signed(best["points"])} points of hit rate over LRU's {lru[MIDDLE]:.1f}%, and {_change(-best["fewer"])} misses.
That is {_percent(best["closed"])} of the way to `min`, which is {best["ceiling"]:.1f} points above LRU on the mean and
{least:.1f} at least.
- **By trace:** the best of them is {min(gains):.1f} to {max(gains):.1f} points above LRU, and no more than {NEAR} on
{sum(gain <= NEAR for gain in gains)} of {len(gains)} traces. First on some trace:
{", ".join(f"`{name}`" for name in firsts)}. Of {len(worst)} policies beside LRU, {(worst > 0).sum()} are ahead of it on
every trace, and {(worst < 0).sum()} behind on at least one.
- **Memory against policy:** LRU gains {half_the_bank:.1f} points from {ORDINALS[2 * MIDDLE]} to {ORDINALS[MIDDLE]} of
the experts, and {twice:.1f} from {ORDINALS[MIDDLE]} to {ORDINALS[MIDDLE // 2]}; `{best["policy"]}` gives
{best["points"]:.1f} in the same memory.
- **Foresight:** {_percent(victims)} of the way from LRU to `min` is the choice of victims, the rest is declining
to admit experts that are used late. Seeing {min(half)} to {max(half)} steps ahead, by trace, closes half of the first
part.
- **Reading ahead:** of the predictors that do not know the future `{predictor["prefetch"]}` saves most:
{_percent(predictor["saved"])} of LRU's misses, for {predictor["read"] / predictor["saved"]:.1f} experts read ahead for
each of them.
- **Replays that know no calls** count {_percent(min(flat))} to {_percent(max(flat))} more misses for the same LRU."""


def traces_table(against: pl.DataFrame) -> str:
    """The traces and where they are from."""
    rows = []
    for name in against["trace"].unique(maintain_order=True):
        entry, trace = sim.catalog()[name], sim.load_trace(name)
        experts = max(trace.n_experts)
        numbers = (len(trace.trace.layers), experts, trace.trace.top_k, experts // MIDDLE, f"{trace.trace.tokens:,}")
        rows.append((name, *numbers, entry.origin.split(",")[0].split(" (")[0]))
    return table(("trace", "layers", "experts", "top-k", f"1/{MIDDLE} is", "tokens", "origin"), rows, left=(0, 6))


def ranking_table(against: pl.DataFrame, policies: Sequence[str]) -> str:
    """Policies, best first with an eighth of the experts, by banks."""
    ranks = ranked(against.filter(pl.col("policy").is_in(policies)))
    rows = []
    for policy in ranks.filter(pl.col("share") == MIDDLE)["policy"]:
        of = [_rank(ranks, share, policy) for share in SHARES]
        middle = of[SHARES.index(MIDDLE)]
        cells = [f"**{signed(one['points'])}** ({signed(one['worst'])} … {signed(one['best'])})" for one in of]
        rows.append(
            (
                f"`{policy}`" if policy != "lru" else "**`lru`**",
                *cells,
                _percent(middle["closed"]),
                _change(-middle["fewer"]),
            )
        )
    return table(("policy", *(f"1/{share}" for share in SHARES), "way to min", "misses"), rows)


def gap_table(results: pl.DataFrame, against: pl.DataFrame) -> str:
    """From LRU to min on every trace, in its two parts."""
    half = dict(results.filter(pl.col("question") == "half").select("trace", "policy").iter_rows())
    rows = []
    for trace, of in _by_trace(against):
        forced = of["min:forced"]["points"]
        rows.append(
            (
                trace,
                f"{100 * of['lru']['hit_rate']:.1f}%",
                f"{forced:.1f}",
                f"{of['min']['points'] - forced:.1f}",
                f"{100 * of['min']['hit_rate']:.1f}%",
                f"{_steps(half[trace]):,}" if trace in half else "—",
            )
        )
    return table(("trace", "lru", "victims", "admission", "min", "half by, steps"), rows)


def contracts_table(results: pl.DataFrame, against: pl.DataFrame) -> str:
    """Misses of LRU under every contract."""
    counted = {(row["trace"], row["contract"]): row for row in _question(results, "contracts")}
    reverse = {trace: of[REVERSE]["points"] for trace, of in _by_trace(against)}
    rows = []
    for row in _flat(results, against):
        trace = row["trace"]
        runtime, protected = counted.get((trace, "runtime")), counted.get((trace, "protected"))
        rows.append(
            (
                trace,
                f"{row['misses']:,}",
                f"{protected['misses']:,}" if protected else "—",
                f"{runtime['misses']:,}" if runtime else "—",
                f"{runtime['aliased_refs']:,}" if runtime else "—",
                f"{row['flat_misses']:,}",
                _change(row["flat"]),
                signed(reverse[trace], 2),
            )
        )
    head = ("trace", "atomic", "protected", "runtime", "aliased", "flat", "flat, change", "reverse, points")
    return table(head, rows)


def ahead_table(results: pl.DataFrame) -> str:
    """What predictors save and cost, most saved first."""
    rows = []
    for row in sorted(_ahead(results), key=lambda row: -row["saved"]):
        mark = "*" if PREFETCHERS[row["prefetch"]].hindsight else ""
        shares = (_percent(row["recall"]), _percent(row["precision"]), _change(row["saved"]), _change(row["read"]))
        worth = "—"
        if row["worth"]:
            each = [less / more for less, more in row["worth"]]
            overall = sum(less for less, _ in row["worth"]) / sum(more for _, more in row["worth"])
            worth = f"**{overall:.2f}** ({min(each):.2f} … {max(each):.2f})"
        rows.append((f"`{row['prefetch']}`{mark}", *(share.lstrip("+") for share in shares), worth))
    return table(("predictor", "recall", "precision", "saved", "read ahead", "worth"), rows)


def _ahead(results: pl.DataFrame) -> list[dict[str, Any]]:
    """Of every predictor: means over the traces, and what is saved and read on those if it reads enough to tell."""
    policies = _question(results, "policies")
    without = {row["trace"]: row["misses"] for row in policies if row["policy"] == "lru" and row["share"] == MIDDLE}
    found = []
    for name in PREDICTORS:
        rows = [row for row in _question(results, "ahead") if row["prefetch"] == name]
        saved = [1 - row["misses"] / without[row["trace"]] for row in rows]
        read = [row["prefetch_issued"] / without[row["trace"]] for row in rows]
        found.append(
            {
                "prefetch": name,
                "recall": fmean(row["prefetch_recall"] for row in rows),
                "precision": fmean(row["prefetch_precision"] for row in rows),
                "saved": fmean(saved),
                "read": fmean(read),
                "worth": [(less, more) for less, more in zip(saved, read, strict=True) if more >= WORTH_FROM],
            }
        )
    return found


def _flat(results: pl.DataFrame, against: pl.DataFrame) -> list[dict[str, Any]]:
    """LRU's misses on every trace for whole calls and flat, and how many per 1 more the latter are."""
    counted = {
        row["trace"]: row["misses"] for row in _question(results, "contracts") if row["contract"] == "sequential"
    }
    rows = []
    for trace, of in _by_trace(against):
        misses = of["lru"]["misses"]
        rows.append(
            {"trace": trace, "misses": misses, "flat_misses": counted[trace], "flat": counted[trace] / misses - 1}
        )
    return rows


def _by_trace(against: pl.DataFrame) -> Iterable[tuple[str, dict[str, dict[str, Any]]]]:
    """Every trace with its rows by policy, with an eighth of the experts."""
    middle = against.filter(pl.col("share") == MIDDLE)
    for (trace,), rows in middle.group_by("trace", maintain_order=True):
        yield str(trace), {row["policy"]: row for row in rows.iter_rows(named=True)}


def _question(results: pl.DataFrame, question: str) -> list[dict[str, Any]]:
    return results.filter(pl.col("question") == question).rows(named=True)


def _rank(ranks: pl.DataFrame, share: int, policy: str) -> dict[str, Any]:
    return ranks.row(by_predicate=(pl.col("share") == share) & (pl.col("policy") == policy), named=True)


def _steps(policy: str) -> int:
    return int(policy.partition("steps=")[2] or Lookahead().steps)


def _percent(value: float) -> str:
    return f"{round(100 * value) + 0:.0f}%"


def _change(value: float) -> str:
    return f"{signed(100 * value)}%"
