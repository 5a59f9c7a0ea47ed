"""`sim machine probe`: storage, memory and the link to a GPU, measured on this machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.common import FiniteRange, force_option, json_option, message, print_json, print_table, wrapped
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sections import Table
from flashmoe_sim.io.sizes import size

if TYPE_CHECKING:
    from flashmoe_sim.machines.machine import Machine
    from native_bridge.probe.estimate import Estimate
    from native_bridge.probe.probe import Probed

MOST_SECONDS = 3600.0
ERASE = "\r\x1b[K"  # clears the line


@click.command(short_help="A machine of your own, measured: storage, memory and link.")
@click.option("--folder", required=True, type=click.Path(path_type=Path), help="A folder on the disk to measure.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The machine's file to write, a .toml.")
@click.option(
    "--model",
    metavar="SPEC",
    help="Read in sizes of this model's experts: a manifest, sidecar folder, GGUF file or name.",
)
@click.option("--expert-bytes", metavar="SIZE", help="Read pieces of this size, such as 1MiB.")
@click.option("--seconds", type=FiniteRange(1, MOST_SECONDS), default=60, show_default=True, help="Time limit.")
@click.option(
    "--max-bytes", metavar="SIZE", default="8GiB", show_default=True, help="Most bytes to write to the folder."
)
@click.option("--fio/--no-fio", "use_fio", default=True, help="Whether to read with fio if it is installed.")
@click.option(
    "--gpu/--no-gpu", "use_gpu", default=None, help="Whether to copy to a CUDA device; default: if there is one."
)
@force_option
@json_option
def probe(
    folder: Path,
    out: Path,
    model: str | None,
    expert_bytes: str | None,
    seconds: float,
    max_bytes: str,
    use_fio: bool,
    use_gpu: bool | None,
    force: bool,
    as_json: bool,
) -> None:
    """Measure this machine, and write it to a file for --machine.

    It measures direct reads of a new file in --folder, by size and by reads in flight; copies in memory and from the
    page cache; and copies to a CUDA device if cupy or torch is installed. The file is removed at the end, even after
    Ctrl-C. The speed of computing needs runs of a model: `sim machine fit`, or `sim bridge calibrate`.

    \b
    Example: sim machine probe --folder /mnt/models --out mine.toml
             sim machine probe --folder . --model qwen3.5-35b-a3b --out mine.toml
    """
    from datetime import date

    from flashmoe_sim.geometry.load import load_model
    from flashmoe_sim.io.whole import refuse_existing
    from flashmoe_sim.machines.write import write_machine
    from native_bridge.probe.as_machine import as_machine
    from native_bridge.probe.probe import probe as measure
    from native_bridge.probe.storage import SIZES, sizes_of, sizes_of_expert

    refuse_existing(out, force=force)
    if not out.absolute().parent.is_dir():
        raise BadInput(f"{out}: its folder does not exist; make it, or give another --out")
    if model is not None and expert_bytes is not None:
        raise BadInput("--model and --expert-bytes: give one of them; a model gives the sizes of its experts")
    if model is not None:
        sizes = sizes_of(load_model(model))
    else:
        sizes = SIZES if expert_bytes is None else sizes_of_expert(_size("--expert-bytes", expert_bytes))
    with _progress(seconds) as tell:
        found = measure(
            folder,
            sizes,
            seconds=seconds,
            most_bytes=_size("--max-bytes", max_bytes),
            use_fio=use_fio,
            use_gpu=use_gpu,
            tell=tell,
        )
    machine = as_machine(found, name=out.stem or "probed", today=date.today())
    write_machine(machine, out, force=force)
    if as_json:
        print_json(_document(found, machine, out))
    else:
        _print(found, machine)
        message(f"wrote {out}")


def _size(option: str, text: str) -> int:
    from flashmoe_sim.io.sizes import parse_size

    parsed = parse_size(text)
    if parsed is None:
        raise BadInput(f"{option} {text!r}: expected a size, such as 512MiB or 8GiB")
    return parsed


@contextmanager
def _progress(seconds: float) -> Iterator[Callable[[str], None]]:
    """Shows the current work and the time left in one line on stderr; silent if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda what: None
        return
    end = time.monotonic() + seconds

    def tell(what: str) -> None:
        left_s = max(end - time.monotonic(), 0)
        click.echo(f"{ERASE}sim: {what}, {left_s:.0f} s left", nl=False, err=True)

    try:
        yield tell
    finally:
        click.echo(ERASE, nl=False, err=True)


def _print(found: Probed, machine: Machine) -> None:
    storage = found.storage
    click.echo(wrapped(f"{machine.name}: {machine.title}"))
    click.echo(
        wrapped(
            f"storage: {size(found.written_bytes)} written at {found.write_gb_s:.3g} GB/s, read by {storage.how}; "
            f"{storage.condition}"
        )
        + "\n"
    )
    depths = sorted({point.depth for point in storage.points})
    cells = {(point.size_bytes, point.depth): _cell(point.gb_s) for point in storage.points}
    rows = [
        (size(size_bytes), *(cells.get((size_bytes, depth), "-") for depth in depths))
        for size_bytes in sorted({point.size_bytes for point in storage.points})
    ]
    columns = [("reads", "left"), *((f"{depth} in flight", "right") for depth in depths)]
    print_table(Table(columns, rows, caption="GB/s, median of the rounds and its 90 % interval"))
    quantities = [
        (path, f"{'~' if one.estimated else ''}{one.value:.4g}", f"{one.lo:.4g} to {one.hi:.4g}", one.condition)
        for path, one in machine.quantities()
    ]
    print_table(
        Table([("number", "left"), ("value", "right"), ("90 % interval", "right"), ("condition", "left")], quantities)
    )
    for note in found.notes:
        click.echo(wrapped(f"note: {note}", indent=2))


def _cell(gb_s: Estimate) -> str:
    """A number narrow enough for four columns."""
    value, lo, hi = (f"{one:.{2 if one < 10 else 1 if one < 100 else 0}f}" for one in (gb_s.value, gb_s.lo, gb_s.hi))
    return f"{value} {lo}-{hi}"


def _document(found: Probed, machine: Machine, out: Path) -> dict[str, Any]:
    document = asdict(found)
    if document["gpu"] is not None:
        del document["gpu"]["copier"]
    return {"out": str(out), "machine": asdict(machine), "found": document}
