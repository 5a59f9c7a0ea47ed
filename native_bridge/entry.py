"""The console script: it imports the rest itself, so that Ctrl-C is one line from the start."""

from __future__ import annotations

import os


def entry() -> None:
    """Run `sim`."""
    try:
        from native_bridge.cli.main import entry as run
    except KeyboardInterrupt:
        os.write(2, b"sim: interrupted\n")
        os._exit(130)
    run()
