"""`sim recommend --verify`: the recommended setting and its neighbours, run by the real runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from flashmoe_sim.cli import recommend
from flashmoe_sim.cli.common import KEPT_WHOLE, echo, message, print_table, wrapped
from flashmoe_sim.cli.workload import trace_and_model
from flashmoe_sim.io.errors import BadInput, SimError
from flashmoe_sim.io.numbers import three
from flashmoe_sim.io.sections import Table
from native_bridge.cli.options import read_prompt

if TYPE_CHECKING:
    from flashmoe_sim.geometry.model import ModelGeometry
    from flashmoe_sim.systems.base import System
    from native_bridge.verified import Measured, Verified

path = click.Path(path_type=Path)
OPTIONS = (
    click.Option(["--verify"], is_flag=True, help="Run it and its neighbours with the patched llama-cli, and compare."),
    click.Option(["--runtime"], metavar="FILE", help="The patched llama-cli for --verify; default: FLASHMOE_RUNTIME."),
    click.Option(["--gguf"], type=path, metavar="FILE", help="The file to run, if --model names none."),
    click.Option(["--sidecar"], type=path, help="The folder of its sidecar; default: written beside the runs."),
    click.Option(["--runs"], type=path, help="Folder for the runs; default: not kept."),
    click.Option(["--prompt-file"], type=path, help="A file with the prompt of the runs."),
    click.Option(["--rounds"], type=click.IntRange(3), default=3, show_default=True, help="Runs of each setting."),
    click.Option(
        ["--cache"],
        type=click.Choice(["warm", "cold", "as-is"]),
        default="warm",
        show_default=True,
        help="State of the page cache before a run.",
    ),
    click.Option(["--tokens"], type=click.IntRange(1), default=100, show_default=True, help="Tokens of a run."),
    click.Option(["--threads"], type=click.IntRange(1), help="Threads that compute; default: the physical cores."),
    click.Option(["--gpu-layers"], metavar="N", help="Layers on the GPU in the runs, as the runtime's -ngl."),
)


def attach(command: click.Command) -> click.Command:
    """A copy of the command with --verify and its options.

    command: its callback accepts `verified`, a function or None. It calls the function with the claims of `verify`
    after printing its own table, and adds the returned dictionary to its JSON document as `verified`. `model`, `force`
    and `as_json` are read from its options, if it has them.
    """
    callback = command.callback
    assert callback is not None

    def with_verify(**given: Any) -> None:
        own = {str(option.name): given.pop(str(option.name)) for option in OPTIONS}
        if own.pop("verify"):
            _verify(callback, given, **own)
            return
        source = click.get_current_context().get_parameter_source
        if idle := [name for name in own if source(name) is ParameterSource.COMMANDLINE]:
            raise BadInput(f"--{idle[0].replace('_', '-')} without --verify: nothing is run; add --verify")
        callback(**given)

    with_options = copy(command)
    with_options.callback = with_verify
    last = [option for option in command.params if option.name in ("force", "as_json")]
    with_options.params = [*(option for option in command.params if option not in last), *OPTIONS, *last]
    return with_options


def _verify(
    callback: Callable[..., Any],
    given: dict[str, Any],
    *,
    gguf: Path | None,
    runs: Path | None,
    prompt_file: Path | None,
    **options: Any,
) -> None:
    """Run the command, then its recommendation. Raises SimError, after everything is printed, if a run failed."""
    from flashmoe_sim.geometry.gguf import read_gguf
    from native_bridge.cli.progress import running
    from native_bridge.verified import as_json
    from native_bridge.verify import verify

    if "trace" in given:
        given["trace"], given["model"] = trace_and_model(given["trace"], given["model"])
    model = gguf or _file_of(given.get("model"))
    geometry = read_gguf(model)
    if gguf is not None and given.get("model") is not None:
        _refuse_another(geometry, given["model"], gguf)
    if prompt_file is not None:
        options["prompt"] = read_prompt(prompt_file)
    failed: list[str] = []

    def verified(claims: Sequence[tuple[System, float, float, float]]) -> dict[str, Any]:
        with running(len(geometry.layers)) as progress:
            found = verify(
                claims,
                model=model,
                place=runs,
                force=given.get("force", False),
                tell=message,
                progress=progress,
                **options,
            )
        if not given.get("as_json"):
            print_verified(found)
        failed.extend(found.failed)
        return as_json(found)

    callback(**given, verified=verified)
    for line in failed[1:]:
        message(line)
    if failed:
        raise SimError(failed[0])


def _file_of(model: str | None) -> Path:
    if model is None or not Path(model).is_file() or Path(model).suffix != ".gguf":
        raise BadInput(f"--verify runs a GGUF file; found --model {model or 'not given'}; give the file with --gguf")
    return Path(model)


def _refuse_another(geometry: ModelGeometry, named: str, gguf: Path) -> None:
    """Raise BadInput if the file's layers, experts or top-k differ from the recommendation's model."""
    from flashmoe_sim.geometry.load import load_model

    ours, theirs = (
        f"{len(one.layers)} layers of {max(layer.n_experts for layer in one.layers.values())} experts, top-{one.top_k}"
        for one in (geometry, load_model(named))
    )
    if ours != theirs:
        raise BadInput(f"--gguf {gguf}: has {ours}; --model {named} has {theirs}; give the same model twice")


def print_verified(verified: Verified) -> None:
    """Print a row for each setting, and the verdict."""
    columns = [("setting", "left"), ("predicted", "right"), ("90 %", "right"), ("measured", "right")]
    columns += [("lo to hi", "right"), ("held", "right"), ("counts", "right")]
    title = f"decode tok/s, {verified.rounds} rounds, {verified.model}, {verified.cache} page cache"
    print_table(Table(columns, [_row(one) for one in verified.settings], title=title))
    echo(wrapped(verified.in_short()))
    for one in verified.settings:
        for difference in one.differences[:1]:
            more = f"; {len(one.differences) - 1} more (--json has all)" if len(one.differences) > 1 else ""
            echo(wrapped(f"{one.name}: {difference}{more}", indent=2))


def _row(one: Measured) -> tuple[str, ...]:
    measured, claim = one.median_tok_s, one.claim
    return (
        one.name if len(one.name) <= KEPT_WHOLE else one.name.replace(":", ":\n"),
        three(claim.tok_s),
        f"{three(claim.tok_s_lo)} to {three(claim.tok_s_hi)}",
        "-" if measured is None else three(measured),
        f"{three(min(one.speeds))} to {three(max(one.speeds))}" if one.speeds else "-",
        {None: "-", True: "yes", False: "no"}[one.held],
        one.counts,
    )


command = attach(recommend.command)
