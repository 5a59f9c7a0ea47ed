"""Progress of longer work on stderr, with the time left if it is known; only on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Lock, Timer
from time import monotonic
from typing import Any

from flashmoe_sim.io.printable import printable

SHOWN_AFTER_S = 2.0
BAR_WIDTH = 18  # so that the longest line fits 80 columns

_bars: list[_Bar] = []  # of work that goes on, each within the one before; only the last is shown


def reading(path: Path) -> AbstractContextManager[Callable[[int], None]]:
    """Progress over the bytes of a file; a pipe is read until its writer ends, so its line says what it is."""
    what = f"reading {'the pipe ' if path.is_fifo() else ''}{path.name}"
    return over_bytes(what, os.path.getsize(path) if os.path.isfile(path) else 0)


@contextmanager
def over_bytes(what: str, size: int) -> Iterator[Callable[[int], None]]:
    """Progress over `size` bytes; 0 if unknown."""
    with working(what) as update:
        done = 0

        def advance(count_bytes: int) -> None:
            nonlocal done
            done += count_bytes
            update(min(done, size), size)

        yield advance


@contextmanager
def stages() -> Iterator[Callable[[str, int, int], None]]:
    """Progress over stages with names, one after another."""
    with ExitStack() as stack:
        update: Callable[[int, int], None] | None = None
        shown = ""

        def tell(what: str, done: int, total: int) -> None:
            nonlocal update, shown
            if update is None or what != shown:
                stack.close()
                update, shown = stack.enter_context(working(what)), what
            update(done, total)

        yield tell


@contextmanager
def working(what: str) -> Iterator[Callable[[int, int], None]]:
    """Progress over any count; without a count, the elapsed time. Other progress in the block takes its place."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    bar, outer = _Bar(what), _bars[-1] if _bars else None
    if outer is not None:
        outer.end()
    _bars.append(bar)
    bar.begin()
    try:
        yield bar.update
    finally:
        bar.end()
        _bars.remove(bar)
        if outer is not None:
            outer.begin()


class _Bar:
    """A line that appears once its work has taken SHOWN_AFTER_S, and goes with its end.

    Quick work imports nothing for it.
    """

    def __init__(self, what: str) -> None:
        self._what, self._part, self._done, self._total = what, 1, 0, 0
        self._lock = Lock()
        self._shown: Any = None

    def begin(self) -> None:
        self._ended, self._begun = False, monotonic()
        self._timer = Timer(SHOWN_AFTER_S, self._show)
        self._timer.daemon = True
        self._timer.start()

    def update(self, done: int, total: int) -> None:
        self._part += done < self._done
        self._done, self._total = done, total
        if (shown := self._shown) is not None:
            shown.update(0, completed=done, total=total or None)

    def end(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._shown is not None:
                self._shown.stop()
                self._shown = None

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            ProgressColumn,
            Task,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.text import Text

        bar, begun = self, self._begun

        class Left(TimeRemainingColumn):
            """At the average speed until the bar has seen two parts done, from which rich takes the speed.

            Unknown in the first quarter if kernels are compiled, which takes most of it.
            """

            def render(self, task: Task) -> Text:
                if _compiles() and 4 * task.completed < (task.total or 0):
                    return Text("-:--:--", style="progress.remaining")
                if task.speed is not None or not task.completed or not task.total:
                    return super().render(task)
                left_s = (monotonic() - begun) * (task.total - task.completed) / task.completed
                return Text(str(timedelta(seconds=int(left_s))), style="progress.remaining")

        class Label(ProgressColumn):
            def render(self, task: object) -> Text:
                part = f", part {bar._part}" if bar._part > 1 else ""
                return Text(what + (", compiling first" if _compiles() else part))

        what = printable(self._what)
        with self._lock:
            if self._ended or self._shown is not None:
                return
            shown = Progress(
                Label(),
                BarColumn(bar_width=BAR_WIDTH),
                TextColumn("after:"),
                TimeElapsedColumn(),
                TextColumn("left:"),
                Left(),
                console=Console(stderr=True),
                transient=True,
                refresh_per_second=5,
            )
            shown.add_task("", completed=self._done, total=self._total or None)
            shown.start()
            self._shown = shown


def _compiles() -> bool:
    """Whether a kernel had to be compiled; nothing imports the compiler for it."""
    jit = sys.modules.get("flashmoe_sim._jit")
    return jit is not None and jit.compiles()
