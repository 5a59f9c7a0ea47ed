"""The page of the policy study, from the counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

import flashmoe_sim.api as sim
from flashmoe_sim.prefetchers.table import PREFETCHERS
from reports.policy_study.measure import MIDDLE, PREDICTORS, REVERSE, SHARES
from reports.policy_study.ranking import HINDSIGHT, ONLINE, against_lru, best_online, ranked

NEAR = 2
ORDINALS = {2: "a half", 4: "a quarter", 8: "an eighth", 16: "a sixteenth"}


def markdown(results: pl.DataFrame) -> str:
    """README.md; every number in it is of `results`, or of the bundled traces themselves."""
    against = against_lru(results)
    parts = [
        "# Which eviction policy?",
        "",
        f"All {len(ONLINE) + len(HINDSIGHT) - 1} policies that keep anything, on all {against['trace'].n_unique()} bundled "
        "traces, with banks of a sixteenth to a half of each layer's experts.",
        "`./dev report` makes this page, its figures and [results.csv](results.csv) anew; no number in it is typed.",
        "",
        "## In short",
        "",
        *(f"- {sentence}" for sentence in in_short(results, against)),
        "",
        "Hit rate is not speed, and these are the bundled traces and nothing else: see [docs/why.md](../../docs/why.md).",
        "`sim sweep YOUR-TRACE --bank 16..128 --policy all --contract atomic` compares them on yours.",
        "",
        "## What is compared",
        "",
        *traces_table(against),
        "",
        "Banks are shares of a layer's experts, one bank for each layer, empty when the run begins. The contract is `atomic`:",
        "it takes prompts that ask for more than a bank holds, and only there is the optimum defined with bypass and without",
        "([which contract when](../../docs/why.md#which-contract-when)). Every policy has its default parameters, and draws",
        "from a fixed seed; [docs/policies.md](../../docs/policies.md) has their rules.",
        "",
        "## Ranking",
        "",
        "Points of hit rate above LRU: the mean over the traces, and in brackets the worst and the best trace. *Way to min*",
        f"is the part of the mean distance from LRU to `min`, *misses* the mean change against LRU, both with {_share()}.",
        "",
        *ranking_table(against, ONLINE),
        "",
        "These know the future, or a part of it. Of them `static` and its kin are loaded before the run, which is no miss, so",
        "that they can be above `min` on a short trace; *static, first half* is chosen by the first half of the trace.",
        "",
        *ranking_table(against, HINDSIGHT),
        "",
        "![Hit rate against the bank for six policies, a panel for each trace](curves.png)",
        "",
        f"Each trace with {_share()}, policies with hindsight above the line; colours end at ±6 points:",
        "",
        "![Points of hit rate above LRU for every policy on every trace](points.png)",
        "",
        "## Where LRU loses: victims, admission, and how far ahead to see",
        "",
        "`min:forced` evicts perfectly but must install every miss; `min` may also decline to. So the way from LRU to `min`",
        "has two parts, here in points of hit rate. *Half by* is the lookahead, in steps of the model, with which evictions",
        "by the known future, and LRU beyond it, close half of the first part.",
        "",
        *gap_table(results, against),
        "",
        "![Hit rate of policies that see 1 to 32 steps ahead, between LRU and min:forced](lookahead.png)",
        "",
        "## What the contract changes",
        "",
        f"Misses of LRU with {_share()}. *Flat* replays one reference at a time, as a cache simulator would, and",
        "*runtime* is what the patched runtime counts, where an aliased request is a hit with another expert's weights. A dash",
        "marks a bank that cannot hold the largest call of the trace, which those contracts refuse. The last column is `lru`",
        "with the experts of a call counted as used in reverse, so that the router's favourite is the last to go.",
        "",
        *contracts_table(results, against),
        "",
        "Flat, requests are references: traces with prompts ask for an expert several times in one call, and have more.",
        "",
        "## Reading ahead",
        "",
        f"LRU with {_share()} and a predictor, means over the traces. *Worth* is how many misses are saved for each",
        "expert read ahead, with the worst and the best trace; below 1 more is read in all. `*` knows the future.",
        "",
        *ahead_table(results),
        "",
        "Naming a resident expert keeps it, so that a predictor can change misses without reading anything.",
    ]
    return "\n".join(parts) + "\n"


def in_short(results: pl.DataFrame, against: pl.DataFrame) -> list[str]:
    """What to take from it, in sentences that are true whatever the numbers are."""
    ranks, middle = ranked(against), against.filter(pl.col("share") == MIDDLE)
    best, traces = best_online(ranks), middle["trace"].n_unique()
    top = ranks.row(by_predicate=(pl.col("share") == MIDDLE) & (pl.col("policy") == best), named=True)
    lru = {share: _rank(ranks, share, "lru")["hit_rate"] * 100 for share in SHARES}
    low, high = middle.filter(pl.col("policy") == "min")["points"].min(), top["ceiling"]
    online = middle.filter(pl.col("policy").is_in(ONLINE) & (pl.col("policy") != "lru"))
    leaders = online.sort("points", descending=True, maintain_order=True).group_by("trace", maintain_order=True).first()
    near = int((leaders["points"] <= NEAR).sum())
    firsts = _names(sorted(leaders["policy"].unique()))
    worst = online.group_by("policy").agg(pl.col("points").min())["points"]
    victims = middle.filter(pl.col("policy") == "min:forced")["points"].mean() / top["ceiling"]
    half = [_steps(policy) for policy in results.filter(pl.col("question") == "half")["policy"]]
    flat = [row["flat"] for row in _flat(results, against)]
    predictor = max(
        (row for row in _ahead(results) if not PREFETCHERS[row["prefetch"]].hindsight), key=lambda row: row["saved"]
    )
    return [
        f"**The best online policy is `{best}`** on the mean with {_share()}: {top['points']:+.1f} points of hit rate "
        f"over LRU's {lru[MIDDLE]:.1f} %, {_change(-top['fewer'])} misses. It closes {top['closed']:.0%} of the distance to "
        f"`min`, which is {high:.1f} points on the mean and {low:.1f} at least.",
        f"**No policy is right for every trace:** the best online one gains {leaders['points'].min():.1f} to "
        f"{leaders['points'].max():.1f} points, on {near} of {traces} traces no more than {NEAR}; first on some trace "
        f"{'is' if ',' not in firsts and ' and ' not in firsts else 'are'} {firsts}. Of {len(worst)} online policies beside "
        f"LRU, {int((worst > 0).sum())} are ahead of it on every trace and {int((worst < 0).sum())} behind on at least one.",
        f"**Memory moves more than policy, where you have it:** from {_share()} to {ORDINALS[MIDDLE // 2]} LRU gains "
        f"{lru[MIDDLE // 2] - lru[MIDDLE]:.1f} points, from {ORDINALS[2 * MIDDLE]} to {_share()} "
        f"{lru[MIDDLE] - lru[2 * MIDDLE]:.1f}; the best change of online policy {top['points']:.1f}.",
        f"**What is missing is foresight:** {victims:.0%} of the way from LRU to `min` is the choice of victims, the rest "
        f"not admitting what is used late. To see {min(half)} to {max(half)} steps ahead closes half of the first part.",
        f"**Reading ahead:** of the predictors that do not know the future `{predictor['prefetch']}` saves most, "
        f"{predictor['saved']:.0%} of LRU's misses, and reads {predictor['read']:.1f} experts for each miss saved.",
        f"**Replays that know no calls** count {min(flat):.0%} to {max(flat):.0%} more misses for the same LRU.",
    ]


def traces_table(against: pl.DataFrame) -> list[str]:
    """The traces and where they are from."""
    rows = []
    for name in against["trace"].unique(maintain_order=True):
        entry, trace = sim.catalog()[name], sim.load_trace(name)
        experts = max(trace.n_experts)
        numbers = (len(trace.trace.layers), experts, trace.trace.top_k, experts // MIDDLE, f"{trace.trace.tokens:,}")
        rows.append((name, *numbers, entry.origin.split("; ")[0]))
    return _table(("trace", "layers", "experts", "top-k", f"1/{MIDDLE} is", "tokens", "origin"), rows, left=(0, 6))


def ranking_table(against: pl.DataFrame, policies: Sequence[str]) -> list[str]:
    """Policies, best first with an eighth of the experts, by banks."""
    ranks = ranked(against.filter(pl.col("policy").is_in(policies)))
    rows = []
    for policy in ranks.filter(pl.col("share") == MIDDLE)["policy"]:
        of = [_rank(ranks, share, policy) for share in SHARES]
        middle = of[SHARES.index(MIDDLE)]
        cells = [f"**{_points(one['points'])}** ({_points(one['worst'])} … {_points(one['best'])})" for one in of]
        rows.append(
            (
                f"`{policy}`" if policy != "lru" else "**`lru`**",
                *cells,
                f"{middle['closed'] + 0.0:.0%}",
                _change(-middle["fewer"]),
            )
        )
    return _table(("policy", *(f"1/{share}" for share in SHARES), "way to min", "misses"), rows)


def gap_table(results: pl.DataFrame, against: pl.DataFrame) -> list[str]:
    """From LRU to min on every trace, in its two parts."""
    half = dict(results.filter(pl.col("question") == "half").select("trace", "policy").iter_rows())
    rows = []
    for trace, of in _by_trace(against):
        forced = of["min:forced"]["points"]
        rows.append(
            (
                trace,
                f"{of['lru']['hit_rate']:.1%}",
                f"{forced:.1f}",
                f"{of['min']['points'] - forced:.1f}",
                f"{of['min']['hit_rate']:.1%}",
                f"{_steps(half[trace]):,}" if trace in half else "—",
            )
        )
    return _table(("trace", "lru", "victims", "admission", "min", "half by, steps"), rows)


def contracts_table(results: pl.DataFrame, against: pl.DataFrame) -> list[str]:
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
                f"{row['flat']:+.1%}",
                f"{reverse[trace] + 0.0:+.2f}",
            )
        )
    head = ("trace", "atomic", "protected", "runtime", "aliased", "flat", "flat, change", "reverse, points")
    return _table(head, rows)


def ahead_table(results: pl.DataFrame) -> list[str]:
    """What predictors save and cost, most saved first."""
    rows = []
    for row in sorted(_ahead(results), key=lambda row: -row["saved"]):
        worth = row["worth"]
        spread = f"{sum(worth) / len(worth):.2f} ({min(worth):.2f} … {max(worth):.2f})" if worth else "—"
        mark = "*" if PREFETCHERS[row["prefetch"]].hindsight else ""
        rows.append(
            (
                f"`{row['prefetch']}`{mark}",
                f"{row['recall']:.0%}",
                f"{row['precision']:.0%}",
                f"{row['saved']:.1%}",
                spread,
            )
        )
    return _table(("predictor", "recall", "precision", "misses saved", "worth"), rows)


def _ahead(results: pl.DataFrame) -> list[dict[str, Any]]:
    """Of every predictor: means over the traces, and the worth on those where it reads anything."""
    policies = _question(results, "policies")
    without = {row["trace"]: row["misses"] for row in policies if row["policy"] == "lru" and row["share"] == MIDDLE}
    found = []
    for name in PREDICTORS:
        rows = [row for row in _question(results, "ahead") if row["prefetch"] == name]
        saved = [without[row["trace"]] - row["misses"] for row in rows]
        issued = [row["prefetch_issued"] for row in rows]
        found.append(
            {
                "prefetch": name,
                "recall": sum(row["prefetch_recall"] for row in rows) / len(rows),
                "precision": sum(row["prefetch_precision"] for row in rows) / len(rows),
                "saved": sum(less / without[row["trace"]] for less, row in zip(saved, rows, strict=True)) / len(rows),
                "read": sum(issued) / sum(saved) if sum(saved) else float("nan"),
                "worth": [less / read for less, read in zip(saved, issued, strict=True) if read],
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
    return int(policy.partition("steps=")[2] or 16)


def _share() -> str:
    return f"{ORDINALS[MIDDLE]} of the experts"


def _points(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f}"


def _change(value: float) -> str:
    return f"{round(100 * value, 1) + 0.0:+.1f} %"


def _names(names: Sequence[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]], *, left: Sequence[int] = (0,)) -> list[str]:
    rule = "|".join("---" if column in left else "---:" for column in range(len(head)))
    lines = (" | ".join(map(str, row)) for row in rows)
    return [f"| {' | '.join(head)} |", f"|{rule}|", *(f"| {line} |" for line in lines)]
