"""`sim machine fit`: a machine from recorded runs, or from rows of a published table."""

from __future__ import annotations

import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.common import force_option, json_option, message, print_json, print_table, wrapped
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.numbers import plain
from flashmoe_sim.io.sections import Table

if TYPE_CHECKING:
    from flashmoe_sim.machines.anchors import Anchor
    from flashmoe_sim.machines.fit import Observation
    from flashmoe_sim.machines.fitting import Fitted
    from flashmoe_sim.machines.machine import Quantity


@click.command(short_help="A machine from recorded runs, or from rows of a table.")
@click.argument("anchors", nargs=-1, required=True)
@click.option(
    "--model",
    metavar="SPEC",
    help="The model that ran: a manifest, sidecar folder, GGUF file or name; default: a manifest.json beside the runs.",
)
@click.option(
    "--row", "rows", multiple=True, metavar="COLUMN=VALUE", help="A row of the table; give one for each anchor."
)
@click.option(
    "--topk",
    "top_k",
    type=click.IntRange(1),
    metavar="K",
    help="Experts a token of the table's rows; else its column topk.",
)
@click.option(
    "--machine",
    metavar="X",
    help="With measured speeds: the machine on which they were measured, a name from `sim machine list`, a file, or "
    "parts.",
)
@click.option("--parameter", "parameters", multiple=True, metavar="NAME", help="A further number to fit.")
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The machine's file to write, a .toml.",
)
@force_option
@json_option
def fit(
    anchors: tuple[str, ...],
    model: str | None,
    rows: tuple[str, ...],
    top_k: int | None,
    machine: str | None,
    parameters: tuple[str, ...],
    out: Path,
    force: bool,
    as_json: bool,
) -> None:
    """Fit a machine on ANCHORS, and write it to a file for --machine.

    With --machine, ANCHORS are speeds measured on it: files that an engine or llama-bench printed, or texts such as
    "placed:cpu_layers=24=28.1". The file keeps what they taught, so that later commands need no --measured.

    ANCHORS are folders of runs of the patched runtime on one machine: run.json, log.txt and, if the run streamed,
    trace.jsonl.gz. At least two are needed, ideally a streamed one (slot-bank) and an all-hit one (oracle-all-hit or
    stock). Do
    not fit on the run that you want to predict.

    Or ANCHORS is one CSV file, with a --row for each anchor: columns decode_tok_s or tok_s, misses_per_call or
    hit_pct, and condition.

    Runs must be of one kind, all with a cold page cache or all with a warm one; files among the folders are left out.

    It fits layer_us and read_gb_s; resume_us if one run streams and one does not; first_touch_gb_s if an all-hit run
    records how long its bank took to fill; and pinned_gb_s if there are uploads. --parameter adds request_us (needs
    runs with two values of --moe-cache-io-split) or weights_gb_s (two values of --moe-topk).

    \b
    Example: sim machine fit bench.json --model gpt-oss-120b \\
                 --machine "rtx-3060 + 64GiB" --out mine.toml
             sim machine fit runs/bank12 runs/allhit --out mine.toml
             sim machine fit table.csv --row bank=16 --row bank=128 \\
                 --model qwen3.5-35b-a3b:ud-iq2_m --out published.toml
    """
    from flashmoe_sim.io.whole import refuse_existing
    from flashmoe_sim.machines.fitting import fit_rows
    from flashmoe_sim.machines.write import write_machine
    from native_bridge.fit_runs import fit_runs

    refuse_existing(out, force=force)
    if machine is not None:
        if rows or top_k is not None or parameters:
            raise BadInput("--machine: measured speeds take no --row, --topk or --parameter; leave them out")
        _learn(anchors, machine, model, out, force=force, as_json=as_json)
        return
    command = _command(anchors, model, rows, top_k, parameters, out)
    name = out.stem or "fitted"
    if rows:
        if len(anchors) != 1:
            raise BadInput(
                f"{len(anchors)} anchors with --row; expected one CSV file, of which the rows are the anchors"
            )
        if model is None:
            raise BadInput(f"{anchors[0]}: a table does not give layers and bytes; give --model")
        fitted = fit_rows(anchors[0], rows, name=name, command=command, model=model, top_k=top_k, parameters=parameters)
    else:
        if top_k is not None:
            raise BadInput("--topk without --row; a run records its own top-k; leave it out")
        if table := next((anchor for anchor in anchors if anchor.lower().endswith(".csv")), None):
            raise BadInput(f"{table}: a table without --row; choose its rows: --row bank=16 --row bank=128")
        fitted = fit_runs(_folders(anchors), name=name, command=command, model=model, parameters=parameters)
    write_machine(fitted.machine, out, force=force)
    if as_json:
        print_json(fitted_document(fitted, out))
    else:
        print_fitted(fitted)
        message(f"wrote {out}")


def _learn(measured: tuple[str, ...], name: str, model: str | None, out: Path, *, force: bool, as_json: bool) -> None:
    """Write the machine after measured speeds, and show what they changed."""
    from flashmoe_sim.geometry.load import load_model
    from flashmoe_sim.machines.load import load_machine
    from flashmoe_sim.machines.write import write_machine
    from flashmoe_sim.measured.learn import learn_from

    before = load_machine(name)
    found = learn_from(measured, before, model=None if model is None else load_model(model))
    write_machine(replace(found, name=out.stem or "measured"), out, force=force)
    old = dict(before.quantities())
    changed = [(path, old[path], new) for path, new in found.quantities() if new != old[path]]
    notes = () if found.learnt is None else found.learnt.notes
    if as_json:
        rows = [{"path": path, "before": asdict(one), "after": asdict(new)} for path, one, new in changed]
        print_json({"machine": str(out), "learnt": list(notes), "quantities": rows})
        return
    columns = [("", "left"), *((heading, "right") for heading in ("before", "90 %", "after", "90 % after"))]
    table = [(path, plain(one.value), _ends(one), plain(new.value), _ends(new)) for path, one, new in changed]
    print_table(Table(columns, table))
    for note in notes:
        click.echo(wrapped(note))
    message(f"wrote {out}")


def _ends(quantity: Quantity) -> str:
    return f"{plain(quantity.lo)} to {plain(quantity.hi)}"


def _folders(anchors: tuple[str, ...]) -> list[str]:
    """The anchors without files, such as the README.md that `runs/*` includes."""
    files = [anchor for anchor in anchors if Path(anchor).is_file()]
    if len(files) == len(anchors):
        return list(anchors)
    for file in files:
        message(f"{file}: not the folder of a run; left out")
    return [anchor for anchor in anchors if anchor not in files]


def _command(
    anchors: tuple[str, ...],
    model: str | None,
    rows: tuple[str, ...],
    top_k: int | None,
    parameters: tuple[str, ...],
    out: Path,
) -> str:
    """The command that repeats the fit."""
    words = ["sim", "machine", "fit", *anchors]
    for row in rows:
        words += ["--row", row]
    words += ["--model", model] if model is not None else []
    words += ["--topk", str(top_k)] if top_k is not None else []
    for parameter in parameters:
        words += ["--parameter", parameter]
    return shlex.join([*words, "--out", str(out)])


def _fitted_quantities(fitted: Fitted) -> list[tuple[str, str, Quantity]]:
    """Parameter, path and quantity of each fitted number."""
    quantities = fitted.machine.quantities()
    return [
        (parameter, path, quantity)
        for parameter in fitted.fit.parameters
        for path, quantity in quantities
        if path.endswith(f".{parameter}") and not path.startswith("link.request")
    ]


def _from(fitted: Fitted, parameter: str) -> list[str]:
    """The anchors that determine a parameter."""
    return [anchor.name for anchor in fitted.anchors if any(one.terms.get(parameter) for one in anchor.observations)]


def print_fitted(fitted: Fitted) -> None:
    """Print what was fitted, on which anchors, and the error on each."""
    machine = fitted.machine
    rows = [
        (
            path,
            plain(quantity.value),
            f"{plain(quantity.lo)} to {plain(quantity.hi)}",
            ", ".join(_from(fitted, parameter)),
        )
        for parameter, path, quantity in _fitted_quantities(fitted)
    ]
    call = machine.host.call_us
    if call.value:
        told = [anchor for anchor in fitted.anchors if anchor.call_s]
        told = [anchor for anchor in told if anchor.misses] or told
        names = ", ".join(anchor.name for anchor in told)
        rows.append(("host.call_us", plain(call.value), f"{plain(call.lo)} to {plain(call.hi)}", names))
    columns = [("fitted", "right"), ("90 % interval", "right"), ("on", "left")]
    print_table(Table([(machine.name, "left"), *columns], rows))
    residuals = []
    for anchor, one, residual in _observed(fitted):
        measured, again, unit = _shown(anchor, one, residual)
        residuals.append(
            (anchor.name, unit, plain(measured), plain(again), f"{round(again / measured - 1, 3) + 0.0:+.1%}")
        )
    headings = [("measured", "right"), ("fitted", "right"), ("error", "right")]
    print_table(Table([("anchor", "left"), ("of", "left"), *headings], residuals))
    for note in fitted.notes:
        click.echo(wrapped(f"note: {note}", indent=2))


def _observed(fitted: Fitted) -> list[tuple[Anchor, Observation, float]]:
    pairs = [(anchor, one) for anchor in fitted.anchors for one in anchor.observations]
    return [(*pair, float(residual)) for pair, residual in zip(pairs, fitted.fit.residual, strict=True)]


def _shown(anchor: Anchor, one: Observation, residual: float) -> tuple[float, float, str]:
    """Measured value, fitted value and unit of an equation, for display."""
    if one.of == "token":
        host_s = anchor.layers * anchor.call_s
        return anchor.tok_s, 1 / (one.seconds * (1 + residual) + host_s), "tok/s"
    installs = anchor.primed if one.of == "prime" else anchor.installs
    assert installs is not None
    each_ms = one.seconds / installs.count * 1e3
    return each_ms, each_ms * (1 + residual), f"ms an install, {one.of}"


def fitted_document(fitted: Fitted, out: Path) -> dict[str, Any]:
    """The same for --json."""
    import numpy as np

    found = fitted.fit
    spread = found.draws.std(axis=0)
    centred = (found.draws - found.draws.mean(axis=0)) / np.where(spread == 0, 1, spread)
    return {
        "out": str(out),
        "machine": asdict(fitted.machine),
        "fitted": [
            {"parameter": parameter, "path": path, "value": quantity.value, "lo": quantity.lo, "hi": quantity.hi}
            | {"anchors": _from(fitted, parameter)}
            for parameter, path, quantity in _fitted_quantities(fitted)
        ],
        "correlation": (centred.T @ centred / len(centred)).tolist(),
        "anchors": [
            {"name": anchor.name, "tok_s": anchor.tok_s, "layers": anchor.layers, "top_k": anchor.top_k}
            | {"misses_per_token": anchor.misses, "bytes_per_token": anchor.bytes_read}
            for anchor in fitted.anchors
        ],
        "residuals": [
            {"anchor": anchor.name, "of": one.of, "measured_s": one.seconds}
            | {"fitted_s": one.seconds * (1 + residual), "relative": residual, "relative_sd": one.relative_sd}
            for anchor, one, residual in _observed(fitted)
        ],
        "notes": list(fitted.notes),
    }
