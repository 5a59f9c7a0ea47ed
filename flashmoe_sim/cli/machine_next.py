"""`sim machine next`: what to measure next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flashmoe_sim.cli.common import json_option, print_json, print_table, wrapped
from flashmoe_sim.cli.options import of_verb
from flashmoe_sim.io.cells import Column, interval, speed, table
from flashmoe_sim.verbs.next_run import NextRun

if TYPE_CHECKING:
    from flashmoe_sim.systems.compare import Compared
    from flashmoe_sim.tune.next_run import Next, Run

MOST = 3  # runs whose command line is printed


@click.command(name="next", short_help="The run that would narrow the answer most.")
@of_verb(NextRun)
@json_option
def next_(asked: NextRun, *, as_json: bool) -> None:
    """Say which run to measure next on a machine: what it would narrow, and what it would decide.

    TRACE is a file or a name from `sim trace catalog`; without one, or with a model's name in its place, a trace is
    made for that model. Give the run's output to --measured.

    \b
    Example: sim machine next gpt-oss-120b --machine "rtx-3060 + 64GiB"
    """
    from flashmoe_sim.cli.progress import replaying

    with replaying() as progress:
        found = asked.run(progress)
    if as_json:
        print_json(document(found))
        return
    choice, rival = found.choice, found.rival
    click.echo(
        wrapped(f"{found.case.model.name} on {found.case.machine.name}: {choice.system.spec} first, {_speed(choice)}")
    )
    if rival is not None:
        click.echo(wrapped(f"{rival.system.spec} is faster in {found.wins:.0%} of the draws: {_speed(rival)}"))
    learnt = found.case.machine.learnt
    for note in () if learnt is None else learnt.notes:
        click.echo(wrapped(note))
    columns: list[Column] = [
        ("run", "left", lambda run: run.setting.system.spec),
        ("minutes", "right", lambda run: f"{run.minutes:.0f}"),
        ("narrows", "right", lambda run: f"{run.narrows:.0%}"),
    ]
    if rival is not None:
        columns.append(("decides", "right", lambda run: f"{run.decides:.0%}"))
    between = (
        ""
        if rival is None
        else f"; decides: how much of the doubt between {choice.system.name} and {rival.system.name} goes"
    )
    caption = f"narrows: how much of the width of the first choice's interval goes{between}"
    print_table(table(columns, found.runs, caption=caption))
    click.echo("\n\n".join(f"{run.setting.system.spec}\n    {run.line}" for run in found.runs[:MOST]))


def document(found: Next) -> dict[str, object]:
    """`sim machine next --json`."""
    return {
        "model": found.case.model.name,
        "machine": found.case.machine.name,
        "first": found.choice.system.spec,
        "rival": None if found.rival is None else found.rival.system.spec,
        "rival_wins": None if found.rival is None else found.wins,
        "notes": list(found.notes),
        "runs": [_row(run) for run in found.runs],
    }


def _row(run: Run) -> dict[str, object]:
    return {
        "setting": run.setting.system.spec,
        "tok_s": run.setting.tok_s,
        "command": run.line,
        "minutes": run.minutes,
        "narrows": run.narrows,
        "decides": run.decides,
    }


def _speed(one: Compared) -> str:
    return f"{speed(one.tok_s)} tok/s (90%: {interval(one.tok_s_lo, one.tok_s_hi)})"
