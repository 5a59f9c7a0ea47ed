"""`sim curve`: the exact hit curve at every bank size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flashmoe_sim.cli.common import json_option, lenient_option, percent, print_json, print_table
from flashmoe_sim.cli.options import asks
from flashmoe_sim.cli.workload import in_chunks_option, load_workload, model_option, read_long, trace_argument
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sizes import size

if TYPE_CHECKING:
    from flashmoe_sim.policies.base import Policy
    from flashmoe_sim.residency.workload import Workload

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
    policy={"help": "Eviction policy: lru, min or static; with --sample any that evicts."},
    contract={
        "default": "atomic",
        "help": "Replay contract: atomic; protected for lru and static; runtime for static; with --sample any.",
    },
)
@click.option(
    "--sample",
    "share",
    type=float,
    metavar="SHARE",
    help="Replay only this share of the layers, and estimate the others: 0.25.",
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of the draw of layers.")
@model_option
@in_chunks_option
@lenient_option
@json_option
def command(
    trace: str,
    policy: str,
    contract: str,
    share: float | None,
    seed: int,
    model: str | None,
    *,
    io_split: int,
    in_chunks: bool,
    lenient: bool,
    as_json: bool,
) -> None:
    """Count every bank size of TRACE in one pass; the table shows some, --json all.

    TRACE is a file, or a name from `sim trace catalog`. LRU curves begin at the largest call. --sample estimates the
    curve of a policy that needs a replay for each size, with a 90 % interval: docs/guides/sampling.md.

    \b
    Examples:  sim curve python-256 --policy min
               sim curve gpt-oss-120b --policy arc --sample 0.25
    """
    from flashmoe_sim.cli.progress import replaying
    from flashmoe_sim.policies.table import parse_policy
    from flashmoe_sim.residency.curve import hit_curve, round_sizes
    from flashmoe_sim.residency.long_curve import hit_curve_in_chunks
    from flashmoe_sim.residency.workload import find_geometry

    chosen = parse_policy(policy)
    if in_chunks and share is not None:
        raise BadInput("--in-chunks with --sample: a sample is drawn from a trace in memory; leave one of them out")
    if in_chunks:
        geometry = find_geometry(trace, model)
        with read_long(trace, lenient=lenient) as long:
            name = long.head.name
            curve = hit_curve_in_chunks(long, chosen, contract=contract, io_split=io_split, geometry=geometry)
    else:
        workload = load_workload(trace, model, lenient=lenient)
        if share is not None:
            _sampled(workload, chosen, contract, share=share, seed=seed, as_json=as_json)
            return
        name = workload.trace.name
        with replaying() as progress:
            curve = hit_curve(workload, chosen, contract=contract, io_split=io_split, progress=progress)
    totals = {slots: counts.total() for slots, counts in curve.items()}
    if as_json:
        rows = [{"bank": slots, **{name: total[name] for name in KEPT}} for slots, total in totals.items()]
        print_json({"trace": name, "policy": chosen.spec, "contract": contract, "curve": rows})
        return
    shown = round_sizes(list(totals))
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


def _sampled(workload: Workload, policy: Policy, contract: str, *, share: float, seed: int, as_json: bool) -> None:
    from flashmoe_sim.cli.progress import replaying
    from flashmoe_sim.residency.sample import sampled_curve
    from flashmoe_sim.trace.cut import shown_layers

    with replaying() as progress:
        found = sampled_curve(workload, policy, contract=contract, share=share, seed=seed, progress=progress)
    name, of = workload.trace.name, len(workload.trace.layers)
    if as_json:
        sample = {"kind": "layers", "share": share, "layers": found.layers, "of": of, "seed": seed}
        document = {"trace": name, "policy": policy.spec, "contract": contract, "sample": sample}
        print_json(document | {"curve": found.rows})
        return
    columns = [("bank", "right"), ("hit %", "right"), ("90 % interval", "right"), ("misses/token", "right")]
    columns += [("lru hit %", "right")]
    cells = [
        (
            str(row["bank_slots"]),
            f"{100 * row['hit_rate']:.2f}",
            f"{100 * row['hit_rate_lo']:.2f} .. {100 * row['hit_rate_hi']:.2f}",
            "-" if row["misses_per_token"] is None else f"{row['misses_per_token']:.2f}",
            percent(row["lru_hit_rate"]),
        )
        for row in found.rows
    ]
    title = f"{name}: {policy.spec}, contract {contract}, estimated from a sample"
    replayed = f"{len(found.layers)} of {of} layers (seed {seed}): {shown_layers(found.layers)}"
    caption = f"replayed in {replayed}; lru is exact"
    print_table(columns, cells, title=title, caption=caption)
