"""`sim bridge run`: the real runtime, in several modes and banks."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flashmoe_sim.cli.common import FiniteRange, force_option, json_option, message, print_json
from flashmoe_sim.io.errors import BadInput, SimError
from native_bridge.cli.options import read_prompt, runtime_option
from native_bridge.cli.progress import running
from native_bridge.cli.run_table import document_of, print_runs
from native_bridge.engines.table import ENGINES

if TYPE_CHECKING:
    from flashmoe_sim.geometry.model import ModelGeometry
    from native_bridge.engines.base import Mode
    from native_bridge.repeats import Planned

PROMPT = (
    "The runtime keeps a small bank of resident experts for every layer. When a token asks for an expert that is not "
    "in the bank, the bytes are read from disk and copied into a slot before the layer can run."
)
PREFETCHES = tuple(dict.fromkeys(name for engine in ENGINES.values() for name in engine.prefetches))
path = click.Path(path_type=Path)


@click.command(short_help="Run the runtime, in several modes and banks.")
@runtime_option
@click.option("--model", type=path, metavar="FILE", help="The GGUF file; default: the bundled small model.")
@click.option("--sidecar", type=path, help="The folder of its sidecar; the small model's is made beside the runs.")
@click.option("--out", required=True, type=path, help="The folder for the runs, one folder each.")
@click.option("--mode", "modes", default="slot-bank", show_default=True, metavar="A,B,…", help="The modes to run.")
@click.option("--bank", "banks", metavar="16,24,…", help="Slots of each layer, for the modes that have a bank.")
@click.option("--topk", "top_k", type=click.IntRange(1), help="Experts a token; by default the model's own.")
@click.option("--ubatch", type=click.IntRange(1), default=1, show_default=True, help="Tokens of a micro-batch.")
@click.option("--prefetch", type=click.Choice(PREFETCHES), help="The runtime's prefetch, in modes that have a bank.")
@click.option("--io-split", type=click.IntRange(1, 8), help="Chunks that a read is cut into; the runtime's own is 4.")
@click.option("--prompt", help="The prompt.")
@click.option("--prompt-file", type=path, help="A file with the prompt.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of its random choices.")
@click.option("--tokens", type=click.IntRange(1), default=100, show_default=True, help="Tokens to generate.")
@click.option("--threads", type=click.IntRange(1), help="Threads that compute; default: the physical cores.")
@click.option("--gpu-layers", metavar="N", help="Layers on the GPU, as the runtime's -ngl; its own default without it.")
@click.option("--replay", type=path, help="The run that the oracle modes replay, instead of one of this command.")
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True, help="Times to repeat all runs.")
@click.option(
    "--cache",
    type=click.Choice(["warm", "cold", "as-is"]),
    default="warm",
    show_default=True,
    help="State of the page cache before a run.",
)
@click.option(
    "--timeout", type=FiniteRange(1), default=3600.0, show_default=True, help="Time limit of a run, in seconds."
)
@click.argument("flags", nargs=-1, metavar="[-- RUNTIME_FLAGS...]")
@force_option
@json_option
def run(
    runtime: str | None,
    model: Path | None,
    sidecar: Path | None,
    out: Path,
    modes: str,
    banks: str | None,
    top_k: int | None,
    ubatch: int,
    prefetch: str | None,
    io_split: int | None,
    prompt: str | None,
    prompt_file: Path | None,
    seed: int,
    tokens: int,
    threads: int | None,
    gpu_layers: str | None,
    replay: Path | None,
    repeat: int,
    cache: str,
    timeout: float,
    flags: tuple[str, ...],
    force: bool,
    as_json: bool,
) -> None:
    """Run the patched llama.cpp in every given mode, at every given bank, and keep each run in a folder.

    Modes: stock (all experts resident), resident-bank, resident-slot-bank, slot-bank (experts are read from the
    sidecar), oracle-all-hit and oracle-prefetch (both replay the trace of a slot-bank run).

    A folder has run.json, log.txt, trace.jsonl.gz and text.txt, which `sim machine fit` and `sim sweep` read.

    With --cache warm the files of the experts are read before every run; with cold they are dropped from the page
    cache, and a run whose cache was not cold is refused. With --repeat all runs are made once, then all again.

    Flags of the runtime without an option here come after --, and are recorded: such as -- -fa off --no-mmap. If the
    same command is run again, it keeps the runs that it has made, and makes the others.

    \b
    Example: sim bridge run --out runs --mode stock,slot-bank,oracle-all-hit \\
                 --bank 16,32
    """
    from flashmoe_sim.geometry.gguf import read_gguf
    from native_bridge.engines.base import RunRequest
    from native_bridge.engines.table import find_runtime
    from native_bridge.host import physical_cores
    from native_bridge.repeats import check_plan, plan, requests_of, run_all, what_is_there

    described = find_runtime(runtime)
    known = ENGINES[described.engine].modes
    traced = [name for name, mode in known.items() if mode.traced]
    text = _prompt(prompt, prompt_file)

    def make(mode: str, bank: int) -> RunRequest:
        return RunRequest(
            mode,
            bank,
            text,
            n_predict=tokens,
            ubatch=ubatch,
            batch=max(64, ubatch),
            top_k=top_k or 0,
            prefetch=prefetch if mode in traced else None,
            io_split=io_split,
            seed=seed,
            threads=threads or physical_cores(),
            gpu_layers=gpu_layers,
            prompt_file=prompt_file,
            extra=flags,
        )

    write_sidecar_to = None
    if model is None:
        model, write_sidecar_to = _bundled(sidecar), out / "sidecar"
    names = tuple(dict.fromkeys(name.strip() for name in modes.split(",")))
    if prefetch is not None and (without := [name for name in names if name not in traced]):
        if len(without) == len(names):
            raise BadInput(
                f"--prefetch {prefetch}: no given mode supports it; add {' or '.join(traced)}, or leave it out"
            )
        message(f"{', '.join(without)}: without --prefetch, which only {' and '.join(traced)} have")
    requests = requests_of(names, _banks(banks), read_gguf(model), make, modes=known)
    planned = plan(requests, out, modes=known, repeat=repeat, replay=replay)
    geometry = check_plan(
        planned,
        runtime=described,
        model=model,
        sidecar=sidecar,
        cache=cache,
        force=force,
        write_sidecar_to=write_sidecar_to,
    )
    sidecar = sidecar or write_sidecar_to
    there = {"run": 0, "failed": 0}
    for one in [] if force else planned:
        if found := what_is_there(one, runtime=described, model=model, sidecar=sidecar, cache=cache):
            there[found] += 1
    if any(there.values()):
        message(f"reusing {there['run']} of {len(planned)} runs, repeating {there['failed']} that failed")
    _announce(planned[: len(requests)], repeat, cache, geometry, known)
    outcomes = []
    with running(len(geometry.layers)) as progress:
        runs = run_all(
            planned,
            runtime=described,
            model=model,
            sidecar=sidecar,
            timeout_s=timeout,
            cache=cache,
            force=force,
            progress=progress,
        )
        for one, outcome in runs:
            outcomes.append((one, outcome))
    failed = [outcome for _, outcome in outcomes if isinstance(outcome, SimError)]
    if as_json:
        print_json({"runs": [document_of(one, outcome) for one, outcome in outcomes]})
    elif len(failed) < len(outcomes):
        print_runs(outcomes, f"{geometry.name}, {cache} page cache")
    for error in failed[1:]:
        message(str(error))
    if failed:
        raise failed[0]


def _prompt(prompt: str | None, prompt_file: Path | None) -> str:
    if prompt_file is None:
        return PROMPT if prompt is None else prompt
    if prompt is not None:
        raise BadInput("--prompt and --prompt-file; give one of them")
    return read_prompt(prompt_file)


def _banks(text: str | None) -> tuple[int, ...]:
    from flashmoe_sim.policies.bank import parse_banks

    if text is None:
        return ()
    if not all(end.isascii() and end.isdigit() and int(end[:9]) for end in re.split(r",|\.\.", text.replace(" ", ""))):
        raise BadInput(f"--bank {text}: the runtime counts a bank in slots of each layer, from 1; give such as 16,32")
    return tuple(bank.size for bank in parse_banks(text))


def _bundled(sidecar: Path | None) -> Path:
    """The small bundled model, whose sidecar is written beside the runs."""
    if sidecar is not None:
        raise BadInput(f"{sidecar}: a sidecar without its model; give --model, too")
    from native_bridge.fixture import bundled_model

    return bundled_model()


def _announce(
    once: Sequence[Planned], repeat: int, cache: str, model: ModelGeometry, modes: Mapping[str, Mode]
) -> None:
    names = ", ".join(one.name for one in once)
    times = f", {repeat} times over" if repeat > 1 else ""
    count = len(once) * repeat
    plan = f"{count} run{'s' * (count > 1)} of {model.name}, page cache {cache}: {names}{times}"
    for line in textwrap.wrap(plan, 75, break_on_hyphens=False):
        message(line)
    for one in (one for one in once if modes[one.request.mode].banked):
        request = one.request
        union = request.ubatch * (request.top_k or model.top_k)
        if union > request.bank:
            message(f"{one.name}: {request.ubatch} tokens may ask for {union} experts; a run in which they do fails")
