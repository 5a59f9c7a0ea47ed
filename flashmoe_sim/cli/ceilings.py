"""`sim ceilings`: how fast could it run at best on this machine?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flashmoe_sim.cli.common import (
    interruptible,
    json_option,
    lenient_option,
    print_json,
    print_table,
    wrapped,
)
from flashmoe_sim.cli.options import of_verb
from flashmoe_sim.cli.workload import bank_text, with_trace
from flashmoe_sim.io.cells import Column, interval, percent, speed, table
from flashmoe_sim.io.sizes import size
from flashmoe_sim.verbs.ceilings import Ceilings

if TYPE_CHECKING:
    from flashmoe_sim.ceilings.speed import SpeedCeilings
    from flashmoe_sim.residency.setup import Setup


@click.command(name="ceilings", context_settings={"help_option_names": ["-h", "--help"]})
@of_verb(Ceilings)
@lenient_option
@json_option
def command(asked: Ceilings, *, lenient: bool, as_json: bool) -> None:
    """Show how fast TRACE could decode at best on a machine, and what limits it.

    TRACE is a file, - for stdin, or a name from `sim trace catalog`. docs/background/ceilings.md explains each ceiling.

    \b
    Example:  sim ceilings gpt-oss-120b --bank 32 --machine m3-max-48
    """
    from flashmoe_sim.cli.progress import replaying
    from flashmoe_sim.verbs.given import task_of

    asked = with_trace(asked, lenient=lenient)
    with replaying() as progress:
        found = interruptible(asked.run, progress)
    task = task_of(asked)
    if as_json:
        print_json({"identity": task.identity(), "ceilings": found.to_dict()})
        return
    _print(found, task.setup)
    click.echo(wrapped(found.verdict.text))


def _print(found: SpeedCeilings, setup: Setup) -> None:
    from flashmoe_sim.io.numbers import three

    columns: list[Column] = [
        ("", "left", lambda row: row.name),
        ("hit %", "right", lambda row: percent(row.hit_rate)),
        ("reads/tok", "right", lambda row: f"{row.reads_per_token:.1f}"),
        ("read/tok", "right", lambda row: size(row.bytes_per_token)),
        ("tok/s", "right", lambda row: speed(row.tok_s)),
        ("90 %", "right", lambda row: interval(row.tok_s_lo, row.tok_s_hi)),
        ("ms/tok", "right", lambda row: three(row.ms_per_token)),
    ]
    ahead = "" if found.prefetch == "none" else f", prefetch {found.prefetch}"
    title = (
        f"{found.trace} on {found.machine}: {found.policy}, {bank_text(setup)}, contract "
        f"{found.contract}{ahead}, {found.execution}"
    )
    notes = [f"bandwidth limit: {found.floor.resource.replace('_', ' ')}", *found.notes]
    print_table(table(columns, found.rows, title=title, caption="\n".join(notes)))
