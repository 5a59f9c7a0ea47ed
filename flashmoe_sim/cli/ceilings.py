"""`sim ceilings`: how fast could it run at best on this machine?"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from flashmoe_sim.cli.options import of_verb
from flashmoe_sim.cli.workload import bank_text, with_trace
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
