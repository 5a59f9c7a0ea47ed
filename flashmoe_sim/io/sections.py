"""What a verb says: sections of sentences, tables, figures and command lines, also as Markdown; numbers in tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from flashmoe_sim.io.printable import without_home
from flashmoe_sim.io.provenance import program
from flashmoe_sim.io.sizes import three

_LATEX = {
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


@dataclass(frozen=True)
class Command:
    """One or several lines to paste into a shell. label: what stands before them on a terminal.

    whole: no terminal is too narrow for them, as in PowerShell, where a backslash continues no line.
    """

    line: str
    label: str = ""
    whole: bool = False


@dataclass(frozen=True)
class Verbatim:
    """Lines as they are, however long: a path and its size, or a file. narrow: instead, where they do not fit."""

    text: str
    narrow: str = ""


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


Column = tuple[str, str, Callable[[Any], str]]  # heading, `left` or `right`, and a row's cell
UNKNOWN = "-"
WAITS = {  # by part of a token's time: what it waits for, in a table and in a sentence
    "read": ("reads", "reading from storage"),
    "upload": ("uploads", "uploading to the GPU"),
    "cpu": ("the CPU", "computing experts on the CPU"),
    "compute": ("computing", "computing"),
    "host": ("the host", "the host's own work"),
}


def table(columns: Sequence[Column], rows: Iterable[Any], **options: Any) -> Table:
    """A table of these rows. options: title, caption and dispensable columns."""
    cells = [tuple(cell(row) for _, _, cell in columns) for row in rows]
    return Table([(heading, side) for heading, side, _ in columns], cells, **options)


def pairs(rows: Iterable[Sequence[str]], **options: Any) -> Table:
    """Names, their values, and remarks if there are any; without headings."""
    rows = list(rows)
    sides = ("left", "right", "left")[: len(rows[0])]
    return Table([("", side) for side in sides], rows, **options)


def percent(share: float | None) -> str:
    """A share in per cent with one decimal, without the sign."""
    return UNKNOWN if share is None else f"{100 * share:.1f}"


def rate(share: float | None) -> str:
    """A share in per cent with one decimal and the sign."""
    return UNKNOWN if share is None else f"{percent(share)}%"


def count(number: float | None) -> str:
    """A number with thousands separators."""
    return UNKNOWN if number is None else f"{number:,}"


def decimals(number: float | None, digits: int = 2) -> str:
    """A number with so many decimals; zero has no sign."""
    return UNKNOWN if number is None else f"{number:z.{digits}f}"


def signed(number: float, digits: int = 1) -> str:
    """A number with its sign, which is + for zero."""
    return f"{round(number, digits) + 0.0:+.{digits}f}"


def speed(tok_s: float | None) -> str:
    """Tokens a second in three digits."""
    return UNKNOWN if tok_s is None else three(tok_s)


def brief_interval(lo: float | None, hi: float | None) -> str:
    """`7.6-8.7`, for a table of many columns."""
    return "" if lo is None or hi is None else f"{three(lo)}-{three(hi)}"


def interval(lo: float | None, hi: float | None) -> str:
    """`7.6 to 8.7`."""
    return UNKNOWN if lo is None or hi is None else f"{three(lo)} to {three(hi)}"
