"""`sim compare`: the real systems side by side, on one machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flashmoe_sim.cli.common import (
    echo,
    force_option,
    json_option,
    lenient_option,
    print_json,
    print_table,
    refuse_table,
    rows_option,
    say,
    wrapped,
    write_table,
)
from flashmoe_sim.cli.options import of_verb
from flashmoe_sim.cli.workload import with_workload
from flashmoe_sim.io.cells import WAITS, Column, brief_interval, percent, speed, table
from flashmoe_sim.io.numbers import three
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.verbs.compare import Compare

if TYPE_CHECKING:
    from flashmoe_sim.systems.compare import Compared
    from flashmoe_sim.verbs.compare import Comparison

DISPENSABLE = ("MiB/token", "hit %", "RAM")


@click.command(name="compare")
@of_verb(Compare)
@click.option("--full", is_flag=True, help="Also show where to get each engine, and on how many speeds it rests.")
@rows_option
@force_option
@lenient_option
@json_option
def command(asked: Compare, *, full: bool, out: Path | None, force: bool, lenient: bool, as_json: bool) -> None:
    """Compare engines and settings on a machine, and give the flags of each.

    TRACE is a file, or a name from `sim trace catalog`. Without one, or with a model's name in its place, a trace is
    made for that model, like bundled ones of other models, or --hit-rate applies to all systems.

    \b
    Examples:  sim compare gpt-oss-120b --machine rtx-4090
               sim compare --model qwen3-30b-a3b --machine "rtx-3060 + 64GiB"
    """
    from flashmoe_sim.cli.progress import working
    from flashmoe_sim.schema import COMPARED, frame

    if out is not None:
        refuse_table(out, force=force)
    asked = with_workload(asked, lenient=lenient)
    with working("replaying") as progress:
        found = asked.run(progress)
    if out is not None:
        write_table(frame([row.as_row() for row in found.rows], COMPARED), out, force=force)
    if as_json:
        print_json(document(found))
        return
    _print(found, full=full)


def document(found: Comparison) -> dict[str, object]:
    """`sim compare --json`."""
    from flashmoe_sim.tune.proof import proof

    plain, likely = found.likely_faster() or (None, {})
    rows = []
    for row in found.rows:
        launch = row.launch
        shares = row.system.memory(found.case) if row.tok_s is not None else ()
        get = row.system.how_to_get(found.case.machine)
        rows.append(
            row.as_row()
            | {
                "published_speeds": proof(row.system, found.case).rows,
                "p_faster_than_plain": likely.get(row.system.spec),
                "get": None if get is None else get.as_row(),
                "memory": [{"what": one.what, "where": one.where, "bytes": one.size_bytes} for one in shares],
                "environment": dict(launch.environment) if launch else {},
            }
        )
    return {
        "model": found.case.model.name,
        "machine": found.case.machine.name,
        "context": found.case.context,
        "kv_bytes": found.case.kv_bytes,
        "drafts": None if found.case.drafts is None else asdict(found.case.drafts),
        "budget": [
            {"what": one.what, "where": one.where, "bytes": one.size_bytes, "why": one.why}
            for one in found.case.budget.terms()
        ],
        "notes": list(found.notes),
        "plain": None if plain is None else plain.system.spec,
        "rows": rows,
    }


def _caption(found: Comparison, legend: str) -> str:
    """The legend and the notes; each measurement has a line of its own."""
    learnt = found.case.machine.learnt
    measured = () if learnt is None else learnt.notes
    others = [note for note in found.notes if note not in measured]
    return "\n".join(["; ".join([legend, *others]), *measured])


def _print(found: Comparison, *, full: bool) -> None:
    ran = [row for row in found.rows if row.tok_s is not None]
    names = [row.system.name for row in ran]
    columns: list[Column] = [
        ("system", "left", lambda row: row.system.spec if names.count(row.system.name) > 1 else row.system.name),
        ("GPU", "right", lambda row: f"{(row.gpu_bytes or 0) / GIB:.1f}"),
        ("RAM", "right", lambda row: f"{(row.held_bytes or 0) / GIB:.1f}"),
        ("hit %", "right", lambda row: percent(row.hit_rate)),
        ("MiB/token", "right", lambda row: three((row.miss_bytes_per_token or 0) / MIB)),
        ("tok/s", "right", lambda row: speed(row.tok_s)),
        ("90%", "right", lambda row: brief_interval(row.tok_s_lo, row.tok_s_hi)),
        ("waits for", "right", _waits),
    ]
    caption = "GPU, RAM: GiB used, mapped files included; MiB/token: missed experts; waits for: most of a token's time"
    if found.case.drafts is not None:
        columns = [column for column in columns if column[0] != "MiB/token"]
        columns[-1:] = [
            ("plain", "right", lambda row: speed(row.undrafted and row.undrafted.tok_s)),
            ("pays", "right", _pays),
            columns[-1],
        ]
        caption = (
            "GPU, RAM: GiB used, mapped files included; plain: tok/s without drafts; pays: the acceptance from which "
            "drafts gain"
        )
    if any(row.filled for row in ran):
        place = [name for name, *_ in columns].index("90%") + 1
        columns.insert(place, ("full", "right", lambda row: speed(row.filled and row.filled.tok_s)))
        caption = f"full: tok/s with all {found.case.context:,} tokens in the context; {caption}"
    machine = found.case.machine
    title = f"{found.case.model.name} on {machine.name}: {machine.title}"
    print_table(table(columns, ran, title=title, caption=_caption(found, caption), dispensable=DISPENSABLE))
    if sentence := _cache_pays(found):
        echo(f"{wrapped(sentence)}\n")
    for row in ran:
        assert row.launch is not None
        echo(f"{row.system.spec}\n    {row.launch.line}")
        if full:
            _print_engine(row, found)
    cannot = [row for row in found.rows if row.tok_s is None]
    if cannot:
        echo("\ncannot run here:")
        for row in cannot:
            say(f"  {row.system.spec}: {row.why_not}", indent=4)


def _cache_pays(found: Comparison) -> str:
    """How likely each cache is faster than the best setting without one; empty if there is nothing to compare."""
    plain, likely = found.likely_faster() or (None, {})
    if plain is None or not likely:
        return ""
    order = sorted(likely, key=lambda spec: -likely[spec])
    each = ", ".join(f"{spec} {likely[spec]:.0%}" for spec in order)
    return f"Probability that a cache is faster than {plain.system.spec}: {each}."


def _pays(row: Compared) -> str:
    """The acceptance from which drafts pay."""
    if row.pass_cost is None:
        return "-"
    return "never" if row.break_even_accept is None else f"{row.break_even_accept:.2f}"


def _print_engine(row: Compared, found: Comparison) -> None:
    """Where to get the engine, and on how many published speeds its prediction rests."""
    from flashmoe_sim.tune.proof import proof

    shown, get = proof(row.system, found.case), row.system.how_to_get(found.case.machine)
    say(f"  rests on: {shown.sentence}", indent=4)
    if get is not None:
        say(f"  {get.what}", indent=4)
        for line in get.commands:
            echo(f"    {line}")
        for more in get.more:
            say(f"  {more}", indent=4)


def _waits(row: Compared) -> str:
    """What most of a token's time waits for, and its share."""
    assert row.ms_per_token is not None
    most, ms = max(row.ms_per_token.items(), key=lambda group: group[1])
    return f"{WAITS[most][0]} {ms / sum(row.ms_per_token.values()):.0%}"
