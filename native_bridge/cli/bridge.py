"""`sim bridge`: the real runtime; its verbs are in `native_bridge.verbs`."""

from __future__ import annotations

import click

command = click.Group("bridge", help="Run the patched llama.cpp, and check predictions against it.")
