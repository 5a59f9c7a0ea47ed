"""`sim watch`: what banks would hit, while the trace is being written."""

from __future__ import annotations

import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flashmoe_sim.cli.common import (
    Interrupted,
    Terminated,
    echo,
    json_option,
    lenient_option,
    message,
    print_json,
)
from flashmoe_sim.cli.options import of_verb
from flashmoe_sim.cli.watch_table import as_document, as_line, as_lines
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.verbs.watch import Watch

if TYPE_CHECKING:
    from flashmoe_sim.sweep.watch import Seen

SHARE = 0.02  # of a core, which looks may take from the watched program
LONGEST_PAUSE_S = 5.0


@click.command(name="watch", context_settings={"help_option_names": ["-h", "--help"]})
@of_verb(Watch)
@lenient_option
@json_option
def command(asked: Watch, *, lenient: bool, as_json: bool) -> None:
    """Follow TRACE while the patched runtime writes it (--moe-trace), and count what banks would hit.

    The counts equal those of `sim replay` for the same bytes. TRACE may be cut, replaced or not exist yet. Ctrl-C stops
    it with the last table and the exit code 0. Without a terminal it prints one line per look; with --json, one
    object.

    \b
    Examples:  sim watch trace.jsonl --model sidecar/
               sim watch trace.jsonl --bank 32,64 --policy lru,lfu --window 512
               sim watch trace.jsonl --json --every 10 >> hits.ndjson
    """
    trace, stop = asked.trace, _Stop()
    if not asked.once:
        click.get_current_context().with_resource(stop.hearing())
    watch = asked.begin(lenient=lenient)
    if asked.once:
        seen = watch.look(time.monotonic())
        if not seen.there:
            raise BadInput(f"{trace}: no such file; give the path of a trace, or wait for it without --once")
        with (_json if as_json else _table)(trace) as show:
            show(seen)
        return
    shown = _json(trace) if as_json else _screen(trace) if sys.stdout.isatty() else _plain(trace)
    pause_s, first = asked.every_s, True
    with shown as show:
        while True:
            began_s = time.process_time()
            seen = watch.look(time.monotonic())
            show(seen)
            if first:  # this look loaded kernels, while more was written
                watch.forget_rate()
            else:
                pause_s = max(asked.every_s, min((time.process_time() - began_s) / SHARE, LONGEST_PAUSE_S))
            first = False
            if stop.pause(pause_s):
                break
    last = watch.look(time.monotonic())
    if not as_json or last.read_bytes != seen.read_bytes or last.event:
        with (_json if as_json else _table)(trace) as show:
            show(last)
    if isinstance(stop.came, Terminated):
        raise Interrupted("stopped; the table is of the last look", stop.came)


class _Stop:
    """Ctrl-C and SIGTERM: they end a pause at once, and a look when it is complete; the second one ends anything.

    An exception in the middle of a look would leave half of its counts, and is lost while a kernel compiles.
    """

    def __init__(self) -> None:
        self.came: KeyboardInterrupt | None = None
        self._pausing = False

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """Take the two signals in the block, unless they are ignored."""
        taken = () if threading.current_thread() is not threading.main_thread() else (signal.SIGINT, signal.SIGTERM)
        numbers = [number for number in taken if signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, self._hear) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hear(self, number: int, _: object) -> None:
        again = self.came is not None
        self.came = Terminated() if number == signal.SIGTERM else KeyboardInterrupt()
        if again or self._pausing:
            raise self.came

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


@contextmanager
def _json(trace: Path) -> Iterator[Callable[[Seen], None]]:
    def show(seen: Seen) -> None:
        print_json(as_document(trace, seen), on_one_line=True)
        sys.stdout.flush()

    yield show


@contextmanager
def _table(trace: Path) -> Iterator[Callable[[Seen], None]]:
    yield lambda seen: print("\n".join(as_lines(trace, seen, width=shutil.get_terminal_size().columns)))


@contextmanager
def _plain(trace: Path) -> Iterator[Callable[[Seen], None]]:
    def show(seen: Seen) -> None:
        if seen.event:
            message(f"{trace}: {seen.event}")
        echo(f"{datetime.now():%H:%M:%S} {as_line(trace, seen)}")
        sys.stdout.flush()

    yield show


@contextmanager
def _screen(trace: Path) -> Iterator[Callable[[Seen], None]]:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    event = ""
    with Live(
        Text(f"reading {trace.name}"), console=console, screen=True, auto_refresh=False, redirect_stdout=False
    ) as live:

        def show(seen: Seen) -> None:
            nonlocal event
            if seen.event:
                event = f"{datetime.now():%H:%M:%S}: {seen.event}"
            lines = as_lines(trace, seen, width=console.width, height=console.height - 1, event=event)
            text = "\n".join([*lines, f"{datetime.now():%H:%M:%S}, Ctrl-C ends it"])
            live.update(Text(text, no_wrap=True, overflow="crop"), refresh=True)

        yield show
