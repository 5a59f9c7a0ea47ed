"""`sim sweep`: many bank sizes and policies, one table."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.common import Interrupted, json_option, lenient_option, message, print_json, stoppable
from flashmoe_sim.cli.options import CONDITIONS, asks
from flashmoe_sim.cli.workload import in_chunks_option, load_workload, model_option, read_heads
from flashmoe_sim.io.errors import BadInput

if TYPE_CHECKING:
    from flashmoe_sim.residency.setup import Setup
    from flashmoe_sim.residency.workload import Workload
    from flashmoe_sim.sweep.ledger import Ledger
    from flashmoe_sim.sweep.left_out import LeftOut

LISTED_BANKS = 12
MOST_ROWS = 60  # of the tables of several traces; if there are more, only the summary is printed
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
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Store each row in this folder's ledger.ndjson, and write results.parquet, .csv and .png with all its rows; "
    "known rows are not computed again.",
)
@click.option("--force", is_flag=True, help="Start again: drop the existing rows of --out DIR.")
@click.option("--dry-run", is_flag=True, help="Print the plan: tasks, passes, and an estimate of time and memory.")
@click.option("--threads", type=click.IntRange(1, 1024), metavar="N", help="Passes at once; default: one per core.")
@click.option(
    "--cluster",
    "address",
    metavar="ADDRESS",
    help="Run on the workers of a dask scheduler, tcp://HOST:PORT, or local:N for N processes (docs/guides/sweeps.md).",
)
@in_chunks_option
@lenient_option
@json_option
def command(
    traces: tuple[str, ...],
    bank_step: str,
    top_ks: str | None,
    model: str | None,
    out: Path | None,
    force: bool,
    dry_run: bool,
    threads: int | None,
    address: str | None,
    in_chunks: bool,
    lenient: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Count the hits of banks of many sizes, and the best that any policy could reach.

    TRACE is a file, or a name from `sim trace catalog`; without one the first of the catalogue is used. Several traces
    add a table over all of them; with more than 60 rows, only that table is printed. Banks that cannot hold a call are
    left out, with the reason; it is an error only if no bank can.

    A sweep with --out that was stopped, even killed, resumes if the same command is run again. Later commands with more
    banks, policies or machines add rows. The table shows the requested rows; the files have all rows of the folder.

    \b
    Examples:  sim sweep --bank 16..256
               sim sweep my.jsonl --model sidecar/ --bank 16,64 --policy lru,min
               sim sweep gpt-oss-120b --bank 16,32 --machine m3-max-48,rtx-4090
    """
    from flashmoe_sim.cli.progress import replaying
    from flashmoe_sim.machines.load import load_machine
    from flashmoe_sim.question import Question
    from flashmoe_sim.sweep.collect import Plan, plan_tasks, sweep
    from flashmoe_sim.sweep.ledger import Ledger
    from flashmoe_sim.sweep.left_out import reasons
    from flashmoe_sim.sweep.long import LongPlan, check_in_chunks, sweep_in_chunks
    from flashmoe_sim.sweep.plan import plan_sweep
    from flashmoe_sim.sweep.workers import Lost, run_on
    from flashmoe_sim.sweep.workloads import plan_workloads
    from flashmoe_sim.trace.bundled import catalog

    if in_chunks:
        check_in_chunks(machine=asked["machine"], cluster=address, top_k=top_ks)
    if dry_run and address is not None:
        raise BadInput("--dry-run estimates for threads of this machine; give --threads N in place of --cluster")
    workers, cores = run_on(threads=threads, cluster=address), threads or os.cpu_count() or 1
    left_out: list[LeftOut] = []
    setups, conditions = plan_sweep(Question(**asked), bank_step=bank_step, in_chunks=in_chunks, left_out=left_out)
    runs_on = [load_machine(name.strip()) for name in asked["machine"].split(",")] if asked["machine"] else []
    if out is not None:
        from flashmoe_sim.sweep.store import check_folder

        check_folder(out, force=force)
    named = traces or (next(iter(catalog())),)
    with ExitStack() as stack:
        longs = stack.enter_context(read_heads(named, model, lenient=lenient)) if in_chunks else {}
        workloads = [*longs]
        if not in_chunks:
            loaded = [load_workload(trace, model, lenient=lenient) for trace in named]
            workloads = plan_workloads(loaded, named, top_ks=top_ks)
        summary = f"banks {_listed(setups)}; {_count(len(setups), 'setup')} x {_count(len(workloads), 'trace')}"
        if not traces:
            summary += f": the bundled {named[0]}, since none was given"
        ledger = None if out is None else stack.enter_context(Ledger(out, force=force))
        for note in () if ledger is None else ledger.notes:
            message(note)
        if dry_run:
            from flashmoe_sim.cli.sweep_plan import print_plan

            plan: Plan | LongPlan
            if in_chunks:
                plan = LongPlan(workloads, setups, ledger, left_out)
            else:
                plan = Plan(plan_tasks(workloads, setups, machines=runs_on, conditions=conditions), ledger, left_out)
            print_plan(plan, workloads, left_out, threads=cores, as_json=as_json)
            return
        known = 0 if ledger is None else len(ledger)
        stack.enter_context(stoppable())
        try:
            with replaying() as update:

                def progress(done: int, total: int) -> None:
                    if not done:
                        message(summary)  # only now is it known that some setup fits
                        if known:
                            message(f"going on with the {_count(known, 'row')} of {out}; --force starts again")
                    update(done, total)

                if in_chunks:
                    rows = sweep_in_chunks(
                        longs, setups, threads=cores, left_out=left_out, ledger=ledger, progress=progress
                    )
                else:
                    rows = sweep(
                        workloads,
                        setups,
                        machines=runs_on,
                        conditions=conditions,
                        workers=workers,
                        ledger=ledger,
                        progress=progress,
                        left_out=left_out,
                    )
        except (KeyboardInterrupt, Lost) as stop:
            if out is None or ledger is None or not len(ledger):
                raise
            _export(ledger, [], out)
            kept = f"{_count(len(ledger), 'row')} of {out} are kept; the same command goes on from there"
            if isinstance(stop, Lost):
                raise Lost(f"{stop}; {kept}") from None
            raise Interrupted(f"interrupted; {kept}", stop) from None
        ranks = "all" in [policy.strip() for policy in asked["policy"].split(",")]
        warnings = [*reasons(left_out), *_aliasing(rows), *(note for machine in runs_on for note in machine.notes)]
        if out is not None and (unknown := sum(row["id"] is None for row in rows)):
            warnings.append(
                f"{_count(unknown, 'row')} without an id, since code of yours names what has no known content: "
                "computed every time, and not kept in the ledger"
            )
        try:
            if as_json:
                notes = [f"{workload.trace.name}: {note}" for workload in workloads for note in workload.trace.notes]
                print_json(_document(rows, left_out, [*notes, *warnings]))
            else:
                _print(rows, workloads, setups=setups, contract=asked["contract"], left_out=left_out, ranks=ranks)
            for warning in warnings:
                message(warning)
        finally:  # even if the reader of the table stops, results are written
            if out is not None and ledger is not None:
                _export(ledger, rows, out)


def _export(ledger: Ledger, rows: list[dict[str, Any]], out: Path) -> None:
    """Write the files of results: `rows` first, then all other rows of the ledger, including concurrent sweeps'."""
    from flashmoe_sim.report.hit_curve import draw
    from flashmoe_sim.sweep.store import write_results

    ledger.refresh()
    write_results(ledger.rows(rows), out, force=True, draw=draw)
    while ledger.refresh():  # of two sweeps, the last to write has the rows of both
        write_results(ledger.rows(rows), out, force=True, draw=draw)
    message(f"wrote results.parquet, results.csv and results.png to {out}")


def _document(rows: list[dict[str, Any]], left_out: list[LeftOut], warnings: list[str]) -> dict[str, Any]:
    """The document of `--json`. identity: the values of each column that identifies rows."""
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
