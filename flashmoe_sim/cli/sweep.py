"""`sim sweep`: many bank sizes and policies, one table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.common import (
    force_option,
    json_option,
    lenient_option,
    message,
    print_json,
)
from flashmoe_sim.cli.options import CONDITIONS, asks
from flashmoe_sim.cli.workload import load_workload, model_option

if TYPE_CHECKING:
    from flashmoe_sim.residency.setup import Setup
    from flashmoe_sim.residency.workload import Workload
    from flashmoe_sim.sweep.left_out import LeftOut

LISTED_BANKS = 12
MOST_ROWS = 60  # of the tables of several traces; of more, only the summary is printed
IDENTITY = ("trace", "model", "bank", "policy", "prefetch", "contract", "scope", "machine", "execution")


@click.command(name="sweep", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("traces", nargs=-1, metavar="[TRACE]...")
@asks("bank", several=True)
@click.option("--bank-step", default="auto", show_default=True, metavar="S", help="Steps of a range: auto, 16, or x2.")
@asks("policy", several=True)
@click.option("--topk", "top_ks", metavar="K,K", help="Cut each trace to these experts per token.")
@asks("contract", "scope", "prefetch", "io_split", "machine", *CONDITIONS, several=True)
@model_option
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Write results.parquet, .csv and .png to this folder."
)
@force_option
@lenient_option
@json_option
def command(
    traces: tuple[str, ...],
    bank_step: str,
    top_ks: str | None,
    model: str | None,
    out: Path | None,
    force: bool,
    lenient: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Say what banks of many sizes would hit, and how far that is from the best any policy could do.

    TRACE is a file, or a name from `sim trace catalog`; without one the first of the catalogue is used. Several traces
    get one more table, over all of them; of more than 60 rows, only that one is printed. Banks that cannot hold a call
    are left out, with the reason; it is an error only if no bank can.

    \b
    Examples:  sim sweep --bank 16..256
               sim sweep my.jsonl --model sidecar/ --bank 16,64 --policy lru,min
               sim sweep gpt-oss-120b --bank 16,32 --machine m3-max-48,rtx-4090
    """
    from flashmoe_sim.cli.progress import replaying
    from flashmoe_sim.machines.load import load_machine
    from flashmoe_sim.question import Question
    from flashmoe_sim.sweep.collect import sweep
    from flashmoe_sim.sweep.left_out import reasons
    from flashmoe_sim.sweep.plan import plan_sweep, plan_workloads
    from flashmoe_sim.trace.bundled import catalog

    left_out: list[LeftOut] = []
    setups, conditions = plan_sweep(Question(**asked), bank_step=bank_step, left_out=left_out)
    runs_on = [load_machine(name.strip()) for name in asked["machine"].split(",")] if asked["machine"] else []
    if out is not None:
        from flashmoe_sim.sweep.store import check_folder

        check_folder(out, force=force)
    named = traces or (next(iter(catalog())),)
    loaded = [load_workload(trace, model, lenient=lenient) for trace in named]
    workloads = plan_workloads(loaded, named, top_ks=top_ks)
    plan = f"banks {_listed(setups)}; {_count(len(setups), 'setup')} x {_count(len(workloads), 'trace')}"
    with replaying() as update:

        def progress(done: int, total: int) -> None:
            if not done:
                message(plan)  # not before: it is known now that some setup fits
            update(done, total)

        rows = sweep(workloads, setups, machines=runs_on, conditions=conditions, progress=progress, left_out=left_out)
    ranks = "all" in [policy.strip() for policy in asked["policy"].split(",")]
    warnings = [*reasons(left_out), *_aliasing(rows), *(note for machine in runs_on for note in machine.notes)]
    try:
        if as_json:
            notes = [f"{workload.trace.name}: {note}" for workload in workloads for note in workload.trace.notes]
            print_json(_document(rows, left_out, [*notes, *warnings]))
        else:
            _print(rows, workloads, setups=setups, contract=asked["contract"], left_out=left_out, ranks=ranks)
        for warning in warnings:
            message(warning)
    finally:  # a reader of the table that wants no more of it costs no results
        if out is not None:
            from flashmoe_sim.report.hit_curve import draw
            from flashmoe_sim.sweep.store import write_results

            write_results(rows, out, force=force, draw=draw)
            message(f"wrote results.parquet, results.csv and results.png to {out}")


def _document(rows: list[dict[str, Any]], left_out: list[LeftOut], warnings: list[str]) -> dict[str, Any]:
    """What `--json` prints. identity: the values of each column that says what a row is of."""
    from flashmoe_sim.sweep.summary import over_traces

    identity = {name: list(dict.fromkeys(row[name] for row in rows)) for name in IDENTITY}
    several = {"summary": over_traces(rows)} if len(identity["trace"]) > 1 else {}
    skipped = [one._asdict() for one in left_out]
    return {"identity": identity, "warnings": warnings, "left_out": skipped, **several, "rows": rows}


def _print(rows: list[dict[str, Any]], workloads: list[Workload], *, ranks: bool, **asked: Any) -> None:
    from flashmoe_sim.cli.sweep_tables import print_rows, print_summary, ranked
    from flashmoe_sim.sweep.summary import over_traces

    traces = list(dict.fromkeys(row["trace"] for row in rows))
    if len(traces) == 1 or len(rows) <= MOST_ROWS:
        for workload in workloads:
            if own := [row for row in rows if row["trace"] == workload.trace.name]:
                print_rows(workload, ranked(own) if ranks else own, **asked)
    if len(traces) > 1:
        summary = over_traces(rows)
        print_summary(ranked(summary) if ranks else summary, traces, **asked)
        if len(rows) > MOST_ROWS:
            message(f"{len(rows)} rows: too many to print; --out DIR or --json has them")


def _listed(setups: list[Setup]) -> str:
    from flashmoe_sim.policies.bank import brief_bank

    banks = list(dict.fromkeys(brief_bank(str(setup.bank)) for setup in setups))
    if len(banks) > LISTED_BANKS:
        banks = [*banks[:3], "...", f"{banks[-1]} ({len(banks)} sizes)"]
    return ", ".join(banks)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _aliasing(rows: list[dict[str, Any]]) -> list[str]:
    from flashmoe_sim.policies.bank import brief_bank

    aliased = [row for row in rows if row["aliased_refs"]]
    if not aliased:
        return []
    worst = max(aliased, key=lambda row: row["aliased_refs"] / row["requests"])
    return [
        f"slot aliasing in {len(aliased)} of {len(rows)} rows, at worst {worst['aliased_refs']:,} of "
        f"{worst['requests']:,} requests (bank {brief_bank(worst['bank'])}): there the runtime computes experts with "
        "the wrong weights; --contract protected shows the banks without it"
    ]
