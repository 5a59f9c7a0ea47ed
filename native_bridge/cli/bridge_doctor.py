"""`sim bridge doctor`: whether a run can be made here, and what is missing."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from flashmoe_sim.cli.common import json_option, print_json, print_table
from flashmoe_sim.io.errors import SimError
from flashmoe_sim.io.sections import Table
from native_bridge.cli.options import runtime_option

path = click.Path(path_type=Path)


@click.command(short_help="Check what a run of the runtime needs here.")
@runtime_option
@click.option("--model", type=path, metavar="FILE", help="The GGUF file to run; default: the bundled small model.")
@click.option("--sidecar", type=path, help="The folder of its sidecar, to be compared byte by byte.")
@click.option(
    "--bank", type=click.IntRange(1), metavar="N", help="Also check that a bank of N slots a layer fits into memory."
)
@json_option
def doctor(runtime: str | None, model: Path | None, sidecar: Path | None, bank: int | None, as_json: bool) -> None:
    """Check the runtime, the model, its sidecar, memory, disk and processor, and say what to do.

    Exits with 1 if something that a run needs is missing; a warning does not prevent a run.

    \b
    Example: sim bridge doctor --model model.gguf --sidecar sidecar --bank 64
    """
    from native_bridge.doctor import examine

    findings = examine(runtime=runtime, model=model, sidecar=sidecar, bank=bank)
    if as_json:
        print_json({"findings": [asdict(finding) for finding in findings]})
    else:
        rows = [(one.state, one.name, one.found, one.to_do) for one in findings]
        print_table(Table([("", "left"), ("what", "left"), ("found", "left"), ("to do", "left")], rows))
    if missing := [one.name for one in findings if one.state == "missing"]:
        raise SimError(f"missing for a run: {', '.join(missing)}; the table says what to do")
