"""Progress on stderr: throttled, with the time left, and silent where stderr is not a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from flashmoe_sim.io.printable import printable

SLOW_BYTES = 32 << 20


@contextmanager
def reading(path: Path) -> Iterator[Callable[[int], None] | None]:
    """Progress over the bytes of a file that is large enough to wait for."""
    with over_bytes(f"reading {path.name}", os.path.getsize(path) if os.path.isfile(path) else 0) as advance:
        yield advance


@contextmanager
def over_bytes(what: str, size: int) -> Iterator[Callable[[int], None] | None]:
    """Progress over so many bytes, if they are enough to wait for."""
    if size < SLOW_BYTES:
        yield None
        return
    with _bar(what, size) as update:
        done = 0

        def advance(count_bytes: int) -> None:
            nonlocal done
            done += count_bytes
            update(done, size)

        yield advance


@contextmanager
def replaying() -> Iterator[Callable[[int, int], None]]:
    """Progress over the jobs of a sweep."""
    with _bar("replaying", None) as update:
        yield update


@contextmanager
def capturing() -> Iterator[Callable[[int, int], None]]:
    """Progress over the tokens of a capture."""
    with _bar("capturing", None) as update:
        yield update


@contextmanager
def _bar(what: str, total: int | None) -> Iterator[Callable[[int, int], None]]:
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=5) as progress:
        task = progress.add_task(printable(what), total=total)
        yield lambda done, total: progress.update(task, completed=done, total=total)
