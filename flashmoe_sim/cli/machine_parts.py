"""`sim machine parts` and `sim machine build`: the catalogue of parts, and a machine's file made from them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flashmoe_sim.cli.common import echo, force_option, json_option, print_json, print_table, wrapped
from flashmoe_sim.io.cells import Column, table
from flashmoe_sim.io.numbers import plain
from flashmoe_sim.io.sections import Table

if TYPE_CHECKING:
    from flashmoe_sim.machines.machine import Machine, Quantity
    from flashmoe_sim.machines.parts import Part


@click.command(short_help="The parts for machines.")
@click.argument("word", required=False)
@json_option
def parts(word: str | None, as_json: bool) -> None:
    """List the parts, or only the parts with WORD in their kind, name or title.

    --json gives every number with its source and condition.

    \b
    Example: sim machine parts 3090
             sim machine parts storage
    """
    from flashmoe_sim.machines.parts import catalogue
    from flashmoe_sim.machines.written import matching

    found = matching(word) if word else list(catalogue().values())
    if as_json:
        print_json({"parts": [_document(part) for part in found]})
        return
    columns: list[Column] = [
        ("part", "left", lambda part: part.name),
        ("kind", "left", lambda part: part.kind),
        ("what", "left", lambda part: part.title),
        ("GiB", "right", lambda part: _number(part, "memory_gib")),
        ("GB/s", "right", _rate),
    ]
    print_table(table(columns, found))
    click.echo(
        wrapped(
            "GiB of a GPU's own memory; nominal GB/s of memory, a link or storage, and of the fastest memory that a "
            "CPU takes; ~ estimated. Put together: sim machine show 'rtx-3060 + ryzen-5600 + 64GiB + nvme-gen4'"
        )
    )


@click.command(short_help="A machine's file, from parts.")
@click.argument("text", metavar="PARTS")
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The machine's file to write, a .toml.",
)
@force_option
@json_option
def build(text: str, out: Path, force: bool, as_json: bool) -> None:
    """Write the machine made of PARTS to a file for --machine.

    PARTS are names from `sim machine parts` and a size of RAM, joined by +, in any order; several equal GPUs are
    `2x rtx-3090`. The command prints the numbers that no part gives. They are estimates: measure them if you can.

    \b
    Example: sim machine build "rtx-3060 + ryzen-5600 + 64GiB" --out mine.toml
    """
    from flashmoe_sim.machines.compose import compose
    from flashmoe_sim.machines.write import write_machine

    machine = compose(text)
    write_machine(machine, out, force=force)
    if as_json:
        print_json({"out": str(out), "machine": asdict(machine), "notes": list(machine.notes)})
        return
    echo(wrapped(f"{out}: {machine.title}"))
    _print_estimates(machine)
    for note in machine.notes:
        echo(wrapped(f"note: {note}", indent=2))


def _print_estimates(machine: Machine) -> None:
    rows = [
        (path, f"~{plain(quantity.value)}", _interval(quantity))
        for path, quantity in machine.quantities()
        if quantity.estimated
    ]
    print_table(Table([("estimated", "left"), ("", "right"), ("90%", "right")], rows))


def _interval(quantity: Quantity) -> str:
    return "-" if quantity.lo == quantity.hi else f"{plain(quantity.lo)} to {plain(quantity.hi)}"


def _document(part: Part) -> dict[str, object]:
    document = asdict(part)
    return {"class" if key == "class_" else key: value for key, value in document.items()}


def _rate(part: Part) -> str:
    """The main rate of a part; a CPU's is its memory's."""
    from flashmoe_sim.machines.parts import catalogue

    of = catalogue()[part.memory] if part.memory else part
    return next(text for key in ("bandwidth_gb_s", "gb_s", "read_gb_s") if (text := _number(of, key)) != "-")


def _number(part: Part, key: str) -> str:
    quantity = part.numbers.get(key)
    return "-" if quantity is None else f"{'~' if quantity.estimated else ''}{plain(quantity.value)}"
