"""The tables of `sim sweep`: rows of one trace, rows over several, and the gap between LRU and the optimum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from flashmoe_sim.io.sections import Column, Table, count, interval, percent, speed, table
from flashmoe_sim.io.sizes import plain, size
from flashmoe_sim.question import bank_meaning, slots_hint

if TYPE_CHECKING:
    from flashmoe_sim.policies.base import Policy
    from flashmoe_sim.residency.workload import Setup, Workload
    from flashmoe_sim.sweep.left_out import LeftOut

Row = dict[str, Any]

VARYING = (("predictor", "prefetch"), ("machine", "machine"), ("execution", "execution"))
NAMED_TRACES = 8
DISPENSABLE = ("memory", "evicted", "misses", "hits", "read/tok", "range", "ahead/tok", "best %")


def of_trace(
    workload: Workload, rows: Sequence[Row], setups: Sequence[Setup], left_out: Sequence[LeftOut], contract: str
) -> list[Table]:
    """The rows of one trace, and the gap between LRU and the optimum.

    A column with equal values moves to the heading or the caption.
    """
    trace, timed = workload.trace, rows[0]["machine"] is not None
    columns = _who(rows, contract)
    if not timed:
        columns += [_count("hits", "hits"), _count("misses", "misses"), _count("evicted", "evictions")]
    columns += [
        ("hit %", "right", lambda row: percent(row["hit_rate"])),
        ("best %", "right", lambda row: percent(row["best_hit_rate"])),
        ("read/tok", "right", lambda row: size(row["bytes_per_token"])),
    ]
    if any(row["prefetch_issued"] for row in rows):
        columns.append(("ahead/tok", "right", _ahead_per_token))
    columns.append(("memory", "right", lambda row: size(row["resident_bytes"])))
    if timed:
        columns += [("tok/s", "right", lambda row: speed(row["tok_s"])), ("90% interval", "right", _interval)]
    model = workload.geometry.name if workload.geometry else "unknown model, so no bytes: give --model"
    title = f"{trace.name}: {rows[0]['tokens']:,} tokens, {len(trace.layers)} layers ({model}){_machine(rows)}"
    caption, hint = _caption(rows, setups, contract), slots_hint(trace, contract)
    policies = {setup.policy.spec: setup.policy for setup in setups}
    if any(policies[row["policy"]].preloaded or policies[row["policy"]].reads_profile is not None for row in rows):
        caption += "; static and warm banks and hot profiles are loaded before the run"
    if any(row["prefetch_issued"] for row in rows):
        caption += "; read/tok excludes prefetches and installs between steps"
    if any(row["prefetch_issued"] and row["hit_rate"] > (row["best_hit_rate"] or 1) for row in rows):
        caption += ", with which a bank can exceed the best"
    caption += _alike(rows, "evictions")
    caption += _left_out([one for one in left_out if one.trace in (None, trace.name)], rows)
    rules = {rule for setup in setups if (rule := setup.policy.minor_rule) is not None}
    nothing = [f"{rule.kind}@{plain(rule.limit)}: {why}" for rule in rules if (why := rule.why_none(trace.top_k))]
    caption = "\n".join(filter(None, (caption, *sorted(nothing), hint)))
    gap = [] if timed or _varies(rows, "prefetch") else _gap(rows, policies, contract)
    return [table(columns, rows, title=title, caption=caption, dispensable=DISPENSABLE), *gap]


def of_several(
    rows: Sequence[Row], traces: Sequence[str], setups: Sequence[Setup], left_out: Sequence[LeftOut], contract: str
) -> Table:
    """One table for all traces; rows: schema.OF_SEVERAL_TRACES."""
    timed = rows[0]["machine"] is not None
    columns = _who(rows, contract)
    if len({row["traces"] for row in rows}) > 1:
        columns.append(_count("traces", "traces"))
    columns += [
        ("hit %", "right", lambda row: percent(row["hit_rate"])),
        ("best %", "right", lambda row: percent(row["best_hit_rate"])),
    ]
    if timed:
        columns.append(("tok/s", "right", lambda row: speed(row["tok_s"])))
        columns.append(("range", "right", lambda row: _range(row["tok_s_min"], row["tok_s_max"], speed)))
    else:
        columns.append(("range", "right", lambda row: _range(row["hit_rate_min"], row["hit_rate_max"], percent)))
    what = "speed" if timed else "hit rate"
    caption = _caption(rows, setups, contract) + f"; means over the traces; range: the lowest and highest {what}"
    if len({(row["bank"], row["machine"]) for row in rows}) < len(rows):
        columns.append(("wins", "right", lambda row: count(row["wins"])))
        caption += (
            f"; wins: traces on which no other row of this bank {'and machine ' if timed else ''}has a higher {what}"
        )
        if any(row["wins"] is None for row in rows):
            caption += " (-: knows the future)"
    caption += _alike(rows, "hit_rate_min") + _left_out(left_out, rows)
    names = "; ".join([*traces[:NAMED_TRACES], *(["..."] if len(traces) > NAMED_TRACES else [])])
    title = f"{len(traces)} traces: {names}{_machine(rows)}"
    return table(columns, rows, title=title, caption=caption, dispensable=DISPENSABLE)


def _who(rows: Sequence[Row], contract: str) -> list[Column]:
    """The columns that name a row; * marks a contract other than the requested one."""
    columns: list[Column] = [
        ("bank", "right", lambda row: row["bank"]),
        ("policy", "left", lambda row: row["policy"] + "*" * (row["contract"] != contract)),
    ]
    own = [row for row in rows if row["contract"] == contract]
    for heading, name in VARYING:
        if _varies(own if name == "prefetch" else rows, name):
            columns.append((heading, "left", itemgetter(name)))
    return columns


def _varies(rows: Sequence[Row], name: str) -> bool:
    return len({row[name] for row in rows}) > 1


def _count(heading: str, name: str) -> Column:
    return heading, "right", lambda row: count(row[name])


def _ahead_per_token(row: Row) -> str:
    return size(row["prefetch_bytes"] / row["tokens"] if row["tokens"] and row["prefetch_bytes"] is not None else None)


def _range(lowest: float | None, highest: float | None, shown: Callable[[float | None], str]) -> str:
    return "-" if lowest is None else f"{shown(lowest)} to {shown(highest)}"


def _interval(row: Row) -> str:
    if row["bottleneck"] == "does-not-fit":
        return "does not fit"
    return interval(row["tok_s_lo"], row["tok_s_hi"])


def _machine(rows: Sequence[Row]) -> str:
    machine = rows[0]["machine"]
    return "" if machine is None or _varies(rows, "machine") else f" on {machine}"


def _caption(rows: Sequence[Row], setups: Sequence[Setup], contract: str) -> str:
    own = [row for row in rows if row["contract"] == contract]
    caption = f"bank: {bank_meaning(setups[0])}; contract {contract}"
    if own and not _varies(own, "prefetch") and own[0]["prefetch"] != "none":
        caption += f", prefetch {own[0]['prefetch']}"
    if rows[0]["execution"] is not None and not _varies(rows, "execution"):
        caption += f", {rows[0]['execution']}"
    if any(row["best_hit_rate"] is not None for row in rows):
        under = "by reference" if contract == "sequential" else "for whole calls"
        caption += f"; best: no policy hits more (min with bypass, {under})"
    if any(setup.policy.minor_rule is not None for setup in setups):
        caption += "; minor: cheaper misses, and what they do to the text is not known"
    if len(own) < len(rows):
        caption += "; *: under atomic"
    return caption


def _alike(rows: Sequence[Row], other: str) -> str:
    """Policies with equal hit rates, and equal values of another column, in every row; empty if there are none.

    Not if nothing was evicted, where all are equal.
    """
    found: dict[frozenset[Any], list[str]] = {}
    for name in dict.fromkeys(row["policy"] for row in rows):
        own = [row for row in rows if row["policy"] == name]
        if any(row.get("evictions", 1) for row in own):
            kept = ("bank", "machine", "prefetch", "hit_rate", other)
            found.setdefault(frozenset(tuple(row[key] for key in kept) for row in own), []).append(name)
    groups = [f"{', '.join(names[:-1])} and {names[-1]}" for names in found.values() if len(names) > 1]
    return "".join(f"; {names} evict alike: equal in every row" for names in groups)


def _left_out(left_out: Sequence[LeftOut], rows: Sequence[Row]) -> str:
    """The banks and policies that lack rows; "in part" if they have others."""

    def listed(name: str, question: Sequence[str | None]) -> str:
        have = {row[name] for row in rows}
        names = {one: str(one) for one in question}
        return ", ".join(f"{name} in part" if one in have else name for one, name in names.items())

    banks = listed("bank", [one.bank for one in left_out if one.bank is not None])
    policies = listed("policy", [one.policy for one in left_out if one.bank is None])
    named = [*([f"bank {banks}"] if banks else []), *([policies] if policies else [])]
    return f"; left out: {'; '.join(named)}" if named else ""


def _gap(rows: Sequence[Row], policies: dict[str, Policy], contract: str) -> list[Table]:
    """The gap between LRU and the optimum in each bank, if the rows have it: by victims, and by admission."""
    from flashmoe_sim.policies.base import EvictingPolicy

    cells = []
    for bank in dict.fromkeys(row["bank"] for row in rows):
        of_bank = {row["policy"]: row for row in rows if row["bank"] == bank}
        if not {"lru", "min", "min:forced"} <= of_bank.keys():
            return []
        lru, forced, best = (of_bank[name]["misses"] for name in ("lru", "min:forced", "min"))
        online = [
            row
            for name, row in of_bank.items()
            if isinstance(policies[name], EvictingPolicy) and not policies[name].hindsight
        ]
        first = min(online, key=lambda row: row["misses"])
        optimum = of_bank["min"]["contract"]
        gap = lru - best
        parts = [percent(part / gap if gap else None) for part in (lru - forced, forced - best, lru - first["misses"])]
        points = f"{100 * gap / of_bank['lru']['requests']:.1f}"
        cells.append((bank, percent(of_bank["lru"]["hit_rate"]), points, *parts[:2], first["policy"], parts[2]))
    columns = [("bank", "right"), ("lru %", "right"), ("to min", "right"), ("victims %", "right")]
    columns += [("admitting %", "right"), ("best without hindsight", "left"), ("closes %", "right")]
    caption = (
        "to min: the gap to the optimum in points of hit rate, divided into better victims (min:forced) and selective "
        f"admission (min, under {optimum}); the rest under {contract}"
    )
    return [Table(columns, cells, title="From lru to the optimum", caption=caption)]
