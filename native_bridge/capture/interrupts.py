"""Ctrl-C and SIGTERM, handled at moments when a trace is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

ENDING = (signal.SIGINT, signal.SIGTERM)

Handler = Callable[..., Any]


@contextmanager
def sigterm_is_ctrl_c() -> Iterator[None]:
    """In the block, SIGTERM raises KeyboardInterrupt instead of ending the process in the middle of a write."""

    def end(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    with _handled((signal.SIGTERM,), end):
        yield


@contextmanager
def interrupts_wait(stop: Callable[[BaseException], None]) -> Iterator[None]:
    """In the block, both pass a KeyboardInterrupt to `stop`, and raise nothing.

    An exception could occur in a function called from C, and be lost.
    """
    with _handled(ENDING, lambda *_: stop(KeyboardInterrupt())):
        yield


@contextmanager
def _handled(numbers: tuple[signal.Signals, ...], handler: Handler) -> Iterator[None]:
    """Set this handler for those signals that are not ignored; outside the main thread, change nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in numbers}
    before = {number: old for number, old in before.items() if old not in {signal.SIG_IGN, None}}
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
