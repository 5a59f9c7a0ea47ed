"""The console script `sim`: the simulator's verbs and the bridge's."""

from __future__ import annotations

from collections.abc import Sequence

import click

from flashmoe_sim.cli import main as simulator
from flashmoe_sim.cli.main import Verb

HERE = "native_bridge.cli"
VERBS = {
    **simulator.VERBS,
    **{
        name: Verb(f"{HERE}.{name}", simulator.VERBS[name].does)
        for name in ("replay", "recommend", "trace", "model", "machine")
    },
    "bridge": Verb(f"{HERE}.bridge", "run the real runtime, and check the predictions against it"),
}


class Verbs(simulator.Verbs):
    """The verbs of the simulator, some with more below them, and `bridge`."""

    verbs = VERBS


@click.command(
    cls=Verbs,
    help=simulator.sim.help,
    subcommand_metavar="VERB ...",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="flashmoe-sim", prog_name="sim")
def sim() -> None: ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `sim` with these arguments (the command line's by default) and return the exit code."""
    return simulator.main(arguments, command=sim)


def entry() -> None:
    """The console script."""
    simulator.entry(command=sim)
