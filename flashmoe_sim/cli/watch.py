"""`sim watch`: what banks would hit, while the trace is being written."""

from __future__ import annotations

import shutil
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.commands import of_verb
from flashmoe_sim.cli.common import (
    Interrupted,
    Terminated,
    echo,
    json_option,
    lenient_option,
    message,
    print_json,
    table_lines,
)
from flashmoe_sim.io.cells import Column, count, decimals, percent, table
from flashmoe_sim.io.errors import Missing
from flashmoe_sim.io.printable import printable
from flashmoe_sim.io.sizes import size
from flashmoe_sim.question import bank_meaning
from flashmoe_sim.verbs.watch import Watch

if TYPE_CHECKING:
    from flashmoe_sim.residency.counts import Counts
    from flashmoe_sim.sweep.watch import Look, Row

SHARE = 0.02  # of a core, which looks may take from the watched program
LONGEST_PAUSE_S = 5.0
STILL_S = 10.0  # a trace that did not grow for so long is said to be still
DISPENSABLE = ("aliased", "read/tok", "last read", "miss/tok", "last miss")


@click.command(name="watch")
@of_verb(Watch)
@lenient_option
@json_option
def command(question: Watch, *, lenient: bool, as_json: bool) -> None:
    """Follow TRACE while the patched runtime writes it (--moe-trace), and count what banks would hit.

    The counts equal those of `sim replay` for the same bytes. TRACE may be cut, replaced or not exist yet. Ctrl-C stops
    it with the last table and the exit code 0. Without a terminal it prints one line per look; with --json, one
    object.

    \b
    Examples:  sim watch trace.jsonl --model sidecar/
               sim watch trace.jsonl --bank 32,64 --policy lru,lfu --window 512
               sim watch trace.jsonl --json --every 10 >> hits.ndjson
    """
    trace, stop = question.trace, _Stop()
    if not question.once:
        click.get_current_context().with_resource(stop.hearing())
    watch = question.begin(lenient=lenient)
    if question.once:
        seen = watch.look(time.monotonic())
        if not seen.there:
            raise Missing(f"{trace}: no such file; give the path of a trace, or wait for it without --once")
        (_json if as_json else _table)(trace, seen)
        return
    on_screen = not as_json and sys.stdout.isatty()
    pause_s, first = question.every_s, True
    with _screen(trace) if on_screen else nullcontext(partial(_json if as_json else _plain, trace)) as show:
        while True:
            began_s = time.process_time()
            seen = watch.look(time.monotonic())
            show(seen)
            if first:  # this look loaded kernels, while more was written
                watch.forget_rate()
            else:
                pause_s = max(question.every_s, min((time.process_time() - began_s) / SHARE, LONGEST_PAUSE_S))
            first = False
            if stop.pause(pause_s):
                break
    last = watch.look(time.monotonic())
    if not as_json or last.read_bytes != seen.read_bytes or last.event:
        (_json if as_json else _table)(trace, last)
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


def _json(trace: Path, seen: Look) -> None:
    print_json(as_document(trace, seen), on_one_line=True)
    sys.stdout.flush()


def _table(trace: Path, seen: Look) -> None:
    print("\n".join(as_lines(trace, seen, width=shutil.get_terminal_size().columns)))


def _plain(trace: Path, seen: Look) -> None:
    if seen.event:
        message(f"{trace}: {seen.event}")
    echo(f"{datetime.now():%H:%M:%S} {as_line(trace, seen)}")
    sys.stdout.flush()


@contextmanager
def _screen(trace: Path) -> Iterator[Callable[[Look], None]]:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    event = ""
    with Live(
        Text(f"reading {trace.name}"), console=console, screen=True, auto_refresh=False, redirect_stdout=False
    ) as live:

        def show(seen: Look) -> None:
            nonlocal event
            if seen.event:
                event = f"{datetime.now():%H:%M:%S}: {seen.event}"
            lines = as_lines(trace, seen, width=console.width, height=console.height - 1, event=event)
            text = "\n".join([*lines, f"{datetime.now():%H:%M:%S}, Ctrl-C ends it"])
            live.update(Text(text, no_wrap=True, overflow="crop"), refresh=True)

        yield show


def _status(trace: Path, seen: Look) -> str:
    """How long the trace is and how fast it grows, or why there is none."""
    if seen.head is None:
        return f"{trace}: {'no routed calls in it yet' if seen.there else 'no such file yet: waiting for it'}"
    speed = "" if seen.tokens_per_s is None else f", {seen.tokens_per_s:.1f} tok/s"
    if seen.still_s >= STILL_S:
        speed += f", still for {seen.still_s:.0f} s"
    gone = "" if seen.there else ", and now gone: waiting for it"
    layers = len(seen.head.layers)
    counted = f"{seen.tokens:,} tokens, {seen.calls:,} calls, {layers} layer{'' if layers == 1 else 's'}"
    return f"{trace.name}: {counted}{speed}{gone}"


def _drift(seen: Look) -> str:
    return "" if seen.overlap is None else f"overlap with as many before {percent(seen.overlap)}%"


def as_line(trace: Path, seen: Look) -> str:
    """As much as fits a line: the hit rates, with the window's in brackets."""
    if seen.head is None:
        return _status(trace, seen)
    several = len({row.setup.policy for row in seen.rows}) > 1
    rates = [
        f"{row.setup.bank}{f' {row.setup.policy.spec}' if several else ''} {_hits(row.whole)} ({_hits(row.window)})"
        for row in seen.rows
        if row.whole is not None
    ]
    drift = f"; {_drift(seen)}" if seen.overlap is not None else ""
    return f"{_status(trace, seen)}{drift}; hit % (last {seen.window_tokens:,} tokens): {', '.join(rates) or '-'}"


def as_lines(trace: Path, seen: Look, *, width: int, height: int | None = None, event: str = "") -> list[str]:
    """The table in `width` columns, with fewer rows if it would exceed `height` lines."""
    if seen.head is None:
        return _wrapped([_status(trace, seen), event], width)
    counted = [row for row in seen.rows if row.whole is not None]
    shown = counted
    while True:
        lines = _layout(trace, seen, shown, event, width)
        if height is None or len(lines) <= height or len(shown) < 2:
            return lines
        keep = max(len(shown) - (len(lines) - height), 1)
        shown = [counted[number * (len(counted) - 1) // max(keep - 1, 1)] for number in range(keep)]


def _layout(trace: Path, seen: Look, rows: list[Row], event: str, width: int) -> list[str]:
    counted = [row for row in seen.rows if row.whole is not None]
    setup, policies = seen.rows[0].setup, {row.setup.policy.spec for row in seen.rows}
    columns: list[Column] = [
        ("bank", "right", lambda row: str(row[0].bank)),
        ("policy", "left", lambda row: row[0].policy.spec),
        ("hit %", "right", lambda row: percent(row[1]["hit_rate"])),
        ("last", "right", lambda row: percent(row[2]["hit_rate"])),
        ("miss/tok", "right", lambda row: decimals(row[1]["misses_per_token"])),
        ("last miss", "right", lambda row: decimals(row[2]["misses_per_token"])),
        ("read/tok", "right", lambda row: size(row[1]["bytes_per_token"])),
        ("last read", "right", lambda row: size(row[2]["bytes_per_token"])),
        ("aliased", "right", lambda row: count(row[1]["aliased_refs"])),
    ]
    unused = {"policy"} if len(policies) == 1 else set()
    if not any(row.whole is not None and row.whole.expert_bytes for row in counted):
        unused |= {"read/tok", "last read"}
    if setup.contract != "runtime":
        unused.add("aliased")
    caption = [f"last: of the last {seen.window_tokens:,} tokens", _drift(seen)]
    if seen.aliased is not None:
        caption.append(f"aliased slots recorded: {seen.aliased:,}")
    if len(rows) < len(counted):
        caption.append(f"{len(rows)} of {len(counted)} rows fit here, --json has all")
    caption += _left_out([row for row in seen.rows if row.whole is None])
    made = table(
        [column for column in columns if column[0] not in unused],
        [
            (row.setup, row.whole.total(), row.window.total())
            for row in rows
            if row.whole is not None and row.window is not None
        ],
        caption="; ".join(filter(None, caption)),
        dispensable=DISPENSABLE,
    )
    policy = f"{setup.policy.spec}, " if len(policies) == 1 else ""
    title = [_status(trace, seen), f"{policy}bank: {bank_meaning(setup)}, contract {setup.contract}", event]
    return [*_wrapped(title, width), *table_lines(made, width=width)]


def _wrapped(texts: list[str], width: int) -> list[str]:
    return [line for text in filter(None, texts) for line in textwrap.wrap(printable(text), width)]


def _left_out(rows: list[Row]) -> list[str]:
    """The banks without counts, with the reason for the first."""
    if not rows:
        return []
    banks = list(dict.fromkeys(str(row.setup.bank) for row in rows))
    return [f"left out: {', '.join(banks)} ({rows[0].reason})"]


def _hits(counts: Counts | None) -> str:
    return percent(None if counts is None else counts.total()["hit_rate"])


def as_document(trace: Path, seen: Look) -> dict[str, Any]:
    """The document of `--json`, with the columns of schema.COUNTS that a replay can fill."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "trace": str(trace),
        "there": seen.there,
        "event": seen.event or None,
        "read_bytes": seen.read_bytes,
        "tokens": seen.tokens,
        "calls": seen.calls,
        "layers": 0 if seen.head is None else len(seen.head.layers),
        "tokens_per_s": seen.tokens_per_s,
        "still_s": seen.still_s,
        "window_tokens": seen.window_tokens,
        "overlap": seen.overlap,
        "aliased_recorded": seen.aliased,
        "rows": [
            {
                "bank": str(row.setup.bank),
                "policy": row.setup.policy.spec,
                "contract": row.setup.contract,
                "scope": row.setup.scope,
                "left_out": row.reason or None,
                "whole": None if row.whole is None else row.whole.total(),
                "window": None if row.window is None else row.window.total(),
            }
            for row in seen.rows
        ],
    }
