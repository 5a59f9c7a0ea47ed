"""`sim model make-fixture`, `make-sidecar` and `verify-sidecar`: something to run for real."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.common import echo, force_option, json_option, message, print_json
from flashmoe_sim.cli.progress import over_bytes
from flashmoe_sim.io.errors import BadInput, SimError
from flashmoe_sim.io.sizes import size

if TYPE_CHECKING:
    from native_bridge.fixture.model import FixtureShape

PATH = click.Path(path_type=Path)
model_argument = click.argument("model", type=PATH)


@click.command("make-fixture", short_help="Write a small model and its sidecar, to run for real.")
@click.option(
    "--size",
    "named",
    type=click.Choice(["tiny", "seconds"]),
    help="tiny: the trained model that ships, 9 MB. seconds: random weights, 1.3 GB, large enough to time reads. "
    "Default: tiny, unless sizes are given.",
)
@click.option("--layers", type=int, metavar="N", help="MoE layers (12).")
@click.option("--experts", "n_experts", type=int, metavar="N", help="Experts a layer (64).")
@click.option("--topk", "top_k", type=int, metavar="K", help="Experts a token (8).")
@click.option("--width", type=int, metavar="N", help="Weights of a hidden state (1024).")
@click.option("--expert-width", type=int, metavar="N", help="Weights of an expert's inner state (512).")
@click.option("--vocabulary", type=int, metavar="N", help="Tokens, 257 to 4096 (4096).")
@click.option("--quant", metavar="TYPE", help="Storage type of the experts: Q8_0, F16, Q4_0 or MXFP4 (Q8_0).")
@click.option(
    "--arch", metavar="NAME", help="Architecture: qwen35moe, or gemma4, whose bank can be on a GPU (qwen35moe)."
)
@click.option("--seed", type=int, metavar="N", help="Seed of the random weights (1).")
@click.option("--out", type=PATH, required=True, metavar="DIR", help="Folder for model.gguf and sidecar/.")
@click.option("--sidecar/--no-sidecar", default=True, show_default=True, help="Write the sidecar, too.")
@force_option
@json_option
def make_fixture(named: str | None, out: Path, sidecar: bool, force: bool, as_json: bool, **numbers: Any) -> None:
    """Write a model that the patched runtime streams, and its sidecar.

    \b
    Example: sim model make-fixture --out fixture
             sim model make-fixture --size seconds --out fixture-1g
             sim model make-fixture --layers 4 --experts 128 --quant MXFP4 --out x
    """
    from native_bridge.fixture import make

    shape = _shape(named, {name: value for name, value in numbers.items() if value is not None})
    model_bytes, sidecar_bytes = make.sizes(shape)
    with over_bytes(f"writing {out}", model_bytes + sidecar_bytes * sidecar) as advance:
        make.make_fixture(out, shape, sidecar=sidecar, force=force, advance=advance)
    _report(out / make.MODEL, out / make.SIDECAR if sidecar else None, as_json=as_json)


@click.command("make-sidecar", short_help="Write the sidecar of a model.")
@model_argument
@click.option("--out", type=PATH, required=True, metavar="DIR", help="Folder for manifest.json and a file a layer.")
@force_option
@json_option
def make_sidecar(model: Path, out: Path, force: bool, as_json: bool) -> None:
    """Write the routed experts of a GGUF model in the form that the patched runtime streams.

    MODEL is a GGUF file, any one of a split model. The sidecar is as large as the model's routed experts.

    \b
    Example: sim model make-sidecar Qwen3.5-35B-A3B-Q4_K_M.gguf --out sidecar
    """
    from flashmoe_sim.geometry.gguf import read_gguf
    from flashmoe_sim.systems.slot_bank_flags import STREAMED
    from native_bridge.fixture.sidecar import write_sidecar

    geometry = read_gguf(model)
    if geometry.arch not in STREAMED:
        message(
            f"{model}: the runtime streams {', '.join(STREAMED)}; of {geometry.arch} it takes a sidecar only resident"
        )
    with over_bytes(f"writing {out}", geometry.routed_bytes) as advance:
        write_sidecar(model, out, force=force, advance=advance)
    _report(model, out, as_json=as_json)


@click.command("verify-sidecar", short_help="Compare a sidecar with its model.")
@click.argument("sidecar", type=PATH)
@click.option("--model", type=PATH, required=True, metavar="FILE", help="The GGUF file, any one of a split model.")
@click.option("--full", is_flag=True, help="Compare every byte; default: some pages of each tensor over 256 MiB.")
@json_option
def verify_sidecar(sidecar: Path, model: Path, full: bool, as_json: bool) -> None:
    """Compare a sidecar with its model; exit 1 if they differ.

    \b
    Example: sim model verify-sidecar fixture/sidecar --model fixture/model.gguf
    """
    from flashmoe_sim.geometry.manifest import read_manifest
    from native_bridge.fixture import verify

    geometry = read_manifest(sidecar)
    compared = verify.compared_bytes(geometry, full=full)
    with over_bytes(f"comparing {sidecar}", compared) as advance:
        findings = verify.verify_sidecar(sidecar, model, full=full, advance=advance)
    every = compared == geometry.routed_bytes
    if as_json:
        document = {"sidecar": str(sidecar), "model": str(model), "verified": not findings}
        print_json({**document, "compared": "every byte" if every else "sampled pages", "findings": findings})
    else:
        for finding in findings:
            echo(finding)
    if findings:
        raise SimError(f"{sidecar}: {len(findings)} finding{'' if len(findings) == 1 else 's'}")
    if not as_json:
        how = "every byte" if every else f"pages of each tensor, {size(compared)}; --full compares every byte"
        echo(f"{sidecar}: verified, {len(geometry.layers)} layers, {size(geometry.routed_bytes)}; compared {how}")


def _shape(named: str | None, numbers: dict[str, Any]) -> FixtureShape | None:
    """The requested model; None for the bundled one."""
    from native_bridge.fixture.model import FixtureShape

    if named == "tiny" and numbers:
        given = ", ".join(f"--{name.removeprefix('n_').replace('_', '-')}" for name in numbers).replace("top-k", "topk")
        raise BadInput(f"{given}: the tiny model is as it is; leave out --size tiny to make one")
    return None if named != "seconds" and not numbers else FixtureShape(**numbers)


def _report(model: Path, sidecar: Path | None, *, as_json: bool) -> None:
    """Print what was written, and what to do with it."""
    from flashmoe_sim.geometry.gguf import read_gguf

    geometry = read_gguf(model)
    layer = next(iter(geometry.layers.values()))
    doctor = ["sim", "bridge", "doctor", "--model", str(model), *(["--sidecar", str(sidecar)] if sidecar else [])]
    if as_json:
        document = {
            "model": str(model),
            "model_bytes": model.stat().st_size,
            "sidecar": str(sidecar) if sidecar else None,
            "routed_bytes": geometry.routed_bytes,
            "layers": len(geometry.layers),
            "n_experts": layer.n_experts,
            "top_k": geometry.top_k,
            "quant": geometry.quant,
            "next": shlex.join(doctor),
        }
        print_json(document)
        return
    echo(
        f"{model}: {geometry.name}, {len(geometry.layers)} MoE layers of {layer.n_experts} experts, "
        f"top-{geometry.top_k}, {geometry.quant}, {size(model.stat().st_size)}"
    )
    if sidecar:
        echo(f"{sidecar}: {len(geometry.layers)} layer files, {size(geometry.routed_bytes)}")
    echo(f"next: {shlex.join(doctor)}")


COMMANDS = (make_fixture, make_sidecar, verify_sidecar)
