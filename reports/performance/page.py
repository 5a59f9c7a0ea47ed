"""The page of the performance report, from its timings."""

from __future__ import annotations

import statistics
from typing import Any

from reports.pages import table, wrapped
from reports.performance.measure import (
    CONTRACTS,
    DEFAULT,
    LAYERS,
    PEER_TOKENS,
    ROUNDS,
    SIZES,
    SLOTS,
    SWEEP_LAYERS,
    SWEEP_TOKENS,
    SWEPT,
    TOKENS,
    WORKERS,
    commands,
)

PEER = "libCacheSim"
PLAIN = "plain Python"
MEMORY = "reading the references from memory"
BOTH = CONTRACTS[:2]
TIMES = "\N{MULTIPLICATION SIGN}"


def markdown(results: dict[str, Any]) -> str:
    """README.md; every number in it is of `results`."""
    machine = results["machine"]
    swept = ", ".join(map(str, SWEPT))
    return wrapped(f"""# How fast is it?

`python -m reports.performance` measures everything on this page again and writes it, its figures and
[results.json](results.json); no number in it is typed. The contract is the default, `{DEFAULT}`; others are beside
it. Readers and the timeline have [a table of their own](../measured/README.md#speed-of-the-program).

Measured {machine["date"]} on {machine["processor"]}, {machine["cores"]} cores, {machine["system"]}, Python
{machine["python"]}. Load average {machine["load_before"]:.1f} at the beginning and {machine["load_after"]:.1f} at the
end{_busy(machine)}. Times are CPU time of one thread unless they are by the clock: the median of {ROUNDS} rounds
in which all that is compared takes turns, after one that is not counted. Ratios are within one run, and the trace is
synthetic: top-8 of 256 experts, skewed, drifting and sticky.

## In short

{in_short(results)}

## Whole commands

{commands_table(commands())}

## Against other programs

LRU with {SLOTS} slots on {PEER_TOKENS:,} tokens of one layer. `{PEER}` replays one reference at a time, as `sequential`
does. `{PLAIN}` is an `OrderedDict` that protects the experts of a call, the rule of the patched runtime's cache
estimator; that program itself is not run here, but [its output](../../data/README.md) is reproduced by a test. The last
row is the least that any replay can take: one sum over as many bytes as the references have, from memory.

{peers_table(results)}

![References a second](peers.png)

## How cost grows

LRU with {swept} slots, all in one walk, by tokens ({LAYERS[0]} layers) and by layers ({TOKENS[0]:,} tokens); and with
{SIZES[0]} to {SIZES[-1]} sizes from 16 to 256 slots ({TOKENS[1]:,} tokens, {LAYERS[0]} layers). Nanoseconds a
reference of the trace, for all sizes together:

{growth_table(results)}

![Time of a reference by tokens, layers and sizes](growth.png)

Under `protected` and `atomic` one stack pass counts every size. Under `runtime` an expert can lose its slot to another
of its own call, which no list of all sizes can represent. The sizes share the last uses of experts, so that a hit costs
the same for any number of sizes, and a miss costs only the sizes that have it.

## Policies

One size of {SLOTS} slots, {TOKENS[1]:,} tokens of one layer, nanoseconds a reference. Policies other than LRU have no
walk shared by sizes under these contracts: each size takes as long again.

{policies_table(results)}

## Threads and clusters

`lru`, `static` and `min` at {swept} slots on {SWEEP_LAYERS} layers, gathered and replayed, by the clock. The processes
of a cluster (`--cluster local:2`) received the trace in each sweep. *Times one* is how much faster two are than one, in
the median and in the best round of each, which load disturbs least. A short sweep spends much of its time in Python,
where threads wait for each other.

{workers_table(results)}

## Many tasks

What a sweep costs beside its replays: 1,000 tasks on a trace of four steps, 10,000 rows appended to the ledger one by
one, and 1,000 configurations (sizes and policies on eight included traces, under `{DEFAULT}`; banks too small for a
trace's largest call are left out).

{tasks_table(results)}
""")


def in_short(results: dict[str, Any]) -> str:
    """The headline ratios, each under the default contract first."""
    peers = _peers(results)
    other = [name for name in CONTRACTS if name != DEFAULT]
    one = {contract: peers[PEER] / peers[f"one size, {contract}"] for contract in CONTRACTS}
    sizes = {contract: _ns(results, "tokens", contract)[-1] for contract in BOTH}
    threads = [_workers(results, "threads", DEFAULT, tokens) for tokens in SWEEP_TOKENS]
    short, long = (one["best_wall_s"] / two["best_wall_s"] for one, two in threads)
    return f"""- **One LRU size** is {_times(one[DEFAULT])} libCacheSim's speed under `{DEFAULT}`; \
{", ".join(f"{_times(one[name])} under `{name}`" for name in other)}.
- **Against plain Python**, one size under `{DEFAULT}`: {_times(peers[PLAIN] / peers[f"one size, {DEFAULT}"])};
`runtime` {_times(peers[PLAIN] / peers["one size, runtime"])}.
- **Five sizes in one walk** take {sizes[DEFAULT]:.1f} ns a reference under `{DEFAULT}` and {sizes["runtime"]:.1f}
under `runtime`, {sizes["runtime"] / sizes["protected"]:.2f} times the time of `protected`.
- **Memory** could deliver references {_times(peers[f"one size, {DEFAULT}"] / peers[MEMORY])} as fast as one size is
replayed under `{DEFAULT}`: replays are limited by what they compute.
- **Two threads** are {long:.2f} times one by the clock (best rounds) in a sweep of {threads[1][0]["best_wall_s"]:.1f}
s, {short:.2f} times in one of {threads[0][0]["best_wall_s"]:.1f} s."""


def commands_table(timings: dict[str, Any]) -> str:
    """Seconds of whole commands now and at an earlier commit."""
    rows = [
        (
            f"`{row['command']}`",
            *(f"{row[when]['first_cpu_s']:.1f}" for when in ("before", "now")),
            *(f"{row[when]['later_cpu_s']:.2f}" for when in ("before", "now")),
            f"{row['now']['least_s']:.2f}",
            f"{row['later_goal_s']:g}",
        )
        for row in timings["rows"]
    ]
    head = ("", "first, before", "first, now", "later, before", "later, now", "later, by the clock", "goal")
    return f"""Seconds of CPU time of a process, before (commit {timings["before"]}) and now
({timings["date"]}) in turn: the first run with an empty cache of compiled kernels, and the median of
{timings["rounds"]} later ones. By the clock it is the least of these; the load average was {timings["load"]:.1f} at the
end. The goal is by the clock, on an idle machine.
`python -m tests.benchmarks.bench_startup FOLDER` measures this again, beside the earlier checkout in a folder.

{table(head, rows)}

{_replays(timings["replays"])}"""


def _replays(rows: list[dict[str, Any]]) -> str:
    """The speeds of replays beside the earlier commit's."""
    ratios = sorted(
        (
            row["before_ns"] / row["now_ns"],
            row["amount"] if row["of"] == "peers" else f"{row['of']} {row['amount']} {row['contract']}",
        )
        for row in rows
        if row["amount"] not in (PLAIN, PEER, MEMORY)
    )
    least, slowest = ratios[0]
    return f"""The {len(ratios)} replays of the tables below, measured in the same way, are {least:.2f} to
{ratios[-1][0]:.2f} times as fast as before, {statistics.median(ratio for ratio, _ in ratios):.2f} in the median;
`{slowest}` lost most."""


def peers_table(results: dict[str, Any]) -> str:
    """Every program, the slowest first."""
    peers = _peers(results)
    rows = [
        (
            name,
            f"{ns:,.2f}",
            f"{1e3 / ns:,.0f}" if ns < 10 else f"{1e3 / ns:.1f}",
            _times(peers[PEER] / ns),
            _times(peers[PLAIN] / ns),
        )
        for name, ns in sorted(peers.items(), key=lambda item: -item[1])
    ]
    return table(("", "ns a reference", "million a second", f"against {PEER}", f"against {PLAIN}"), rows)


def growth_table(results: dict[str, Any]) -> str:
    """Tokens, layers and sizes under both contracts."""
    rows = []
    for of, amounts in (("tokens", TOKENS), ("layers", LAYERS), ("sizes", SIZES)):
        by_contract = {contract: _ns(results, of, contract) for contract in BOTH}
        for number, amount in enumerate(amounts):
            first, second = (by_contract[contract][number] for contract in ("protected", "runtime"))
            rows.append((of, f"{amount:,}", f"{first:.2f}", f"{second:.2f}", f"{second / first:.2f}"))
    return table(("grows", "to", "`protected`", "`runtime`", "runtime / protected"), rows)


def policies_table(results: dict[str, Any]) -> str:
    """One size of each policy under both contracts."""
    found = {(row["amount"], row["contract"]): row["ns"] for row in results["rows"] if row["of"] == "policies"}
    names = list(dict.fromkeys(policy for policy, _ in found))
    rows = [(f"`{name}`", *(f"{found[name, contract]:.1f}" for contract in BOTH)) for name in names]
    return table(("policy", *(f"`{contract}`" for contract in BOTH)), rows)


def workers_table(results: dict[str, Any]) -> str:
    """One and two threads, and processes, under both contracts."""
    lines = []
    for kind in WORKERS:
        for tokens in SWEEP_TOKENS:
            for contract in BOTH:
                one, two = _workers(results, kind, contract, tokens)
                ratios = [f"{one[name] / two[name]:.2f}" for name in ("wall_s", "best_wall_s")]
                best = [f"{row['best_wall_s']:.2f} s" for row in (one, two)]
                lines.append((kind, f"{tokens:,}", f"{one['refs'] / 1e6:.1f} M", f"`{contract}`", *best, *ratios))
    head = ("two", "tokens", "references", "contract", "one, best", "two, best", "times one, median", "times one, best")
    return table(head, lines)


def tasks_table(results: dict[str, Any]) -> str:
    """What is not replay."""
    found = {row["amount"]: row["value"] for row in results["rows"] if row["of"] == "tasks"}
    rows = [
        ("a new task, CPU time", f"{found['task_ms']:.2f} ms"),
        ("a task that the ledger has, CPU time", f"{found['known_task_ms']:.2f} ms"),
        ("rows appended, by the clock", f"{found['written_rows_per_s']:,.0f} a second"),
        ("rows appended, by CPU time", f"{found['written_rows_per_cpu_s']:,.0f} a second"),
        ("rows read, by CPU time", f"{found['read_rows_per_cpu_s']:,.0f} a second"),
        (f"1,000 configurations, {found['configurations']} rows", f"{found['configurations_s']:.1f} s"),
    ]
    return table(("", "measured"), rows)


def _busy(machine: dict[str, Any]) -> str:
    if max(machine["load_before"], machine["load_after"]) <= machine["cores"]:
        return ""
    return ": other work was on the machine and in its caches, and times by the clock mean little"


def _peers(results: dict[str, Any]) -> dict[str, float]:
    return {row["amount"]: row["ns"] for row in results["rows"] if row["of"] == "peers"}


def _ns(results: dict[str, Any], of: str, contract: str) -> list[float]:
    return [row["ns"] for row in results["rows"] if row["of"] == of and row["contract"] == contract]


def _workers(results: dict[str, Any], kind: str, contract: str, tokens: int) -> list[dict[str, Any]]:
    return [
        row for row in results["rows"] if row["of"] == kind and row["contract"] == contract and row["tokens"] == tokens
    ]


def _times(ratio: float) -> str:
    return f"{ratio:.1f} {TIMES}" if ratio < 100 else f"{ratio:,.0f} {TIMES}"
