"""`sim machine`: the known machines, and the source of each of their numbers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flashmoe_sim.cli.common import force_option, json_option, print_json, print_result, say
from flashmoe_sim.io.cells import Column, table
from flashmoe_sim.io.numbers import plain
from flashmoe_sim.io.sections import Item, Table

if TYPE_CHECKING:
    from flashmoe_sim.machines.machine import Machine, Quantity
    from flashmoe_sim.machines.parts import Part


@click.group()
def command() -> None:
    """List, measure, fit and build machines."""


@command.command(name="list", short_help="All presets in a table.")
@json_option
def list_(as_json: bool) -> None:
    """List the machines known by name.

    --json gives every number; a section or number that a machine lacks is null.
    """
    from flashmoe_sim.machines.load import load_machine
    from flashmoe_sim.machines.table import PRESETS

    machines = [load_machine(name) for name in PRESETS]
    columns: list[Column] = [
        ("machine", "left", lambda one: one.name),
        ("what", "left", lambda one: one.title),
        ("RAM", "right", lambda one: _short(one.memory.ram_gib if one.memory else None)),
        ("read", "right", lambda one: _short(one.storage.read_gb_s)),
        ("link", "right", lambda one: _short(one.link.pinned_gb_s if one.link else None)),
        ("weights", "right", lambda one: _short(_decoding(one))),
    ]
    hint = (
        "RAM in GiB; GB/s of storage, of the link into the GPU's own memory, and of weights while decoding; "
        "~ estimated. The source of each number: sim machine show NAME"
    )
    documents = [asdict(machine) for machine in machines]
    print_result({"machines": documents}, table(columns, machines), hint, as_json=as_json)


@command.command(short_help="One machine: every number, its interval and its source.")
@click.argument("machine")
@click.option("--toml", "as_toml", is_flag=True, help="Print a machine's file, to edit and give to --machine.")
@json_option
def show(machine: str, as_toml: bool, as_json: bool) -> None:
    """Show every number of MACHINE, with its 90% interval, source and condition.

    MACHINE is a name from `sim machine list`, the path of a TOML file of your own, or parts.

    \b
    Example: sim machine show m5-pro-48
             sim machine show "rtx-3060 + ryzen-5600 + 64GiB + nvme-gen4"
             sim machine show m5-max-128 --toml > mine.toml
    """
    from flashmoe_sim.machines.load import load_machine
    from flashmoe_sim.machines.write import toml

    loaded = load_machine(machine)
    if as_toml:
        if as_json:
            raise click.UsageError("--toml and --json: give one of them")
        click.echo(toml(loaded), nl=False)
        return
    if as_json:
        print_json(asdict(loaded))
        return
    say(f"{loaded.name}: {loaded.title}")
    if loaded.unified:
        click.echo("storage, link and GPU share the bandwidth of one memory")
    for label, fact in _facts(loaded):
        click.echo(f"{label}: {fact}")
    section = ""
    for path, quantity in loaded.quantities():
        if section != path.partition(".")[0]:
            section = path.partition(".")[0]
            click.echo(f"\n{section}")
        _print_quantity(path.partition(".")[2], quantity)
        if path == "storage.hot_share" or (path == "storage.lanes" and loaded.storage.hot_share is None):
            _print_reads(loaded)
    if loaded.learnt is not None:
        click.echo("\nlearnt")
        for note in loaded.learnt.notes:
            say(f"  {note}", indent=4)
    if loaded.anchors is not None:
        click.echo("\nanchors")
        for label, text in asdict(loaded.anchors).items():
            if text is None:
                continue
            say(f"  {label}: {', '.join(text) if label == 'runs' else text}", indent=4)


def _facts(machine: Machine) -> list[tuple[str, str]]:
    """What is known of the system and the processors, beside numbers."""
    facts = [("operating system", machine.os), ("maker of the GPU", machine.gpu_maker)]
    facts += [
        ("compute capability", machine.gpu_compute),
        ("features of the CPU", ", ".join(machine.cpu_features or ())),
        ("cores of the CPU", str(machine.cpu_cores or "")),
    ]
    return [(label, fact) for label, fact in facts if fact]


def _print_quantity(name: str, quantity: Quantity) -> None:
    interval = "" if quantity.lo == quantity.hi else f"  ({_interval(quantity)})"
    click.echo(f"  {name} {_about(quantity)}{interval}")
    say(f"    condition: {quantity.condition}", indent=6)
    say(f"    source: {quantity.source}", indent=6)


def _print_reads(machine: Machine) -> None:
    """The measured bandwidths, one line per read size."""
    by_size: dict[float, list[str]] = {}
    for point in machine.storage.measured:
        by_size.setdefault(point.size_kib, []).append(f"{point.lanes}: {point.gb_s:.3g}")
    if by_size:
        click.echo("  measured GB/s, by reads in flight")
    for size_kib, points in by_size.items():
        say(f"    {size_kib:g} KiB: {', '.join(points)}", indent=6)
    for source in dict.fromkeys(point.source for point in machine.storage.measured):
        say(f"    source: {source}", indent=6)


def _decoding(machine: Machine) -> Quantity | None:
    """The rate at which the computing unit streams weights."""
    unit = machine.gpu or machine.cpu
    return unit.weights_gb_s if unit else None


def _short(quantity: Quantity | None) -> str:
    if quantity is None:
        return "-"
    return f"{'~' if quantity.estimated else ''}{quantity.value:{'.0f' if quantity.value >= 100 else '.3g'}}"


@command.command(short_help="The parts for machines.")
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
    columns: list[Column] = [
        ("part", "left", lambda part: part.name),
        ("kind", "left", lambda part: part.kind),
        ("what", "left", lambda part: part.title),
        ("GiB", "right", lambda part: _number(part, "memory_gib")),
        ("GB/s", "right", _rate),
    ]
    hint = (
        "GiB of a GPU's own memory; nominal GB/s of memory, a link or storage, and of the fastest memory that a "
        "CPU takes; ~ estimated. Put together: sim machine show 'rtx-3060 + ryzen-5600 + 64GiB + nvme-gen4'"
    )
    documents = [_document(part) for part in found]
    print_result({"parts": documents}, table(columns, found), hint, as_json=as_json)


@command.command(short_help="A machine's file, from parts.")
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
    rows = [
        (path, _about(quantity), _interval(quantity)) for path, quantity in machine.quantities() if quantity.estimated
    ]
    estimates = Table([("estimated", "left"), ("", "right"), ("90%", "right")], rows)
    document = {"out": str(out), "machine": asdict(machine), "notes": list(machine.notes)}
    notes = [Item(f"note: {note}", 2) for note in machine.notes]
    print_result(document, f"{out}: {machine.title}", estimates, *notes, as_json=as_json)


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
    return "-" if quantity is None else _about(quantity)


def _about(quantity: Quantity) -> str:
    return f"{'~' if quantity.estimated else ''}{plain(quantity.value)}"
