"""`sim bridge check`: the runtime against the simulator's predictions."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flashmoe_sim.cli.common import force_option, json_option, message, print_json, print_table, wrapped
from flashmoe_sim.io.errors import BadInput, SimError
from flashmoe_sim.io.sections import Table

if TYPE_CHECKING:
    from native_bridge.check.result import Check, RunCheck


MOST_NAMES = 4
path = click.Path(path_type=Path)


@click.command(short_help="Compare recorded runs with the simulator's predictions, slot by slot.")
@click.argument("folders", nargs=-1, type=path, metavar="[RUN_FOLDER]...")
@click.option(
    "--model",
    metavar="SPEC",
    help="The model of all runs: a manifest, sidecar folder or GGUF file; default: a manifest.json beside the runs.",
)
@click.option(
    "--runtime", metavar="FILE", help="Make the runs first, with this patched llama-cli; default: FLASHMOE_RUNTIME."
)
@click.option("--sidecar", type=path, help="With --runtime: the folder of the model's sidecar; default: written.")
@click.option("--runs", type=path, help="With --runtime: folder for the runs.")
@click.option(
    "--threads", type=click.IntRange(1), help="With --runtime: threads that compute; default: the physical cores."
)
@click.option("--gpu-layers", metavar="N", help="With --runtime: layers on the GPU, as the runtime's -ngl.")
@click.option(
    "--anchor",
    "anchors",
    multiple=True,
    type=path,
    metavar="FOLDER",
    help="A run to predict seconds from; give two or more. Default: chosen for each run.",
)
@click.option("--out", type=path, help="Also write a report to this .html, one self-contained file.")
@force_option
@json_option
def check(
    folders: tuple[Path, ...],
    model: str | None,
    runtime: str | None,
    sidecar: Path | None,
    runs: Path | None,
    threads: int | None,
    gpu_layers: str | None,
    anchors: tuple[Path, ...],
    out: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Compare recorded runs of the patched runtime with the simulator's predictions.

    RUN_FOLDER is the folder of a run (run.json, log.txt and trace.jsonl.gz), or one of several such folders. Every slot
    of every routed call and every counter of the log must be equal; exit 1 if any is not, or if a run could not be
    compared. Seconds are predicted from other runs of the same machine, never from the run itself, and shown with their
    error; they never change the exit code.

    Without folders the runs are made first, in all modes, on --model (a GGUF file; by default the bundled small
    model), with --runtime or the one that FLASHMOE_RUNTIME names.

    \b
    Example: sim bridge check runs/ --out check.html
             sim bridge check --runtime build/bin/llama-cli --runs made/
    """
    from flashmoe_sim.cli.progress import replaying
    from flashmoe_sim.io.whole import refuse_existing
    from native_bridge.check.result import as_json as document
    from native_bridge.check.result import check_folders

    if out is not None:
        if out.suffix.lower() not in (".html", ".htm"):
            raise BadInput(f"{out}: the report is a web page; give --out a name that ends in .html")
        refuse_existing(out, force=force)
    command = shlex.join(
        ["sim", "bridge", "check", *_words(folders, model, runtime, sidecar, runs, threads, gpu_layers, anchors, out)]
    )
    if not folders:
        if runtime is None and not os.environ.get("FLASHMOE_RUNTIME"):
            raise BadInput("no RUN_FOLDER; give the folders of runs, or --runtime to make some")
        from native_bridge.check.make import made_runs

        with (
            made_runs(
                runtime,
                model=model,
                sidecar=sidecar,
                runs=runs,
                threads=threads,
                gpu_layers=gpu_layers,
                force=force,
                tell=message,
            ) as made,
            replaying() as progress,
        ):
            checked = check_folders(made.folders, model=str(made.model), anchors=anchors, progress=progress)
    elif any(option is not None for option in (runtime, sidecar, runs, threads, gpu_layers)):
        raise BadInput(
            "--runtime, --sidecar, --runs, --threads or --gpu-layers with RUN_FOLDER: runs are made or given; "
            "leave it out"
        )
    else:
        with replaying() as progress:
            checked = check_folders(folders, model=model, anchors=anchors, progress=progress)
    if out is not None:
        from native_bridge.check.page import write_page

        write_page(checked, out, command=command, force=force)
    if as_json:
        print_json(document(checked))
    else:
        _print(checked)
        if out is not None:
            message(f"wrote {out}")
    if checked.failed:
        names = [one.name for one in checked.failed]
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        raise SimError(f"{len(names)} of {len(checked.runs)} runs differ or could not be compared: {shown}")


def _words(
    folders: tuple[Path, ...],
    model: str | None,
    runtime: str | None,
    sidecar: Path | None,
    runs: Path | None,
    threads: int | None,
    gpu_layers: str | None,
    anchors: tuple[Path, ...],
    out: Path | None,
) -> list[str]:
    words = list(map(str, folders))
    given = [
        ("--model", model),
        ("--runtime", runtime),
        ("--sidecar", sidecar),
        ("--runs", runs),
        ("--threads", threads),
        ("--gpu-layers", gpu_layers),
    ]
    for option, value in given:
        words += [option, str(value)] if value is not None else []
    for anchor in anchors:
        words += ["--anchor", str(anchor)]
    return words + (["--out", str(out)] if out is not None else [])


def _print(checked: Check) -> None:
    from native_bridge.check.result import shown

    columns = [("run", "left"), ("mode", "left"), ("bank", "right"), ("slots", "right"), ("counts", "right")]
    columns += [("tok/s", "right"), ("measured", "right"), ("error", "right")]
    rows = []
    for of in checked.settings:
        one = of[0]
        run, seconds = one.counts.folder.run, one.seconds
        name = shown(of)
        slots = sum(each.counts.slots for each in of)
        bank = str(run.bank) if run.log.routed else "-"
        measured = f"{seconds.measured_tok_s:.4g}" if seconds.measured_tok_s else "-"
        speed = f"{seconds.tok_s:.4g}" if seconds.tok_s else "-"
        error = f"{seconds.error:+.1%}" if seconds.error is not None else "-"
        rows.append(
            (
                _broken(name, 19),
                _broken(run.mode, 15),
                bank,
                f"{slots:,}" if slots else "-",
                one.verdict,
                speed,
                measured,
                error,
            )
        )
    print_table(Table(columns, rows))
    for line in checked.in_short():
        click.echo(wrapped(line))
    for one in checked.runs:
        if one.counts.rounded:
            click.echo(wrapped(f"{one.name}: {one.counts.rounded}", indent=2))
    for one in checked.failed:
        for line in _failed_lines(one):
            click.echo(wrapped(line, indent=2))
    for line in _fitted_on(checked):
        click.echo(wrapped(line, indent=2))


def _failed_lines(one: RunCheck) -> list[str]:
    if one.counts.unlike:
        return [f"{one.name}: not compared: {one.counts.unlike}"]
    first, *others = one.counts.differences
    return [f"{one.name}: {first}" + (f"; {len(others)} more (--json has all)" if others else "")]


def _fitted_on(checked: Check) -> list[str]:
    """Which runs were predicted from which, and why others were not."""
    from native_bridge.check.result import shown

    groups: dict[str, list[str]] = {}
    for of in checked.settings:
        one = of[0]
        said = f"seconds from {', '.join(one.seconds.anchors)}" if one.seconds.anchors else ""
        why = one.seconds.why_not.replace(f" beside {one.counts.folder.name} itself", " beside it")
        groups.setdefault(said or f"no seconds: {why}", []).append(shown(of))
    return [
        f"{said}: {', '.join(names[:MOST_NAMES])}" + f" and {len(names) - MOST_NAMES} more" * (len(names) > MOST_NAMES)
        for said, names in groups.items()
    ]


def _broken(name: str, width: int) -> str:
    """A name in lines that break at its hyphens and spaces."""
    lines = [""]
    for part in re.split(r"(?<=[- ])", name):
        if lines[-1] and len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)
