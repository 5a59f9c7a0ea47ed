"""`sim bridge calibrate`: a machine from runs made for it, or from recorded ones."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from flashmoe_sim.cli.common import force_option, json_option, message, print_json, wrapped
from flashmoe_sim.io.errors import BadInput, unknown_name
from native_bridge.cli.options import runtime_option

path = click.Path(path_type=Path)


@click.command(short_help="Make runs on this machine, and fit it to them.")
@click.argument("folders", nargs=-1, type=path, metavar="[RUN_FOLDER]...")
@click.option(
    "--from", "first", type=path, metavar="RUN_FOLDER", help="Choose among recorded runs instead of making runs."
)
@runtime_option
@click.option(
    "--model",
    metavar="FILE",
    help="The GGUF file to run; default: the bundled small model, too small to load a disk.",
)
@click.option("--sidecar", type=path, help="The folder of its sidecar; default: written beside the runs.")
@click.option("--out", required=True, type=path, help="The machine's file to write, a .toml.")
@click.option("--runs", type=path, help="Folder for the runs; default: NAME-runs beside --out.")
@click.option(
    "--bank", type=click.IntRange(1), help="Slots of the run with few slots; default: a fifth of the experts."
)
@click.option(
    "--cache", type=click.Choice(["warm", "cold", "as-is"]), help="State of the page cache; default for new runs: warm."
)
@click.option("--repeat", type=click.IntRange(1), default=3, show_default=True, help="Times to make each run.")
@click.option(
    "--tokens", type=click.IntRange(1), default=100, show_default=True, help="Tokens to generate in each run."
)
@click.option("--threads", type=click.IntRange(1), help="Threads that compute; default: the physical cores.")
@click.option("--gpu-layers", metavar="N", help="Layers on the GPU, as the runtime's -ngl.")
@click.option("--parameter", "parameters", multiple=True, metavar="NAME", help="A further number to fit.")
@force_option
@json_option
def calibrate(
    folders: tuple[Path, ...],
    first: Path | None,
    runtime: str | None,
    model: str | None,
    sidecar: Path | None,
    out: Path,
    runs: Path | None,
    bank: int | None,
    cache: str | None,
    repeat: int,
    tokens: int,
    threads: int | None,
    gpu_layers: str | None,
    parameters: tuple[str, ...],
    force: bool,
    as_json: bool,
) -> None:
    """Fit this machine, and write it to a file for --machine.

    It makes three runs, each --repeat times, in turns: one that streams experts (slot-bank) through few slots, one with
    a slot for every expert, and a replay of its trace with all experts resident (oracle-all-hit).
    --parameter request_us adds the first run with another io-split, and weights_gb_s a run with half the experts per
    token. The runs are kept.

    With --from RUN_FOLDER... nothing is run: the anchors are chosen from recorded runs (a folder of run folders will
    do): the one with the most misses, the best all-hit one and, among the other streamed ones, the one with the most
    first fills, with the repeats of each. The rest is like `sim machine fit`.

    \b
    Example: sim bridge calibrate --model big.gguf --cache cold --out mine.toml
             sim bridge calibrate --from runs/ --cache warm --out mine.toml
    """
    from flashmoe_sim.io.whole import refuse_existing
    from flashmoe_sim.machines.unknowns import UNKNOWNS
    from flashmoe_sim.machines.write import write_machine
    from native_bridge.calibrate import anchors_among
    from native_bridge.cli.machine_fit import fitted_document, print_fitted
    from native_bridge.fit_runs import fit_runs

    refuse_existing(out, force=force)
    for parameter in parameters:
        if parameter not in UNKNOWNS:
            raise unknown_name("parameter", parameter, UNKNOWNS)
    if first is not None:
        made = [name for name, value in (("--runtime", runtime), ("--runs", runs), ("--bank", bank)) if value]
        if made:
            raise BadInput(f"{made[0]} with --from: nothing is run; leave one of them out")
        anchors = anchors_among([first, *folders], model=model, cache=cache, parameters=parameters)
    elif folders:
        raise BadInput(f"{folders[0]}: a folder without --from; give --from {folders[0]} to fit on recorded runs")
    else:
        from native_bridge.calibrate_runs import make_anchors

        made_ = make_anchors(
            runtime,
            model=model,
            sidecar=sidecar,
            place=runs or out.with_name(f"{out.stem}-runs"),
            bank=bank,
            cache=cache or "warm",
            repeat=repeat,
            tokens=tokens,
            threads=threads,
            gpu_layers=gpu_layers,
            parameters=parameters,
            force=force,
            tell=message,
        )
        anchors, model = made_.folders, str(made_.model)
    command = ["sim", "machine", "fit", *map(str, anchors)] + (["--model", model] if model else [])
    for parameter in parameters:
        command += ["--parameter", parameter]
    fitted = fit_runs(
        anchors,
        name=out.stem or "fitted",
        command=shlex.join([*command, "--out", str(out)]),
        model=model,
        parameters=parameters,
    )
    write_machine(fitted.machine, out, force=force)
    if as_json:
        print_json({"runs": [str(anchor) for anchor in anchors]} | fitted_document(fitted, out))
    else:
        print_fitted(fitted)
        click.echo(wrapped(f"fitted on {', '.join(map(str, anchors))}", indent=2))
        message(f"wrote {out}")
