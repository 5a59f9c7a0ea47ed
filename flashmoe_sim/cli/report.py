"""`sim report`: one page with everything, to send to a colleague."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.common import force_option, json_option, lenient_option, message, print_json
from flashmoe_sim.cli.options import of_verb
from flashmoe_sim.cli.workload import load_workload
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.verbs.report import Report

if TYPE_CHECKING:
    from flashmoe_sim.io.sections import Section
    from flashmoe_sim.residency.workload import Workload

FORMATS = ("png", "svg", "pdf", "csv", "tex", "md")
IN_POINTS = {"pt": 1.0, "in": 72.0, "cm": 72 / 2.54, "mm": 72 / 25.4}
MOST_POINTS = 7200
PAGES = (".html", ".htm")


@click.command(name="report", context_settings={"help_option_names": ["-h", "--help"]})
@of_verb(Report)
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="FILE", help="The page to write, FILE.html."
)
@click.option(
    "--figures", type=click.Path(path_type=Path), metavar="DIR", help="Write the figures as files too, for papers."
)
@click.option(
    "--format",
    "formats",
    default="svg",
    show_default=True,
    metavar="F,F",
    help="Of --figures: png, svg, pdf; csv: what is drawn; tex, md: the tables below the figures.",
)
@click.option(
    "--size",
    metavar="SIZE",
    help="Of --figures: a width, 3.3in, or with the height of the axes, 8.5x5cm; in, cm, mm, pt.",
)
@click.option("--font", metavar="NAME", help="Of --figures.")
@click.option("--font-size", type=click.FloatRange(4, 40), metavar="PT", help="Of --figures, in points.")
@click.option("--no-titles", is_flag=True, help="Of --figures: without titles, which a paper has in captions.")
@force_option
@lenient_option
@json_option
def command(
    asked: Report,
    *,
    out: Path,
    figures: Path | None,
    formats: str,
    size: str | None,
    font: str | None,
    font_size: float | None,
    no_titles: bool,
    force: bool,
    lenient: bool,
    as_json: bool,
) -> None:
    """Write one web page with the answer, its figures and the evidence; it needs no network.

    RESULTS is a folder written by `sim sweep --out`: the page shows its rows. TRACE is a file, or a name from `sim
    trace catalog`. Alone, it is swept for the page; after RESULTS, it is a trace from the sweep, and adds what only a
    trace can show. A bundled trace need not be given after RESULTS. With --model alone, or a model's name, a trace is
    made for that model from the bundled one with the nearest shape.

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
    kinds = _formats(formats)
    style = _style(size, font, font_size, titles=not no_titles)
    if style and figures is None:
        raise BadInput("--size, --font, --font-size and --no-titles are of the files of --figures; give --figures DIR")
    refuse_existing(out, force=force)
    if figures is not None and os.path.lexists(figures) and not figures.is_dir():
        raise BadInput(f"{figures}: is not a folder; give another folder for the figures")
    check_installed()
    if font is not None:
        from flashmoe_sim.report.figures.save import has_font

        if {"png", "pdf"} & {*kinds} and not has_font(font):
            raise BadInput(f"--font {font!r}: no such font is installed, so .png and .pdf would have no text")
    from flashmoe_sim.report.report import sections
    from flashmoe_sim.residency.workload import names_model

    if asked.model is None and len(asked.sources) == 1 and names_model(asked.sources[0]):
        asked = replace(asked, sources=(), model=asked.sources[0])
    rows, workloads = _read(asked.sources, asked.model, lenient=lenient)
    with stages() as progress:
        found = asked.gather(rows, workloads, progress)
        said = sections(found, command=_again())
        page = html(said[0].title, said)
        files = {} if figures is None else _figures(said, figures, kinds, style, force=force)
    files[out] = page.encode()
    with _made(figures):
        write_together(files, force=force)
    names = [str(path) for path in files if path != out]
    if as_json:
        titles = [{"title": one.title, "figures": [figure.name for figure in one.figures]} for one in said]
        print_json({"path": str(out), "bytes": len(files[out]), "sections": titles, "figures": names})
        return
    message(f"wrote {out}, {len(files[out]) / 1e6:.1f} MB, {sum(len(one.figures) for one in said)} figures")
    if figures is not None:
        message(f"wrote {len(names)} files to {figures}")


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


def _formats(text: str) -> list[str]:
    from flashmoe_sim.io.errors import unknown_name

    kinds = [word.strip() for word in text.split(",")]
    for kind in kinds:
        if kind not in FORMATS:
            raise unknown_name("format of figures", kind, FORMATS)
    return kinds


def _style(size: str | None, font: str | None, font_size: float | None, *, titles: bool) -> dict[str, Any]:
    """What `figures.styled` takes, with a point as its pixel; empty if nothing is asked."""
    style: dict[str, Any] = {} if titles else {"title": False}
    style |= {} if font is None else {"font": font}
    style |= {} if font_size is None else {"font_size": font_size}
    if size is None:
        return style
    given = re.fullmatch(r"(\d+\.?\d*)(in|cm|mm|pt)?(?:x(\d+\.?\d*)(in|cm|mm|pt))?", size.strip())
    points: list[float] = []
    if given and (unit := given[2] or given[4]):
        points = [float(given[1]) * IN_POINTS[unit], *([float(given[3]) * IN_POINTS[given[4]]] if given[3] else ())]
    if not points or not all(36 <= one <= MOST_POINTS for one in points):
        raise BadInput(f"--size {size!r}: expected 36 to {MOST_POINTS} points, such as 3.3in, 85mm or 8.5x5cm")
    return style | dict(zip(("width", "height"), map(round, points), strict=False))


def _figures(
    said: list[Section], folder: Path, kinds: list[str], style: dict[str, Any], *, force: bool
) -> dict[Path, bytes]:
    """Each figure in each format; of a figure without a table there is none."""
    from tempfile import TemporaryDirectory

    from flashmoe_sim.io.sections import latex, table_markdown
    from flashmoe_sim.io.whole import refuse_existing
    from flashmoe_sim.report.figures import save, styled

    writers = {"tex": latex, "md": table_markdown}
    wanted = {
        f"{figure.name}.{kind}": (figure, kind)
        for one in said
        for figure in one.figures
        for kind in kinds
        if kind not in writers or figure.table is not None
    }
    for name in wanted:
        refuse_existing(folder / name, force=force)
    files = {}
    with TemporaryDirectory() as scratch:
        for name, (figure, kind) in wanted.items():
            if kind in writers:
                assert figure.table is not None
                files[folder / name] = writers[kind](figure.table).encode()
            else:
                chart = styled(figure.chart, **style) if style else figure.chart
                files[folder / name] = save(chart, Path(scratch, name), in_points="width" in style).read_bytes()
    return files


@contextmanager
def _made(folder: Path | None) -> Iterator[None]:
    """Make a folder and those above it; if the block fails, remove again what was made."""
    made = [] if folder is None else [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"{folder}: {error.strerror or error}; give another folder for the figures") from None
        yield
    except BaseException:
        for place in made:
            with suppress(OSError):
                place.rmdir()
        raise
