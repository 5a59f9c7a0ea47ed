"""`sim recommend`: what to run on a machine, with which flags, and why."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.commands import of_verb
from flashmoe_sim.cli.common import (
    force_option,
    json_option,
    lenient_option,
    message,
    print_json,
    print_result,
    print_sections,
)
from flashmoe_sim.cli.workload import load_workload, trace_and_model, with_trace
from flashmoe_sim.io.cells import Column, brief_interval, speed, table
from flashmoe_sim.io.errors import Conflict, Malformed
from flashmoe_sim.verbs.recommend import Recommend

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flashmoe_sim.io.sections import Part
    from flashmoe_sim.systems.base import System
    from flashmoe_sim.tune.many import Cells
    from flashmoe_sim.tune.recommend import Recommendation

SUFFIXES = (".md", ".html")


@click.command(name="recommend")
@of_verb(Recommend)
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the advice to FILE.md or FILE.html, and beside it the files that its command line names.",
)
@force_option
@lenient_option
@json_option
def command(
    question: Recommend,
    *,
    save: Path | None,
    force: bool,
    lenient: bool,
    as_json: bool,
    verified: Callable[[Sequence[tuple[System, float, float, float]]], dict[str, Any]] | None = None,
) -> None:
    """Recommend an engine and its flags for a model on a machine, with the evidence.

    TRACE is a file, or a name from `sim trace catalog`. Without one, or with a model's name in its place, a trace is
    made for that model, like bundled ones of other models.

    \b
    Examples:  sim recommend gpt-oss-120b --machine rtx-4090
               sim recommend --model qwen3-30b-a3b --machine "rtx-3060 + 64GiB"
               sim recommend gpt-oss-120b --buy --target 20 \\
                   --machine "rtx-3060 + ryzen-5600 + 32GiB + nvme-gen4"
               sim recommend gpt-oss-120b --machine all
    """
    from flashmoe_sim.cli.progress import working
    from flashmoe_sim.io.whole import refuse_existing
    from flashmoe_sim.machines.load import machines_in
    from flashmoe_sim.machines.table import PRESETS
    from flashmoe_sim.report.advice import sections
    from flashmoe_sim.report.advice_json import document
    from flashmoe_sim.systems.files import possible_files

    trace, model = trace_and_model(question.trace, question.model)
    if save is not None:
        if save.suffix not in SUFFIXES:
            raise Malformed(f"{save}: expected a name that ends in {' or '.join(SUFFIXES)}")
        earlier = any(save.with_suffix(suffix).exists() for suffix in SUFFIXES)  # whose files may well be the same
        for path in (save, *([] if earlier else possible_files(save.parent, save.stem))):
            refuse_existing(path, force=force)
    machines = list(PRESETS) if question.machine == "all" else machines_in(str(question.machine))
    models = [] if model is None else [name.strip() for name in str(model).split(",")]
    for flag, text, names in (("--machine", question.machine, machines), ("--model", model, models)):
        if "" in names:
            raise Malformed(f"{flag} {text!r}: an empty name; give names with commas between them")
    if trace is not None and len(models) > 1:
        raise Conflict("a trace is of one model; leave it out to compare models")
    if len(machines) > 1 or len(models) > 1:
        if question.also or question.buy or save is not None or verified is not None or question.objective != "decode":
            raise Conflict("several machines or models make one table; give one of each for the full advice")
        question = with_trace(question, lenient=lenient)
        with working("replaying") as progress:
            cells = question.run_each(machines, models, progress)
        rows = {"rows": [cell.as_row() for cell in cells.cells], "evaluations": cells.evaluations}
        print_result(rows, *_fastest(cells, of_machines=len(machines) > 1), as_json=as_json)
        return
    others = [load_workload(str(other), model, lenient=lenient) for other in question.also]
    question = with_trace(replace(question, also=others), lenient=lenient)
    with working("replaying") as progress:
        found = question.run(progress)
    if save is not None:
        found = _saved(found, save, force=force)
    if not as_json:
        print_sections(sections(found))
    more = {} if verified is None else {"verified": verified(_claims(found))}
    if as_json:
        print_json(document(found) | more)


def _fastest(cells: Cells, *, of_machines: bool) -> list[Part]:
    """The fastest system for each machine or model, and its command line."""
    name = attrgetter("machine" if of_machines else "model")
    columns: list[Column] = [
        ("machine" if of_machines else "model", "left", name),
        ("setting", "left", lambda cell: cell.found.system.spec),
        ("tok/s", "right", lambda cell: speed(cell.found.tok_s)),
        ("90%", "right", lambda cell: brief_interval(cell.found.tok_s_lo, cell.found.tok_s_hi)),
    ]
    ran = [cell for cell in cells.fastest if cell.found.tok_s is not None]
    cannot = [name(cell) for cell in cells.fastest if cell.found.tok_s is None]
    title = cells.cells[0].model if of_machines else cells.cells[0].machine
    made = table(columns, ran, title=title, caption=f"{cells.evaluations} settings were timed")
    return [made, *([f"nothing runs: {', '.join(cannot)}"] if cannot else [])]


def _claims(found: Recommendation) -> list[tuple[System, float, float, float]]:
    """The recommended setting and its neighbours, each with its speed and interval."""
    from flashmoe_sim.tune.recommend import neighbours

    return [
        (one.system, one.tok_s, one.tok_s_lo, one.tok_s_hi)
        for one in neighbours(found)
        if one.tok_s is not None and one.tok_s_lo is not None and one.tok_s_hi is not None
    ]


def _saved(found: Recommendation, save: Path, *, force: bool) -> Recommendation:
    """Write the page and, beside it, the files that its command line then names."""
    from flashmoe_sim.io.sections import markdown
    from flashmoe_sim.report.advice import sections
    from flashmoe_sim.report.page import html
    from flashmoe_sim.systems.files import with_files, write_together

    best = found.best.best
    own = None if found.borrowed else found.workload

    def in_folder(folder: Path) -> tuple[Recommendation, dict[Path, bytes]]:
        launch, files = with_files(best.system, found.case, own, folder, save.stem)
        return replace(found, best=replace(found.best, best=replace(best, launch=launch))), files

    content = sections(in_folder(Path())[0])  # in the page, whose reader has another folder, files have no path
    page = html(content[0].title, content) if save.suffix == ".html" else markdown(content)
    found, files = in_folder(save.parent)
    files[save] = page.encode()
    write_together(files, force=force)
    for path in files:
        message(f"wrote {path}")
    return found
