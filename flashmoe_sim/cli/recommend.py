"""`sim recommend`: what to run on a machine, with which flags, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.common import (
    echo,
    force_option,
    json_option,
    lenient_option,
    message,
    print_json,
    print_table,
    wrapped,
)
from flashmoe_sim.cli.options import asks, memory_options
from flashmoe_sim.cli.workload import load_workload, model_option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flashmoe_sim.report.sections import Section
    from flashmoe_sim.systems.base import System
    from flashmoe_sim.tune.recommend import Recommendation

SUFFIXES = (".md", ".html")


@click.command(name="recommend", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("trace", required=False, metavar="[TRACE]")
@model_option
@asks("machine", machine={"required": True})
@click.option(
    "--system",
    "systems",
    default="all",
    show_default=True,
    metavar="S,S",
    help="Choose among these systems, with settings if you like: slot-bank:top_k=4; see `sim system list`.",
)
@click.option(
    "--objective",
    type=click.Choice(["decode", "prompt", "both"]),
    default="decode",
    show_default=True,
    help="What to make fast: generating, reading a prompt, or a prompt and its answer.",
)
@click.option("--prompt-tokens", type=click.IntRange(1), metavar="P", help="Tokens of the prompt, for --objective.")
@click.option(
    "--answer-tokens",
    type=click.IntRange(1),
    default=500,
    show_default=True,
    metavar="N",
    help="Tokens of the answer, for --objective both.",
)
@asks(
    "dense",
    "context",
    "kv",
    "kv_type",
    context={"help": "Tokens of the context, which take the memory that the model tells; default: 4096."},
)
@memory_options
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the advice too, FILE.md or FILE.html, and beside it the files that its command line names.",
)
@force_option
@lenient_option
@json_option
def command(
    trace: str | None,
    model: str | None,
    machine: str,
    systems: str,
    objective: str,
    prompt_tokens: int | None,
    answer_tokens: int,
    dense: str | None,
    context: int | None,
    kv: str | None,
    kv_type: str | None,
    reserve: str | None,
    buffers: str | None,
    save: Path | None,
    force: bool,
    lenient: bool,
    as_json: bool,
    verified: Callable[[Sequence[tuple[System, float, float, float]]], dict[str, Any]] | None = None,
) -> None:
    """Recommend an engine and its flags for a model on a machine, with the evidence.

    TRACE is a file, or a name from `sim trace catalog`. Without one, a trace is made for --model that is like the
    bundled one of the nearest shape.

    \b
    Examples:  sim recommend gpt-oss-120b --machine rtx-4090
               sim recommend --model qwen3-30b-a3b --machine "rtx-3060 + 64GiB"
    """
    from flashmoe_sim.cli.progress import replaying
    from flashmoe_sim.geometry.load import load_model
    from flashmoe_sim.io.whole import refuse_existing
    from flashmoe_sim.machines.load import load_machine
    from flashmoe_sim.report.advice import document, sections
    from flashmoe_sim.tune.objective import Objective
    from flashmoe_sim.tune.told import recommend_as_told

    if save is not None:
        _check_suffix(save)
        refuse_existing(save, force=force)
    workload = None if trace is None else load_workload(trace, model, lenient=lenient)
    with replaying() as progress:
        found = recommend_as_told(
            workload=workload,
            model=None if model is None or workload is not None else load_model(model),
            machine=load_machine(machine),
            systems=systems,
            objective=Objective(goal=objective, prompt_tokens=prompt_tokens or 0, answer_tokens=answer_tokens),
            progress=progress,
            dense=dense,
            context=context,
            kv=kv,
            kv_type=kv_type,
            reserve=reserve,
            buffers=buffers,
        )
    if save is not None:
        found = _with_files(found, save, force=force)
    said = sections(found)
    if save is not None:
        _write(said, save, force=force)
        message(f"wrote {save}")
    if not as_json:
        _print(said)
    more = {} if verified is None else {"verified": verified(_claims(found))}
    if as_json:
        print_json(document(found) | more)


def _claims(found: Recommendation) -> list[tuple[System, float, float, float]]:
    """The recommended setting and its neighbours, each with its speed and interval."""
    from flashmoe_sim.tune.recommend import neighbours

    return [
        (one.system, one.tok_s, one.tok_s_lo, one.tok_s_hi)
        for one in neighbours(found)
        if one.tok_s is not None and one.tok_s_lo is not None and one.tok_s_hi is not None
    ]


def _check_suffix(save: Path) -> None:
    from flashmoe_sim.io.errors import BadInput

    if save.suffix not in SUFFIXES:
        raise BadInput(f"{save}: expected a name that ends in {' or '.join(SUFFIXES)}")


def _with_files(found: Recommendation, save: Path, *, force: bool) -> Recommendation:
    """The recommendation whose command line names the files that were written for it, beside the page."""
    from dataclasses import replace

    from flashmoe_sim.systems.files import write_files

    best = found.best.best
    own = None if found.borrowed else found.workload
    launch = write_files(best.system, found.case, own, save.parent, save.stem, force=force)
    for word in launch.words:
        if word.startswith(str(save.with_suffix(""))):
            message(f"wrote {word}")
    return replace(found, best=replace(found.best, best=replace(best, launch=launch)))


def _write(said: Sequence[Section], save: Path, *, force: bool) -> None:
    from flashmoe_sim.io.whole import atomic_writer
    from flashmoe_sim.report.sections import html, markdown

    page = html(said[0].title, said) if save.suffix == ".html" else markdown(said)
    with atomic_writer(save, force=force) as file:
        file.write(page.encode())


def _print(said: Sequence[Section]) -> None:
    from flashmoe_sim.report.sections import Command, Table

    for number, section in enumerate(said):
        if number:
            echo("")
        click.secho(wrapped(section.title), bold=True)
        for part in section.parts:
            if isinstance(part, Command):
                echo(f"    {part.line}")
            elif isinstance(part, Table):
                print_table(part.columns, part.rows)
            else:
                echo(wrapped(part))
