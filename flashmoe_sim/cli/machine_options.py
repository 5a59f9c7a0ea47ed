"""The options that say on which machine, and how a model runs on it, shared by the verbs that tell seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from flashmoe_sim.residency.setup import Setup
    from flashmoe_sim.timeline.assemble import Conditions

EXECUTIONS = (
    "resident, sync-install, parallel-install, async-upload, overlap-prefetch, hot-cold, prefill-copy, page-cache, "
    "k-materialize"
)
machine_option = click.option(
    "--machine", metavar="X", help="Say how fast it runs on this machine: a name from `sim machine list`, or a file."
)


def condition_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--execution`, `--dense`, `--kv`, `--direct-io` and `--hot`."""
    for option in (
        click.option("--hot", is_flag=True, help="The storage is hot, and reads at its hot_share."),
        click.option("--direct-io", is_flag=True, help="Reads go past the page cache."),
        click.option("--kv", metavar="SIZE", help="Memory of the context, such as 2GiB.  [default: 0]"),
        click.option(
            "--dense", metavar="SIZE", help="Weights outside the routed experts, where the model does not tell."
        ),
        click.option(
            "--execution",
            metavar="E",
            help=f"In which order a call is read, uploaded and computed: {EXECUTIONS}.  [default: by policy]",
        ),
    ):
        function = option(function)
    return function


def conditions_of(
    setup: Setup, *, execution: str | None, dense: str | None, kv: str | None, direct_io: bool, hot: bool
) -> Conditions:
    """The conditions that these options mean for one setup."""
    from flashmoe_sim.timeline.assemble import Conditions
    from flashmoe_sim.timeline.execution import parse_execution
    from flashmoe_sim.timeline.timed import default_execution

    return Conditions(
        execution=default_execution(setup) if execution is None else parse_execution(execution),
        dense_bytes=None if dense is None else _bytes("--dense", dense),
        kv_bytes=0 if kv is None else _bytes("--kv", kv),
        direct_io=direct_io,
        hot=hot,
    )


def _bytes(option: str, text: str) -> int:
    from flashmoe_sim.errors import BadInput
    from flashmoe_sim.policies.bank import parse_size

    size = parse_size(text)
    if size is None:
        raise BadInput(f"{option} {text!r}: expected a size with its unit, such as 5GiB")
    return size
