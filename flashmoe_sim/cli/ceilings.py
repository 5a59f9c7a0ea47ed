"""`sim ceilings`: how fast could it run at best on this machine?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flashmoe_sim.cli.common import json_option, lenient_option, percent, print_json, print_table, size, wrapped
from flashmoe_sim.cli.machine_options import condition_options
from flashmoe_sim.cli.workload import bank_meaning, load_workload, prefetch_option, setup_options, trace_argument

if TYPE_CHECKING:
    from flashmoe_sim.ceilings.speed import Ceilings
    from flashmoe_sim.residency.setup import Setup


@click.command(name="ceilings", context_settings={"help_option_names": ["-h", "--help"]})
@trace_argument
@click.option("--bank", required=True, metavar="N", help="Slots of each layer (64), or bytes of all together (8GiB).")
@click.option("--machine", required=True, metavar="X", help="A name from `sim machine list`, or a file.")
@click.option("--policy", default="lru", show_default=True, metavar="P", help="Eviction policy; see `sim policy list`.")
@setup_options
@prefetch_option
@condition_options
@click.option(
    "--lookahead",
    type=click.IntRange(0, 2**31 - 1),
    default=16,
    show_default=True,
    metavar="W",
    help="Steps that lookahead-W sees.",
)
@lenient_option
@json_option
def command(
    trace: str,
    bank: str,
    machine: str,
    policy: str,
    model: str | None,
    contract: str,
    scope: str,
    prefetch: str,
    io_split: int,
    execution: str | None,
    dense: str | None,
    kv: str | None,
    direct_io: bool,
    hot: bool,
    lookahead: int,
    lenient: bool,
    as_json: bool,
) -> None:
    """Say how fast TRACE could decode at best on a machine, and what holds it back.

    TRACE is a file, or a name from `sim trace catalog`. docs/ceilings.md explains each ceiling and when it misleads.

    \b
    Example:  sim ceilings gpt-oss-120b --bank 32 --contract atomic \\
                  --machine m3-max-48 --dense 2GiB
    """
    from flashmoe_sim.ceilings.speed import ceilings
    from flashmoe_sim.machines.load import load_machine
    from flashmoe_sim.sweep.plan import plan_conditions, plan_setup
    from flashmoe_sim.sweep.row import identity

    setup = plan_setup(bank, policy=policy, contract=contract, scope=scope, prefetch=prefetch, io_split=io_split)
    conditions = plan_conditions(setup, execution=execution, dense=dense, kv=kv, direct_io=direct_io, hot=hot)
    runs_on = load_machine(machine)
    workload = load_workload(trace, model, lenient=lenient)
    found = ceilings(workload, setup, runs_on, conditions, lookahead=lookahead)
    if as_json:
        who = identity(workload, setup, machine=runs_on, conditions=conditions)
        print_json({"identity": who, "ceilings": found.to_dict()})
        return
    _print(found, setup)
    click.echo(wrapped(found.verdict.text))


def _print(found: Ceilings, setup: Setup) -> None:
    from flashmoe_sim.ceilings.speed_verdict import three

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
        f"{found.trace} on {found.machine}: {found.policy}, bank {found.bank} ({bank_meaning(setup)}), contract "
        f"{found.contract}{ahead}, {found.execution}"
    )
    notes = [f"bandwidth floor: {found.floor.resource.replace('_', ' ')}", *found.notes]
    print_table(columns, rows, title=title, caption="\n".join(notes))
