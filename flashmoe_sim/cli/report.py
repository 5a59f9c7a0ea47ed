"""`sim report`: one page with everything, to send to a colleague."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.common import force_option, json_option, lenient_option, message, print_json
from flashmoe_sim.cli.figure_files import FigureFiles
from flashmoe_sim.cli.options import of_verb
from flashmoe_sim.cli.workload import load_workload
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.verbs.report import Report

if TYPE_CHECKING:
    from flashmoe_sim.residency.workload import Workload

PAGES = (".html", ".htm")


@click.command(name="report", context_settings={"help_option_names": ["-h", "--help"]})
@of_verb(Report)
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="FILE", help="The page to write, FILE.html."
)
@of_verb(FigureFiles, "figures")
@force_option
@lenient_option
@json_option
def command(
    asked: Report,
    *,
    out: Path,
    figures: FigureFiles,
    force: bool,
    lenient: bool,
    as_json: bool,
) -> None:
    """Write one web page with the answer, its figures and the evidence; it needs no network.

    RESULTS is a folder written by `sim sweep --out`: the page shows its rows. TRACE is a file, or a name from `sim
    trace catalog`. Alone, it is swept for the page; after RESULTS, it is a trace from the sweep, and adds what only a
    trace can show. A bundled trace need not be given after RESULTS. With --model alone, or a model's name, a trace is
    made for that model, like bundled ones of other models.

    \b
    Examples:  sim report python-256 --out report.html
               sim report gpt-oss-120b --machine rtx-4090 --out report.html
               sim report glm-4.5-air --machine rtx-4090 --out report.html
               sim report results/ my.jsonl --out report.html --figures figures/ \\
               --format pdf,csv --size 3.3in --font-size 8 --no-titles
    """
    from flashmoe_sim.cli.progress import stages
    from flashmoe_sim.io.whole import refuse_existing
    from flashmoe_sim.report.page import check_installed, html
    from flashmoe_sim.systems.files import write_together

    if out.suffix.lower() not in PAGES:
        raise BadInput(f"{out}: the report is a web page; give --out a name that ends in .html")
    refuse_existing(out, force=force)
    figures.check()
    check_installed()
    figures.check_font()
    from flashmoe_sim.report.report import sections
    from flashmoe_sim.residency.workload import names_model

    if asked.model is None and len(asked.sources) == 1 and names_model(asked.sources[0]):
        asked = replace(asked, sources=(), model=asked.sources[0])
    rows, workloads = _read(asked.sources, asked.model, lenient=lenient)
    with stages() as progress:
        found = asked.gather(rows, workloads, progress)
        content = sections(found, command=_again())
        page = html(content[0].title, content)
        files = figures.drawn(content, force=force)
    files[out] = page.encode()
    with figures.folder_made():
        write_together(files, force=force)
    names = [str(path) for path in files if path != out]
    if as_json:
        titles = [{"title": one.title, "figures": [figure.name for figure in one.figures]} for one in content]
        print_json({"path": str(out), "bytes": len(files[out]), "sections": titles, "figures": names})
        return
    message(f"wrote {out}, {len(files[out]) / 1e6:.1f} MB, {sum(len(one.figures) for one in content)} figures")
    if figures.folder is not None:
        message(f"wrote {len(names)} files to {figures.folder}")


def _read(sources: tuple[str, ...], model: Any, *, lenient: bool) -> tuple[list[dict[str, Any]], list[Workload]]:
    """The rows of the folders of results, and the traces that are given or in the catalogue."""
    from flashmoe_sim.report.results import bundled_traces, check_swept, is_results, read_results

    folders = [Path(source) for source in sources if is_results(Path(source))]
    if len(folders) > 1:
        raise BadInput(f"{folders[1]}: a second folder of results; one page shows one folder")
    traces = [source for source in sources if Path(source) not in folders]
    workloads = [load_workload(trace, model, lenient=lenient) for trace in traces]
    if not folders:
        return [], _apart(workloads, traces)
    given = [name for name in ("bank", "policy", "contract") if _is_given(name)]
    if given:
        raise BadInput(f"--{given[0]} with the folder of results {folders[0]}: the page shows its rows; leave it out")
    rows, notes = read_results(folders[0])
    for note in notes:
        message(note)
    check_swept(rows, workloads)
    return rows, workloads or bundled_traces(rows, model)


def _apart(workloads: list[Workload], traces: list[str]) -> list[Workload]:
    from flashmoe_sim.sweep.workloads import plan_workloads

    return plan_workloads(workloads, traces)


def _is_given(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _again() -> str:
    """The command line that makes the page again."""
    context = click.get_current_context()
    words = ["sim", "report"]
    for parameter in context.command.params:
        name, value = parameter.name or "", context.params.get(parameter.name or "")
        if not _is_given(name) or name in ("force", "as_json"):
            continue
        if isinstance(parameter, click.Argument):
            words += list(value or ())
        elif value is True:
            words.append(parameter.opts[0])
        else:
            each = value if isinstance(value, tuple) else (value,)
            words += [word for one in each for word in (parameter.opts[0], str(one))]
    return shlex.join(words)
