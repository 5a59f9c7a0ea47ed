"""`sim report`: one page with everything, to send to a colleague."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.commands import of_verb
from flashmoe_sim.cli.common import force_option, json_option, lenient_option, message, print_json
from flashmoe_sim.cli.workload import load_workload
from flashmoe_sim.io.errors import Conflict, Incomplete, Malformed, Missing, Unusable, unknown_name
from flashmoe_sim.options import option_field
from flashmoe_sim.verbs.report import Report

if TYPE_CHECKING:
    from flashmoe_sim.io.sections import Section
    from flashmoe_sim.residency.workload import Workload

PAGES = (".html", ".htm")
FORMATS = ("png", "svg", "pdf", "csv", "tex", "md")
IN_POINTS = {"pt": 1.0, "in": 72.0, "cm": 72 / 2.54, "mm": 72 / 25.4}
MOST_POINTS = 7200


@dataclass(frozen=True, kw_only=True)
class FigureFiles:
    """Where figures are written, in which formats, and how they look."""

    folder: Path | None = option_field(None, "DIR", "Write the figures as files too, for papers.", flag="--figures")
    formats: str = option_field(
        "svg",
        "F,F",
        "Of --figures: png, svg, pdf; csv: what is drawn; tex, md: the tables below the figures.",
        flag="--format",
    )
    size: str | None = option_field(
        None, "SIZE", "Of --figures: a width, 3.3in, or with the height of the axes, 8.5x5cm; in, cm, mm, pt."
    )
    font: str | None = option_field(None, "NAME", "Of --figures.")
    font_size: float | None = option_field(None, "PT", "Of --figures, in points.", least=4, most=40)
    no_titles: bool = option_field(False, "", "Of --figures: without titles, which a paper has in captions.")

    @property
    def kinds(self) -> list[str]:
        return [word.strip() for word in self.formats.split(",")]

    @property
    def style(self) -> dict[str, Any]:
        """What `figures.styled` takes, with a point as its pixel; empty if nothing is asked."""
        style: dict[str, Any] = {"title": False} if self.no_titles else {}
        style |= {} if self.font is None else {"font": self.font}
        style |= {} if self.font_size is None else {"font_size": self.font_size}
        return style if self.size is None else style | _sides(self.size)

    def check(self) -> None:
        """Raise BadInput if the options cannot be, or the folder is none."""
        for kind in self.kinds:
            if kind not in FORMATS:
                raise unknown_name("format of figures", kind, FORMATS)
        if self.style and self.folder is None:
            raise Incomplete(
                "--size, --font, --font-size and --no-titles are of the files of --figures; give --figures DIR"
            )
        if self.folder is not None and os.path.lexists(self.folder) and not self.folder.is_dir():
            raise Unusable(f"{self.folder}: is not a folder; give another folder for the figures")

    def check_font(self) -> None:
        """Raise BadInput if pictures would have no text."""
        if self.font is None:
            return
        from flashmoe_sim.report.figures.save import has_font

        if {"png", "pdf"} & {*self.kinds} and not has_font(self.font):
            raise Missing(f"--font {self.font!r}: no such font is installed, so .png and .pdf would have no text")

    def drawn(self, sections: list[Section], *, force: bool) -> dict[Path, bytes]:
        """Each figure in each format, by file; of a figure without a table there is none."""
        from tempfile import TemporaryDirectory

        from flashmoe_sim.io.sections import latex, table_markdown
        from flashmoe_sim.io.whole import refuse_existing
        from flashmoe_sim.report.figures import save, styled

        if self.folder is None:
            return {}
        writers, style = {"tex": latex, "md": table_markdown}, self.style
        wanted = {
            f"{figure.name}.{kind}": (figure, kind)
            for section in sections
            for figure in section.figures
            for kind in self.kinds
            if kind not in writers or figure.table is not None
        }
        for name in wanted:
            refuse_existing(self.folder / name, force=force)
        files = {}
        with TemporaryDirectory() as scratch:
            for name, (figure, kind) in wanted.items():
                if kind in writers:
                    assert figure.table is not None
                    files[self.folder / name] = writers[kind](figure.table).encode()
                else:
                    chart = styled(figure.chart, **style) if style else figure.chart
                    drawn = save(chart, Path(scratch, name), in_points="width" in style)
                    files[self.folder / name] = drawn.read_bytes()
        return files

    @contextmanager
    def folder_made(self) -> Iterator[None]:
        """Make the folder and those above it; if the block fails, remove again what was made."""
        folder = self.folder
        made = [] if folder is None else [place for place in (folder, *folder.parents) if not place.exists()]
        try:
            try:
                if folder is not None:
                    folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise Unusable(f"{folder}: {error.strerror or error}; give another folder for the figures") from None
            yield
        except BaseException:
            for place in made:
                with suppress(OSError):
                    place.rmdir()
            raise


def _sides(size: str) -> dict[str, Any]:
    """The width, and the height if it is given, in points."""
    given = re.fullmatch(r"(\d+\.?\d*)(in|cm|mm|pt)?(?:x(\d+\.?\d*)(in|cm|mm|pt))?", size.strip())
    points: list[float] = []
    if given and (unit := given[2] or given[4]):
        points = [float(given[1]) * IN_POINTS[unit], *([float(given[3]) * IN_POINTS[given[4]]] if given[3] else ())]
    if not points or not all(36 <= one <= MOST_POINTS for one in points):
        raise Malformed(f"--size {size!r}: expected 36 to {MOST_POINTS} points, such as 3.3in, 85mm or 8.5x5cm")
    return dict(zip(("width", "height"), map(round, points), strict=False))


@click.command(name="report")
@of_verb(Report)
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="FILE", help="The page to write, FILE.html."
)
@of_verb(FigureFiles, "figures")
@force_option
@lenient_option
@json_option
def command(
    question: Report,
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
        raise Malformed(f"{out}: the report is a web page; give --out a name that ends in .html")
    refuse_existing(out, force=force)
    figures.check()
    check_installed()
    figures.check_font()
    from flashmoe_sim.report.report import sections
    from flashmoe_sim.residency.workload import names_model

    if question.model is None and len(question.sources) == 1 and names_model(question.sources[0]):
        question = replace(question, sources=(), model=question.sources[0])
    rows, workloads = _read(question, lenient=lenient)
    with stages() as progress:
        found = question.gather(rows, workloads, progress)
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


def _read(question: Report, *, lenient: bool) -> tuple[list[dict[str, Any]], list[Workload]]:
    """The rows of the folders of results, and the traces that are given or in the catalogue."""
    from flashmoe_sim.report.results import bundled_traces, check_swept, is_results, of_traces, read_results
    from flashmoe_sim.sweep.workloads import plan_workloads

    sources, model = question.sources, None if question.model is None else str(question.model)
    folders = [Path(source) for source in sources if is_results(Path(source))]
    if len(folders) > 1:
        raise Conflict(f"{folders[1]}: a second folder of results; one page shows one folder")
    traces = [source for source in sources if Path(source) not in folders]
    if question.only is not None and not folders:
        raise Incomplete("--only chooses rows of a folder of results; give the folder, or that trace alone")
    workloads = [load_workload(trace, model, lenient=lenient) for trace in traces]
    if not folders:
        return [], plan_workloads(workloads, traces)
    given = [name for name in ("bank", "policy", "contract") if _is_given(name)]
    if given:
        raise Conflict(f"--{given[0]} with the folder of results {folders[0]}: the page shows its rows; leave it out")
    rows, notes = read_results(folders[0])
    for note in notes:
        message(note)
    rows = rows if question.only is None else of_traces(rows, question.only)
    check_swept(rows, workloads)
    return rows, workloads or bundled_traces(rows, model)


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
