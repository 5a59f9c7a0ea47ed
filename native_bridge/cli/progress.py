"""The progress of the bridge's runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from native_bridge.repeats import Planned


@contextmanager
def running(layers: int) -> Iterator[Any]:
    """A line on stderr that says what runs, for how long, and how far it is; silent if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return

    def show(one: Planned, seconds: float, calls: int) -> None:
        of = one.request.n_predict
        tokens = f", {calls // max(1, layers):,} steps for a prompt and {of:,} tokens" if calls else ""
        sys.stderr.write(f"\r\x1b[K{one.folder.name}: {seconds:.0f} s{tokens}")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")
