"""The figures of a report as files: where, in which formats, and how they look."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashmoe_sim.io.errors import Incomplete, Malformed, Missing, Unusable, unknown_name
from flashmoe_sim.options import option_field

if TYPE_CHECKING:
    from flashmoe_sim.io.sections import Section
    from flashmoe_sim.report.figures.style import Chart

FORMATS = ("png", "svg", "pdf", "csv", "tex", "md")
IN_POINTS = {"pt": 1.0, "in": 72.0, "cm": 72 / 2.54, "mm": 72 / 25.4}
MOST_POINTS = 7200


@dataclass(frozen=True, kw_only=True)
class FigureFiles:
    """Where figures are written, in which formats, and how they look."""

    folder: Path | None = option_field(
        None, "DIR", "Write the figures as files too, for papers.", flag="--figures", on_command_line=True
    )
    formats: str = option_field(
        "svg",
        "F,F",
        "Of --figures: png, svg, pdf; csv: what is drawn; tex, md: the tables below the figures.",
        flag="--format",
        on_command_line=True,
    )
    size: str | None = option_field(
        None,
        "SIZE",
        "Of --figures: a width, 3.3in, or with the height of the axes, 8.5x5cm; in, cm, mm, or points.",
        on_command_line=True,
    )
    font: str | None = option_field(None, "NAME", "Of --figures.", on_command_line=True)
    font_size: float | None = option_field(
        None, "PT", "Of --figures, in points.", least=4, most=40, on_command_line=True
    )
    no_titles: bool = option_field(
        False, "", "Of --figures: without titles, which a paper has in captions.", on_command_line=True
    )

    @property
    def kinds(self) -> list[str]:
        return [word.strip() for word in self.formats.split(",")]

    @property
    def style(self) -> dict[str, Any]:
        """What `figures.styled` takes, with a point as its pixel; empty if nothing is asked."""
        style: dict[str, Any] = {"title": False} if self.no_titles else {}
        style |= {} if self.font is None else {"font": self.font}
        style |= {} if self.font_size is None else {"font_size": self.font_size}
        return style if self.size is None else style | sides_of(self.size)

    def check_figures(self) -> None:
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
        from flashmoe_sim.io.sections import latex, table_markdown
        from flashmoe_sim.io.whole import refuse_existing, temporary_folder

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
        with temporary_folder() as scratch:
            for name, (figure, kind) in wanted.items():
                if kind in writers:
                    assert figure.table is not None
                    files[self.folder / name] = writers[kind](figure.table).encode()
                else:
                    files[self.folder / name] = draw(figure.chart, scratch / name, style).read_bytes()
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


def draw(chart: Chart, path: Path, style: Mapping[str, Any]) -> Path:
    """Write a figure as the file's suffix says. style: what `figures.styled` takes, with a point as its pixel."""
    from flashmoe_sim.report.figures import save, styled

    return save(styled(chart, **style) if style else chart, path, in_points="width" in style)


def sides_of(size: str) -> dict[str, Any]:
    """The width, and the height if it is given, in points: what `--size` says. Raises BadInput if it says none."""
    given = re.fullmatch(r"(\d+\.?\d*)(in|cm|mm|pt)?(?:x(\d+\.?\d*)(in|cm|mm|pt)?)?", size.strip())
    points: list[float] = []
    if given:
        height, unit = given[4] or given[2] or "pt", given[2] or given[4] or "pt"
        points = [float(given[1]) * IN_POINTS[unit], *([float(given[3]) * IN_POINTS[height]] if given[3] else ())]
    if not points or not all(36 <= one <= MOST_POINTS for one in points):
        raise Malformed(f"--size {size!r}: expected 36 to {MOST_POINTS} points, such as 3.3in, 85mm or 8.5x5cm")
    return dict(zip(("width", "height"), map(round, points), strict=False))
