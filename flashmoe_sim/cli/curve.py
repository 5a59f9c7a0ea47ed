"""`sim curve`: the exact hit curve at every bank size."""

from __future__ import annotations

import click

from flashmoe_sim.cli.common import json_option, lenient_option, percent, print_json, print_table
from flashmoe_sim.cli.options import asks
from flashmoe_sim.cli.workload import in_chunks_option, load_workload, model_option, read_long, trace_argument
from flashmoe_sim.io.sizes import size

SHOWN = 20
KEPT = (
    "hits",
    "misses",
    "evictions",
    "hit_rate",
    "full_hit_rate",
    "misses_per_token",
    "bytes_per_token",
    "resident_bytes",
)


@click.command(name="curve", context_settings={"help_option_names": ["-h", "--help"]})
@trace_argument
@asks(
    "policy",
    "contract",
    "io_split",
    policy={"help": "Eviction policy: lru, min or static."},
    contract={
        "default": "atomic",
        "help": "Replay contract: atomic; protected for lru and static; runtime for static.",
    },
)
@model_option
@in_chunks_option
@lenient_option
@json_option
def command(
    trace: str,
    policy: str,
    contract: str,
    model: str | None,
    *,
    io_split: int,
    in_chunks: bool,
    lenient: bool,
    as_json: bool,
) -> None:
    """Count every bank size of TRACE in one pass; the table shows some, --json all.

    TRACE is a file, or a name from `sim trace catalog`. LRU curves begin at the largest call.

    \b
    Example:  sim curve python-256 --policy min
    """
    from flashmoe_sim.policies.table import parse_policy
    from flashmoe_sim.residency.curve import hit_curve
    from flashmoe_sim.residency.long_curve import hit_curve_in_chunks
    from flashmoe_sim.residency.workload import find_geometry

    chosen = parse_policy(policy)
    if in_chunks:
        geometry = find_geometry(trace, model)
        with read_long(trace, lenient=lenient) as long:
            name = long.head.name
            curve = hit_curve_in_chunks(long, chosen, contract=contract, io_split=io_split, geometry=geometry)
    else:
        workload = load_workload(trace, model, lenient=lenient)
        name, curve = workload.trace.name, hit_curve(workload, chosen, contract=contract, io_split=io_split)
    totals = {slots: counts.total() for slots, counts in curve.items()}
    if as_json:
        rows = [{"bank": slots, **{name: total[name] for name in KEPT}} for slots, total in totals.items()]
        print_json({"trace": name, "policy": chosen.spec, "contract": contract, "curve": rows})
        return
    shown = _some(list(totals))
    columns = [("bank", "right"), ("hits", "right"), ("misses", "right"), ("evicted", "right"), ("hit %", "right")]
    columns += [("full-hit calls %", "right"), ("read/token", "right"), ("memory", "right")]
    cells = [
        (
            str(slots),
            f"{totals[slots]['hits']:,}",
            f"{totals[slots]['misses']:,}",
            f"{totals[slots]['evictions']:,}",
            percent(totals[slots]["hit_rate"]),
            percent(totals[slots]["full_hit_rate"]),
            size(totals[slots]["bytes_per_token"]),
            size(totals[slots]["resident_bytes"]),
        )
        for slots in shown
    ]
    caption = f"{len(shown)} of {len(totals)} sizes; --json gives all"
    print_table(columns, cells, title=f"{name}: {chosen.spec}, contract {contract}", caption=caption)


def _some(sizes: list[int]) -> list[int]:
    """The first and the last of consecutive sizes, and between them round ones: multiples of a power of two."""
    every = 1
    while len(sizes) > SHOWN * every:
        every *= 2
    return [size for size in sizes if size in (sizes[0], sizes[-1]) or size % every == 0]
