"""Looks that a verb makes again and again: on a screen, in lines, or as JSON, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
import sys
import textwrap
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from flashmoe_sim.cli.common import TERMINATING, echo, message, print_json, print_sections, table_lines
from flashmoe_sim.io.errors import Interrupted, Terminated
from flashmoe_sim.io.printable import printable
from flashmoe_sim.io.sections import Table

if TYPE_CHECKING:
    from rich.live import Live as Drawn

    from flashmoe_sim.io.sections import Section
    from flashmoe_sim.verbs.base import LiveVerb


def follow(question: LiveVerb[Any], *, as_json: bool) -> None:
    """Run the verb, and print its last look. Ctrl-C is its usual end, with the exit code 0."""
    live = Terminal(question, as_json=as_json)
    found = question.run(live)
    if as_json:
        print_json(question.document(found), on_one_line=True)
    else:
        print_sections(question.sections(found))
    if isinstance(live.came, Terminated):
        raise Interrupted("stopped; the table is of the last look", live.came)


class Terminal:
    """A `verbs.base.Live` that prints each look, or draws it, and hears the two signals in its block.

    They end a pause at once, and a look when it is complete; the second one ends anything. An exception in the middle
    of a look would leave half of its counts, and is lost while a kernel compiles.
    """

    def __init__(self, question: LiveVerb[Any], *, as_json: bool) -> None:
        self.came: KeyboardInterrupt | None = None
        self._question, self._as_json = question, as_json
        self._pausing, self._event = False, ""
        self._stack = ExitStack()
        self._screen: Drawn | None = None

    def __enter__(self) -> None:
        taken = () if threading.current_thread() is not threading.main_thread() else (signal.SIGINT, *TERMINATING)
        for number in taken:
            if (before := signal.getsignal(number)) != signal.SIG_IGN:
                signal.signal(number, self._hear)
                self._stack.callback(signal.signal, number, before)
        if not self._as_json and sys.stdout.isatty():
            self._screen = self._stack.enter_context(_screen())

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _hear(self, number: int, _: object) -> None:
        again = self.came is not None
        self.came = Terminated() if number in TERMINATING else KeyboardInterrupt()
        if again or self._pausing:
            raise self.came

    def show(self, found: Any, event: str = "") -> None:
        """Print the look, or draw it."""
        now = f"{datetime.now():%H:%M:%S}"
        if self._screen is not None:
            self._event = f"{now}: {event}" if event else self._event
            self._draw(self._screen, found, [*filter(None, [self._event]), f"{now}, Ctrl-C ends it"])
            return
        if self._as_json:
            print_json(self._question.document(found), on_one_line=True)
        else:
            if event:
                message(event)
            echo(f"{now} {self._question.line(found)}")
        sys.stdout.flush()

    def _draw(self, screen: Drawn, found: Any, below: list[str]) -> None:
        from rich.text import Text

        width, height = screen.console.width, screen.console.height
        foot = [line for text in below for line in textwrap.wrap(printable(text), width)]
        lines = fitted(list(self._question.sections(found)), width=width, height=height - len(foot))
        screen.update(Text("\n".join([*lines, *foot]), no_wrap=True, overflow="crop"), refresh=True)

    def pause(self, seconds: float) -> bool:
        """Wait; return whether a signal came."""
        try:
            self._pausing = True
            if self.came is None:
                time.sleep(seconds)
            self._pausing = False
        except KeyboardInterrupt as stop:
            self._pausing, self.came = False, stop
        return self.came is not None


def _screen() -> Drawn:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    return Live(Text("reading"), console=console, screen=True, auto_refresh=False, redirect_stdout=False)


def fitted(sections: list[Section], *, width: int, height: int) -> list[str]:
    """The sections in `width` columns; if they exceed `height` lines, their tables have fewer rows, evenly chosen."""
    parts = [part for section in sections for part in section.parts]
    rows = max((len(part.rows) for part in parts if isinstance(part, Table)), default=0)
    while True:
        lines: list[str] = []
        for part in parts:
            if isinstance(part, Table):
                lines += table_lines(_with_rows(part, rows), width=width)
            else:
                lines += textwrap.wrap(printable(str(part)), width)
        if len(lines) <= height or rows < 2:
            return lines
        rows = max(rows - (len(lines) - height), 1)


def _with_rows(table: Table, most: int) -> Table:
    """The table with at most so many rows, the first and the last among them; its caption says so."""
    every = len(table.rows)
    if every <= most:
        return table
    kept = [table.rows[number * (every - 1) // max(most - 1, 1)] for number in range(most)]
    left_out = f"{most} of {every} rows fit here, --json has all"
    return replace(table, rows=kept, caption="; ".join(filter(None, [table.caption, left_out])))
