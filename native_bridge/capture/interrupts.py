"""Ctrl-C and SIGTERM while a model computes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_wait(stop: Callable[[BaseException], None]) -> Iterator[None]:
    """In the block, both pass a KeyboardInterrupt to `stop`, unless they are ignored, and raise nothing.

    An exception could occur in a function called from C, and be lost. Only the main thread gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: old for number, old in before.items() if old not in {signal.SIG_IGN, None}}
    for number in before:
        signal.signal(number, lambda *_: stop(KeyboardInterrupt()))
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
