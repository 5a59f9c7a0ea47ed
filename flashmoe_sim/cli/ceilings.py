"""`sim ceilings`: how fast could it run at best on this machine?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.common import (
    interruptible,
    json_option,
    lenient_option,
    percent,
    print_json,
    print_table,
    wrapped,
)
from flashmoe_sim.cli.options import CONDITIONS, asks
from flashmoe_sim.cli.workload import bank_text, load_workload, model_option, trace_argument
from flashmoe_sim.io.sizes import size

if TYPE_CHECKING:
    from flashmoe_sim.ceilings.speed import Ceilings
    from flashmoe_sim.residency.setup import Setup


@click.command(name="ceilings", context_settings={"help_option_names": ["-h", "--help"]})
@trace_argument
@asks(
    "bank",
    "machine",
    "policy",
    "contract",
    "scope",
    "prefetch",
    "io_split",
    *CONDITIONS,
    machine={"required": True, "help": "A name from `sim machine list`, a file, or parts."},
)
@model_option
@click.option(
    "--lookahead",
    type=click.IntRange(0, 2**31 - 1),
    default=16,
    show_default=True,
    metavar="W",
    help="Steps that the row lookahead-W looks ahead.",
)
@lenient_option
@json_option
def command(
    trace: str,
    model: str | None,
    lookahead: int,
    lenient: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Show how fast TRACE could decode at best on a machine, and what limits it.

    TRACE is a file, - for stdin, or a name from `sim trace catalog`. docs/background/ceilings.md explains each ceiling.

    \b
    Example:  sim ceilings gpt-oss-120b --bank 32 --machine m3-max-48
    """
    from flashmoe_sim.ceilings.speed import ceilings
    from flashmoe_sim.cli.progress import replaying
    from flashmoe_sim.machines.load import load_machine
    from flashmoe_sim.question import Question
    from flashmoe_sim.sweep.plan import plan
    from flashmoe_sim.sweep.task import Task

    setup, conditions_of = plan(Question(**asked))
    runs_on = load_machine(asked["machine"])
    workload = load_workload(trace, model, lenient=lenient)
    conditions = conditions_of(workload.geometry)
    with replaying() as progress:
        found = interruptible(ceilings, workload, setup, runs_on, conditions, lookahead=lookahead, progress=progress)
    if as_json:
        who = Task(workload, setup, runs_on, conditions).identity()
        print_json({"identity": who, "ceilings": found.to_dict()})
        return
    _print(found, setup)
    click.echo(wrapped(found.verdict.text))


def _print(found: Ceilings, setup: Setup) -> None:
    from flashmoe_sim.io.numbers import three

    columns = [("", "left"), ("hit %", "right"), ("reads/tok", "right"), ("read/tok", "right")]
    columns += [("tok/s", "right"), ("90 %", "right"), ("ms/tok", "right")]
    rows = [
        (
            row.name,
            percent(row.hit_rate),
            f"{row.reads_per_token:.1f}",
            size(row.bytes_per_token),
            three(row.tok_s),
            f"{three(row.tok_s_lo)} to {three(row.tok_s_hi)}",
            three(row.ms_per_token),
        )
        for row in found.rows
    ]
    ahead = "" if found.prefetch == "none" else f", prefetch {found.prefetch}"
    title = (
        f"{found.trace} on {found.machine}: {found.policy}, {bank_text(setup)}, contract "
        f"{found.contract}{ahead}, {found.execution}"
    )
    notes = [f"bandwidth limit: {found.floor.resource.replace('_', ' ')}", *found.notes]
    print_table(columns, rows, title=title, caption="\n".join(notes))
