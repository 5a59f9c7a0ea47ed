"""The options for the machine and how a model runs on it, shared by the verbs with seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

EXECUTIONS = (
    "resident, sync-install, split-install, parallel-install, async-upload, overlap-prefetch, hot-cold, prefill-copy, "
    "page-cache, k-materialize"
)
machine_option = click.option(
    "--machine", metavar="X", help="Say how fast it runs on this machine: a name from `sim machine list`, or a file."
)


def condition_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--execution`, `--dense`, `--kv`, `--direct-io` and `--hot`."""
    for option in (
        click.option("--hot", is_flag=True, help="The storage is hot and throttled: it reads at its hot_share."),
        click.option("--direct-io", is_flag=True, help="Reads go past the page cache."),
        click.option("--kv", metavar="SIZE", help="Memory of the context, such as 2GiB; default: 0."),
        click.option(
            "--dense", metavar="SIZE", help="Weights outside the routed experts, such as 5GiB; default: the model's."
        ),
        click.option(
            "--execution",
            metavar="E",
            help=f"The order in which a call is read, uploaded and computed: {EXECUTIONS}; default: the execution "
            "model of the engine that uses this policy.",
        ),
    ):
        function = option(function)
    return function
