"""`sim sweep`: many bank sizes and policies, one table."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.commands import of_verb
from flashmoe_sim.cli.common import (
    Interrupted,
    json_option,
    lenient_option,
    message,
    print_json,
    print_result,
    print_sections,
    stoppable,
)
from flashmoe_sim.cli.workload import load_workload
from flashmoe_sim.io.errors import Conflict
from flashmoe_sim.io.sections import Section, Table
from flashmoe_sim.io.sizes import size
from flashmoe_sim.verbs.sweep import Sweep

if TYPE_CHECKING:
    from flashmoe_sim.residency.setup import Setup
    from flashmoe_sim.sweep.ledger import Ledger
    from flashmoe_sim.sweep.left_out import LeftOut
    from flashmoe_sim.verbs.sweep import OpenSweep

LISTED_BANKS = 12
MOST_ROWS = 60  # of the tables of several traces; if there are more, only the summary is printed
IDENTITY = ("trace", "model", "bank", "policy", "prefetch", "contract", "scope", "machine", "execution")
DOES = {
    "stack": "one pass for all sizes",
    "walk": "some sizes, layer by layer",
    "alone": "one replay",
    "timed": "replays, timed on machines",
}


@click.command(name="sweep")
@of_verb(Sweep)
@click.option("--force", is_flag=True, help="Start again: drop the existing rows of --out DIR.")
@click.option("--dry-run", is_flag=True, help="Print the plan: tasks, passes, and an estimate of time and memory.")
@lenient_option
@json_option
def command(question: Sweep, *, force: bool, dry_run: bool, lenient: bool, as_json: bool) -> None:
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
    if dry_run and question.cluster is not None:
        raise Conflict("--dry-run estimates for threads of this machine; give --threads N in place of --cluster")
    with ExitStack() as stack:
        opened = stack.enter_context(question.opened(force=force, read=partial(load_workload, lenient=lenient)))
        for note in () if opened.ledger is None else opened.ledger.notes:
            message(note)
        if dry_run:
            print_plan(opened, as_json=as_json)
            return
        stack.enter_context(stoppable())
        rows = _rows(question, opened)
        if question.rank is not None:
            from flashmoe_sim.sweep.summary import ranked

            rows = ranked(rows, question.rank)
        warnings = _warnings(rows, opened)
        try:
            if as_json:
                traces = [workload.trace for workload in opened.workloads]
                notes = [f"{trace.name}: {note}" for trace in traces for note in trace.notes]
                print_json(_document(rows, opened.left_out, [*notes, *warnings]))
            else:
                _print(rows, question, opened)
            for warning in warnings:
                message(warning)
        finally:  # even if the reader of the table stops, results are written
            if opened.ledger is not None:
                _export(opened.ledger, rows, Path(str(question.out)))


def _rows(question: Sweep, opened: OpenSweep) -> list[dict[str, Any]]:
    """The rows, with progress; a sweep that is stopped keeps those in its ledger, and says how to go on."""
    from flashmoe_sim.cli.progress import working
    from flashmoe_sim.sweep.workers import Lost

    summary = f"banks {_listed(opened.setups)}; {_count(len(opened.setups), 'setup')}"
    summary += f" x {_count(len(opened.workloads), 'trace')}"
    if not question.traces:
        summary += f": the bundled {opened.workloads[0].trace.name}, since none was given"
    ledger, out = opened.ledger, question.out
    known = 0 if ledger is None else len(ledger)
    try:
        with working("replaying") as update:

            def progress(done: int, total: int) -> None:
                if not done:
                    message(summary)  # only now is it known that some setup fits
                    if known:
                        message(f"going on with the {_count(known, 'row')} of {out}; --force starts again")
                update(done, total)

            return opened.rows(progress)
    except (KeyboardInterrupt, Lost) as stop:
        if ledger is None or not len(ledger):
            raise
        _export(ledger, [], Path(str(out)))
        kept = f"{_count(len(ledger), 'row')} of {out} are kept; the same command goes on from there"
        if isinstance(stop, Lost):
            raise Lost(f"{stop}; {kept}") from None
        raise Interrupted(f"interrupted; {kept}", stop) from None


def _warnings(rows: list[dict[str, Any]], opened: OpenSweep) -> list[str]:
    from flashmoe_sim.sweep.left_out import reasons
    from flashmoe_sim.sweep.workloads import by_hindsight

    notes = [note for machine in opened.machines for note in machine.notes]
    known = by_hindsight(opened.workloads, (setup.policy for setup in opened.setups))
    warnings = [*reasons(opened.left_out), *known, *_aliasing(rows), *notes]
    if opened.ledger is not None and (unknown := sum(row["id"] is None for row in rows)):
        warnings.append(
            f"{_count(unknown, 'row')} from code of your own that cannot be identified by its content, such as an open "
            "file: computed again by every sweep, and not kept in the ledger"
        )
    return warnings


def _export(ledger: Ledger, rows: list[dict[str, Any]], out: Path) -> None:
    """Write the files of results: `rows` first, then all other rows of the ledger, including concurrent sweeps'."""
    from flashmoe_sim.report.figures import results
    from flashmoe_sim.sweep.store import write_results

    missing = results.missing()
    draw = None if missing else results.draw
    ledger.refresh()
    write_results(ledger.rows(rows), out, draw=draw)
    while ledger.refresh():  # of two sweeps, the last to write has the rows of both
        write_results(ledger.rows(rows), out, draw=draw)
    if missing:
        message(f"wrote results.parquet and results.csv to {out}; no results.png: {missing}")
    else:
        message(f"wrote results.parquet, results.csv and results.png to {out}")


def _document(rows: list[dict[str, Any]], left_out: list[LeftOut], warnings: list[str]) -> dict[str, Any]:
    """The document of `--json`. identity: the values of each column that identifies rows."""
    from flashmoe_sim.sweep.summary import over_traces

    identity = {name: list(dict.fromkeys(row[name] for row in rows)) for name in IDENTITY}
    several = {"summary": over_traces(rows)} if len(identity["trace"]) > 1 else {}
    skipped = [one._asdict() for one in left_out]
    return {"identity": identity, "warnings": warnings, "left_out": skipped, **several, "rows": rows}


def _print(rows: list[dict[str, Any]], question: Sweep, opened: OpenSweep) -> None:
    from flashmoe_sim.cli.sweep_tables import of_several, of_trace
    from flashmoe_sim.sweep.plan import names_all
    from flashmoe_sim.sweep.summary import over_traces, ranked

    by = question.rank
    if by is None and names_all(question.policy):
        by = "tok/s" if opened.machines else "hits"
    tables: list[Table] = []
    traces = list(dict.fromkeys(row["trace"] for row in rows))
    if len(traces) == 1 or len(rows) <= MOST_ROWS:
        for workload in opened.workloads:
            if own := [row for row in rows if row["trace"] == workload.trace.name]:
                tables += of_trace(workload, ranked(own, by) if by else own, opened, question.contract)
    if len(traces) > 1:
        summary = over_traces(rows)
        tables.append(of_several(ranked(summary, by) if by else summary, traces, opened, question.contract))
    print_sections([Section("", tuple(tables))])
    if len(traces) > 1 and len(rows) > MOST_ROWS:
        message(f"{len(rows)} rows: too many to print; --out DIR or --json has them")


def _listed(setups: list[Setup]) -> str:
    banks = list(dict.fromkeys(str(setup.bank) for setup in setups))
    if len(banks) > LISTED_BANKS:
        banks = [*banks[:3], "...", f"{banks[-1]} ({len(banks)} sizes)"]
    return ", ".join(banks)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _aliasing(rows: list[dict[str, Any]]) -> list[str]:
    aliased = [row for row in rows if row["aliased_refs"]]
    if not aliased:
        return []
    worst = max(aliased, key=lambda row: row["aliased_refs"] / row["requests"])
    return [
        f"slot aliasing in {len(aliased)} of {len(rows)} rows, at worst {worst['aliased_refs']:,} of "
        f"{worst['requests']:,} requests (bank {worst['bank']}): there the runtime computes experts with "
        "the wrong weights; --contract protected shows the banks without it"
    ]


def print_plan(opened: OpenSweep, *, as_json: bool) -> None:
    """Print the tasks, how many are known, the passes by kind, and the estimate."""
    from flashmoe_sim.residency.many import CountPass
    from flashmoe_sim.sweep.estimate import estimate

    plan, left_out = opened.plan(), opened.left_out
    kinds = Counter(one.work.kind if isinstance(one.work, CountPass) else "timed" for one in plan.passes)
    about = estimate(plan.passes, opened.workloads, threads=opened.cores)
    document = {
        "tasks": len(plan.tasks),
        "in_ledger": len(plan.known),
        "to_compute": len(plan.missing),
        "passes": dict(kinds),
        "estimate": {"seconds": about.seconds, "threads": about.threads, "memory_bytes": about.memory_bytes},
        "left_out": [one._asdict() for one in left_out],
    }
    tasks = f"{len(plan.tasks):,} tasks: {len(plan.known):,} in the ledger, {len(plan.missing):,} to compute"
    cells = [[kind, f"{number:,}", DOES[kind]] for kind, number in kinds.items()]
    passes = [Table([("pass", "left"), ("number", "right"), ("what it does", "left")], cells)] if kinds else []
    on = f"{about.threads} thread{'' if about.threads == 1 else 's'}"
    rough = (
        f"Rough estimate for an idle machine, within a factor of about 3: {_duration(about.seconds)} on {on}, "
        f"up to {size(about.memory_bytes)} of memory. Start (seconds) and compiling (up to minutes, once) come on "
        "top; a busy machine takes several times as long."
    )
    print_result(document, tasks, *passes, rough, as_json=as_json)


def _duration(seconds: float) -> str:
    if seconds < 1:
        return "less than a second"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
