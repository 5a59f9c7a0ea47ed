"""What a verb says: sections of sentences, tables, figures and command lines; also as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from flashmoe_sim.io.printable import without_home
from flashmoe_sim.io.provenance import program

_LATEX = {
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


@dataclass(frozen=True)
class Command:
    """One or several lines to paste into a shell. label: what stands before them on a terminal."""

    line: str
    label: str = ""


@dataclass(frozen=True)
class Verbatim:
    """Lines as they are, however long: a path and its size, or a file."""

    text: str


@dataclass(frozen=True)
class Verdict:
    """The conclusion in a few words; good: None if it is neither good nor bad."""

    text: str
    good: bool | None = None


@dataclass(frozen=True)
class Item:
    """One of several sentences below each other; indent: of its further lines on a terminal."""

    text: str
    indent: int


@dataclass(frozen=True)
class Table:
    """columns: (heading, `left` or `right`); all headings empty for none.

    dispensable: headings that a narrow terminal leaves out, in this order.
    """

    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[str]]
    title: str = ""
    caption: str = ""
    dispensable: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    """A chart of altair and how to read it; table: its numbers, unless they are shown beside it.

    name: of its file, letters and hyphens; unique in a page.
    """

    name: str
    chart: Any
    caption: str
    table: Table | None = None


Part: TypeAlias = str | Item | Verdict | Table | Command | Verbatim | Figure


@dataclass(frozen=True)
class Section:
    """Its parts in order, under a title."""

    title: str
    parts: tuple[Part, ...]

    @property
    def figures(self) -> list[Figure]:
        return [part for part in self.parts if isinstance(part, Figure)]


def markdown(sections: Sequence[Section]) -> str:
    """The sections as Markdown, the first title on top; without the path of the user's home."""
    lines = []
    for number, section in enumerate(sections):
        lines += ["", f"{'#' if number == 0 else '##'} {_escaped(section.title)}"]
        for part in section.parts:
            lines += ["", *_lines(part)]
    lines += ["", f"Written by {program()}."]
    return without_home("\n".join(lines[1:]) + "\n")


def table_markdown(table: Table) -> str:
    """A table as Markdown."""
    return without_home("\n".join(_lines(table)) + "\n")


def latex(table: Table) -> str:
    """A table as a LaTeX `tabular` with the rules of the package booktabs, to be read with `\\input`."""
    sides = "".join("r" if side == "right" else "l" for _, side in table.columns)
    rows = [" & ".join(map(_in_latex, row)) + r" \\" for row in table.rows]
    head = " & ".join(_in_latex(heading) for heading, _ in table.columns) + r" \\"
    caption = [f"% {' '.join(table.caption.split())}"] if table.caption else []
    lines = [
        "% needs \\usepackage{booktabs}",
        *caption,
        rf"\begin{{tabular}}{{{sides}}}",
        r"\toprule",
        head,
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return without_home("\n".join(lines) + "\n")


def _in_latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(text.split()))


def _lines(part: Part) -> Iterable[str]:
    if isinstance(part, str | Item):
        return [_escaped(part if isinstance(part, str) else part.text)]
    if isinstance(part, Verdict):
        return [f"**{_escaped(part.text)}**"]
    if isinstance(part, Figure):
        return [_escaped(part.caption), *(["", *_lines(part.table)] if part.table else [])]
    if isinstance(part, Command | Verbatim):
        kind, text = ("sh", part.line) if isinstance(part, Command) else ("", part.text.removesuffix("\n"))
        fence = "```"
        while fence in text:
            fence += "`"
        return [f"{fence}{kind}", text, fence]
    rules = ["---:" if side == "right" else "---" for _, side in part.columns]
    rows = [[heading for heading, _ in part.columns], rules, *part.rows]
    lines = [f"| {' | '.join(cell if row is rules else _escaped(cell) for cell in row)} |" for row in rows]
    above = [f"**{_escaped(part.title)}**", ""] if part.title else []
    return [*above, *lines, *(["", _escaped(part.caption)] if part.caption else [])]


def _escaped(text: str) -> str:
    """The text with Markdown's markup escaped; names come from files."""
    for mark in "\\`*_[]<>|#":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())
