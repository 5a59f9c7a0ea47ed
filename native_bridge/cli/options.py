"""Options that several verbs of the bridge share."""

from __future__ import annotations

import click

runtime_option = click.option(
    "--runtime", metavar="FILE", help="The patched llama-cli; else FLASHMOE_RUNTIME, else the one on the PATH."
)
