"""What pages are made of: sections of sentences, tables and command lines; as Markdown and as one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import jinja2

from flashmoe_sim.io.home import without_home
from flashmoe_sim.io.version import program


@dataclass(frozen=True)
class Command:
    """A line to paste into a shell."""

    line: str


@dataclass(frozen=True)
class Table:
    """columns: (heading, `left` or `right`)."""

    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    """Sentences, tables and commands in order, under a title."""

    title: str
    parts: tuple[str | Table | Command, ...]


def markdown(sections: Sequence[Section]) -> str:
    """The sections as Markdown, the first title on top; without the path of the user's home."""
    lines = []
    for number, section in enumerate(sections):
        lines += ["", f"{'#' if number == 0 else '##'} {_escaped(section.title)}"]
        for part in section.parts:
            lines += ["", *_lines(part)]
    lines += ["", f"Written by {program()}."]
    return without_home("\n".join(lines[1:]) + "\n")


def _lines(part: str | Table | Command) -> list[str]:
    if isinstance(part, str):
        return [_escaped(part)]
    if isinstance(part, Command):
        fence = "```"
        while fence in part.line:
            fence += "`"
        return [f"{fence}sh", part.line, fence]
    rules = ["---:" if side == "right" else "---" for _, side in part.columns]
    rows = [[heading for heading, _ in part.columns], rules, *part.rows]
    return [f"| {' | '.join(cell if row is rules else _escaped(cell) for cell in row)} |" for row in rows]


def _escaped(text: str) -> str:
    """The text without what Markdown would take for markup; names come from files."""
    for mark in "\\`*_[]<>|#":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())


def html(title: str, sections: Sequence[Section]) -> str:
    """One HTML page that needs nothing else, readable on a phone, in the dark and on paper; as quiet as `markdown`."""
    kinds = [[(type(part).__name__, part) for part in section.parts] for section in sections]
    return without_home(
        _template().render(title=title, sections=list(zip(sections, kinds, strict=True)), program=program())
    )


@cache
def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("flashmoe_sim.report", ".")
    return jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True).get_template(
        "page.html.j2"
    )
