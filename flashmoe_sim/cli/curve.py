"""`sim curve`: the exact hit curve at every bank size."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from flashmoe_sim.cli.common import json_option, lenient_option, print_json, print_table
from flashmoe_sim.cli.options import of_verb
from flashmoe_sim.cli.workload import in_chunks_option, load_workload
from flashmoe_sim.io.cells import Column, count, decimals, percent, table
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sizes import size
from flashmoe_sim.verbs.curve import Curve

if TYPE_CHECKING:
    from flashmoe_sim.policies.base import Policy
    from flashmoe_sim.residency.sample import SampledCurve
    from flashmoe_sim.verbs.curve import ExactCurve

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


@click.command(name="curve")
@of_verb(Curve)
@in_chunks_option
@lenient_option
@json_option
def command(asked: Curve, *, in_chunks: bool, lenient: bool, as_json: bool) -> None:
    """Count every bank size of TRACE in one pass; the table shows some, --json all.

    TRACE is a file, or a name from `sim trace catalog`. LRU curves begin at the largest call. --sample estimates the
    curve of a policy that needs a replay for each size, with a 90% interval: docs/guides/sampling.md.

    \b
    Examples:  sim curve python-256 --policy min
               sim curve gpt-oss-120b --policy arc --sample 0.25
    """
    from flashmoe_sim.cli.progress import working
    from flashmoe_sim.sweep.plan import plan_policy
    from flashmoe_sim.verbs.curve import ExactCurve

    policy = plan_policy(asked.policy)
    if in_chunks and asked.sample is not None:
        raise BadInput("--in-chunks with --sample: a sample is drawn from a trace in memory; leave one of them out")
    workload = load_workload(asked.trace, asked.model, lenient=lenient, in_chunks=in_chunks)
    asked = replace(asked, trace=workload, model=None)
    with working("replaying") as progress:
        found = asked.run(progress)
    if isinstance(found, ExactCurve):
        _print(found, policy, as_json=as_json)
    else:
        _print_sampled(asked, found, policy, as_json=as_json)


def _print(found: ExactCurve, policy: Policy, *, as_json: bool) -> None:
    from flashmoe_sim.residency.curve import round_sizes

    trace, contract = found.workload.trace, found.contract
    totals = {slots: counts.total() for slots, counts in found.counts.items()}
    if as_json:
        rows = [{"bank": slots, **{name: total[name] for name in KEPT}} for slots, total in totals.items()]
        print_json({"trace": trace.name, "policy": policy.spec, "contract": contract, "curve": rows})
        return
    shown = round_sizes(list(totals))
    columns: list[Column] = [
        ("bank", "right", str),
        ("hits", "right", lambda slots: count(totals[slots]["hits"])),
        ("misses", "right", lambda slots: count(totals[slots]["misses"])),
        ("evicted", "right", lambda slots: count(totals[slots]["evictions"])),
        ("hit %", "right", lambda slots: percent(totals[slots]["hit_rate"])),
        ("full-hit calls %", "right", lambda slots: percent(totals[slots]["full_hit_rate"])),
        ("read/token", "right", lambda slots: size(totals[slots]["bytes_per_token"])),
        ("memory", "right", lambda slots: size(totals[slots]["resident_bytes"])),
    ]
    caption = f"{len(shown)} of {len(totals)} sizes; --json gives all"
    if shown[0] > max(trace.top_k, 1):
        caption += f"; {policy.name} begins at the {shown[0]} experts of the largest call; --policy min has all sizes"
    title, dispensable = f"{trace.name}: {policy.spec}, contract {contract}", ("evicted", "hits", "full-hit calls %")
    print_table(table(columns, shown, title=title, caption=caption, dispensable=dispensable))


def _print_sampled(asked: Curve, found: SampledCurve, policy: Policy, *, as_json: bool) -> None:
    from flashmoe_sim.trace.cut import shown_layers
    from flashmoe_sim.verbs.given import workload_of

    trace, seed = workload_of(asked.trace).trace, asked.seed
    name, of = trace.name, len(trace.layers)
    if as_json:
        sample = {"kind": "layers", "share": asked.sample, "layers": found.layers, "of": of, "seed": seed}
        document = {"trace": name, "policy": policy.spec, "contract": asked.contract, "sample": sample}
        print_json(document | {"curve": found.rows})
        return
    columns: list[Column] = [
        ("bank", "right", lambda row: str(row["bank_slots"])),
        ("hit %", "right", lambda row: f"{100 * row['hit_rate']:.2f}"),
        ("90% interval", "right", lambda row: f"{100 * row['hit_rate_lo']:.2f} .. {100 * row['hit_rate_hi']:.2f}"),
        ("misses/token", "right", lambda row: decimals(row["misses_per_token"])),
        ("lru hit %", "right", lambda row: percent(row["lru_hit_rate"])),
    ]
    title = f"{name}: {policy.spec}, contract {asked.contract}, estimated from a sample"
    replayed = f"{len(found.layers)} of {of} layers (seed {seed}): {shown_layers(found.layers)}"
    caption = f"replayed in {replayed}; lru is exact"
    print_table(table(columns, found.rows, title=title, caption=caption))
