"""Shared by the verbs: JSON and tables on stdout, messages on stderr."""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from flashmoe_sim.io.errors import Terminated
from flashmoe_sim.io.printable import UNPRINTABLE, printable
from flashmoe_sim.options import FORCE, LENIENT, ONLINE

if TYPE_CHECKING:
    from flashmoe_sim.io.sections import Section, Table

P = ParamSpec("P")
T = TypeVar("T")
LOOK_S = 0.1

# The pieces of a command line, each up to the next option; quotes hold spaces and hyphens.
_OPTIONS = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|\\.|[^\s"'\\]|\s(?!--?[A-Za-z]))+\s?""")

_NOT_ASCII = re.compile(r"[^\t\n -~]")
KEPT_WHOLE = 20  # letters of a word, such as a name, that a table does not break

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
force_option = click.option("--force", is_flag=True, help=FORCE["help"])
online_option = click.option("--online", is_flag=True, help=ONLINE["help"])
lenient_option = click.option("--lenient", is_flag=True, help=LENIENT["help"])


class FiniteRange(click.FloatRange):
    """A number in a range; `nan` and `inf`, which are in all, are refused, and so are units."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            float(value)
        except ValueError:
            digits = re.sub(r"[^0-9.]", "", value)
            example = f", such as {digits}" if re.fullmatch(r"\d+(\.\d+)?", digits) else ""
            self.fail(f"{value!r}: expected a number alone, without a unit{example}", param, ctx)
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number; give one in plain digits", param, ctx)
        return number


class _InThousands:
    """Takes `32k` for 32,768 and `1m` for 1,048,576, as engines' pages write a context."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"(\d{1,5})([km])", value.lower()) if isinstance(value, str) else None
        given = int(found[1]) * 1024 ** (" km".index(found[2])) if found else value
        number: int = super().convert(given, param, ctx)  # type: ignore[misc]
        return number


class Tokens(_InThousands, click.types.IntParamType):
    """A number of tokens."""


class TokenRange(_InThousands, click.IntRange):
    """A number of tokens in a range."""


# What ends a verb in order, other than Ctrl-C; SIGBREAK is Ctrl-Break of Windows, and what stops its services.
TERMINATING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGBREAK") if hasattr(signal, name))


@contextmanager
def stoppable() -> Iterator[None]:
    """Make SIGTERM, and Ctrl-Break of Windows, end the block like Ctrl-C, with the exit code 143."""

    def terminate(*_: object) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
        yield
        return
    before = {number: signal.signal(number, terminate) for number in TERMINATING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interruptible(work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Do it in a thread of its own, and leave it on Ctrl-C or SIGTERM.

    In this thread, Ctrl-C would wait for the end of a compiled function, or crash it.
    """
    from concurrent.futures import ThreadPoolExecutor, wait

    executor = ThreadPoolExecutor(1)
    try:
        with stoppable():
            running = executor.submit(work, *given, **named)
            while not wait([running], LOOK_S).done:  # on Windows, Python hears a signal only between two waits
                pass
            return running.result()
    finally:
        executor.shutdown(wait=False)


def print_json(document: dict[str, Any]) -> None:
    """One JSON document on stdout, with keys in the given order; unprintable characters become JSON escapes.

    The program's version comes last.
    """
    import orjson

    from flashmoe_sim.io.provenance import version

    assert "version" not in document
    document = document | {"version": version()}
    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_INDENT_2
    try:
        text = orjson.dumps(document, option=options).decode()
    except TypeError:  # a path with bytes that are not UTF-8
        text = orjson.dumps(_without_halves(document), option=options).decode()
    in_utf_8 = (sys.stdout.encoding or "utf-8").lower().replace("-", "") == "utf8"
    sys.stdout.write((UNPRINTABLE if in_utf_8 else _NOT_ASCII).sub(_in_json, text) + "\n")


def _in_json(found: re.Match[str]) -> str:
    """A character as JSON's escapes, two for one beyond 16 bits."""
    return re.sub("....", r"\\u\g<0>", found[0].encode("utf-16-be", "surrogatepass").hex())


def _without_halves(value: Any) -> Any:
    """The document with U+FFFD for each half character in its texts, which JSON cannot represent."""
    if isinstance(value, dict):
        return {key: _without_halves(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_halves(item) for item in value]
    return re.sub("[\ud800-\udfff]", "\ufffd", value) if isinstance(value, str) else value


def asker() -> Callable[[str], str] | None:
    """Asks the user for a text; None unless both ends are a terminal."""
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):  # it may be closed
        return None
    return lambda text: str(click.prompt(printable(text), err=True))


def echo(text: str) -> None:
    """A text on stdout."""
    click.echo(printable(text))


def print_sections(sections: Iterable[Section]) -> None:
    """Titles, sentences, tables and commands, with an empty line before each section."""
    from flashmoe_sim.io.sections import Command, Item, Table, Verbatim, Verdict

    after_table = True  # which ends in an empty line
    for section in sections:
        if not after_table:
            echo("")
        if section.title:
            click.secho(wrapped(section.title), bold=True)
        for part in section.parts:
            if isinstance(part, Command):
                first, *others = part.line.splitlines()
                lines = [f"{part.label or '    '}{first}", *(f"    {line}" for line in others)]
                echo("\n".join(lines if part.whole else [piece for line in lines for piece in _to_paste(line)]))
            elif isinstance(part, Verbatim):
                fits = max(map(len, part.text.split("\n"))) <= shutil.get_terminal_size().columns
                echo((part.text if fits else part.narrow or part.text).removesuffix("\n"))
            elif isinstance(part, Table):
                print_table(part)
            elif isinstance(part, Item):
                echo(wrapped(part.text, indent=part.indent))
            else:
                echo(wrapped(part.text if isinstance(part, Verdict) else str(part)))
        after_table = isinstance(section.parts[-1], Table)


def _to_paste(command: str) -> Iterator[str]:
    """A command line with its label; on a narrow terminal in lines that end in a backslash, cut before options.

    Anything but a terminal gets it whole, and so does Windows, whose shells know no such lines.
    """
    pieces = _OPTIONS.findall(command)
    if not sys.stdout.isatty() or os.name == "nt" or "".join(pieces) != command:
        yield command
        return
    room, line = shutil.get_terminal_size().columns, ""
    for piece in pieces:
        if line and len(line) + len(piece) + len(" \\") > room:
            yield f"{line.rstrip()} \\"
            line = "        "
        line += piece
    yield line


def print_table(table: Table) -> None:
    """A table as wide as the terminal.

    If space is tight, the columns move together; then the dispensable columns are left out in order, and the caption
    names them; then left-aligned text is broken between words. Names are never broken: a terminal narrower than the
    names wraps the lines itself.
    """
    from rich import box
    from rich.console import Console, detect_legacy_windows
    from rich.table import Table as Drawn
    from rich.text import Text

    rows = [[printable(text) for text in row] for row in table.rows]
    columns = [(printable(heading), side) for heading, side in table.columns]
    caption = table.caption
    colors: Any = None if detect_legacy_windows() else "auto"  # its console prints escapes
    console = Console(color_system=colors, highlight=False, markup=False, emoji=False)
    headed = any(heading for heading, _ in columns)
    headings = [heading for heading, _ in columns]
    widths = [
        max((len(part) for cell in cells for part in (cell.split() if side == "left" else [cell])), default=0)
        for (_, side), cells in zip(columns, zip(headings, *rows, strict=True), strict=True)
    ]
    kept = list(range(len(columns)))
    for heading in table.dispensable:
        if sum(widths[number] for number in kept) + len(kept) - 1 > console.width:
            kept = [number for number in kept if headings[number] != heading]
    if left_out := [heading for number, heading in enumerate(headings) if number not in kept]:
        too_wide = f"too wide to show here: {', '.join(left_out)}"
        caption = _explaining_others(caption, left_out)
        caption = f"{caption.removesuffix('.')}; {too_wide}" if caption else too_wide
    columns = [columns[number] for number in kept]
    rows = [[row[number] for number in kept] for row in rows]
    in_columns = list(zip([heading for heading, _ in columns], *rows, strict=True))
    widths = [max(map(len, cells)) for cells in in_columns]
    left, last = [side == "left" for _, side in columns], len(columns) - 1

    def words(most: float) -> list[int]:
        """The width that each column needs if words of at most so many letters stay whole."""
        return [
            max((len(word) for cell in cells for word in cell.split() if len(word) <= most), default=0)
            if wraps
            else full
            for wraps, full, cells in zip(left, widths, in_columns, strict=True)
        ]

    least, natural = words(math.inf), sum(widths) + 2 * last
    gap = 1 if natural > console.width and (not left[-1] or sum(least) + 2 * last > console.width) else 2
    if sum(least) + gap * last > console.width:
        least = words(KEPT_WHOLE)
    console.width = max(console.width, sum(least) + gap * last)
    while sum(widths) + gap * last > console.width:
        widths[max((width, number) for number, width in enumerate(widths) if width > least[number])[1]] -= 1
    drawn = Drawn(
        box=box.SIMPLE_HEAD if headed else None,
        show_header=headed,
        show_edge=False,
        pad_edge=False,
        padding=(0, gap - headed, 0, 0),  # a box adds its own space
    )
    for (heading, _), wraps, wide in zip(columns, left, widths, strict=True):
        if wraps:
            drawn.add_column(heading, overflow="fold", width=wide)
        else:
            drawn.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        drawn.add_row(*map(_cut_at_commas, row, widths))
    with console.capture() as captured:
        if table.title:
            console.print(Text(printable(table.title), "bold"))
        console.print(drawn)
        if caption:
            console.print(Text(printable(caption), "dim"))
    lines = (line.rstrip() for line in captured.get().splitlines())
    sys.stdout.write("\n".join(lines) + "\n\n")


def _cut_at_commas(text: str, width: int) -> str:
    """The text with a space after a comma of each word that is longer than a line, which would be cut anywhere else."""
    cut = re.compile(rf"(.{{1,{max(width - 1, 1)}}},)(?=.)")
    return " ".join(word if len(word) <= width else cut.sub(r"\1 ", word) for word in text.split(" "))


def _explaining_others(caption: str, left_out: Sequence[str]) -> str:
    """The caption without clauses such as `best: no policy hits more` that explain only columns that are left out."""
    gone = {heading.removesuffix(" %") for heading in left_out}
    lines = [
        "; ".join(clause for clause in line.split("; ") if not set(clause.partition(": ")[0].split(", ")) <= gone)
        for line in caption.splitlines()
    ]
    return "\n".join(filter(None, lines))


def wrapped(text: str, *, indent: int = 0) -> str:
    """The text in lines of at most 80 columns, or as the terminal has; indented after the first.

    Names with hyphens stay whole.
    """
    return textwrap.fill(
        printable(text),
        width=min(shutil.get_terminal_size().columns, 80),
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def message(text: str) -> None:
    """One line on stderr; a closed or full stderr does not stop the work."""
    with suppress(OSError):
        click.echo(printable(f"sim: {text}"), err=True)
