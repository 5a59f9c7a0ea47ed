"""The console script `sim`: the simulator's verbs and the bridge's."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import click

from flashmoe_sim.cli import main as simulator
from flashmoe_sim.cli.common import json_option, message, print_json, print_sections
from flashmoe_sim.cli.main import Verb
from flashmoe_sim.cli.options import of_verb

HERE, CLASSES = "native_bridge.cli", "native_bridge.verbs"
VERBS = {
    **simulator.VERBS,
    "replay": Verb(f"{HERE}.replay", simulator.VERBS["replay"].does),
    "recommend": Verb(f"{HERE}.recommend", simulator.VERBS["recommend"].does),
    "bridge": Verb("", "run the real runtime, and check the predictions against it"),
}
BELOW: dict[str, dict[str, Verb]] = {  # by group: verbs after its own
    "trace": {"capture": Verb(f"{CLASSES}.capture:Capture", "Record what the routers of a model choose.")},
    "model": {
        "make-fixture": Verb(f"{CLASSES}.fixture:MakeFixture", "Write a small model and its sidecar, to run for real."),
        "make-sidecar": Verb(f"{CLASSES}.fixture:MakeSidecar", "Write the sidecar of a model."),
        "verify-sidecar": Verb(f"{CLASSES}.fixture:VerifySidecar", "Compare a sidecar with its model."),
    },
    "machine": {
        "fit": Verb(f"{CLASSES}.fit:Fit", "A machine from recorded runs, or from rows of a table."),
        "probe": Verb(f"{CLASSES}.probe:Probe", "A machine of your own, measured: storage, memory and link."),
    },
    "bridge": {
        "doctor": Verb(f"{CLASSES}.doctor:Doctor", "Check what a run of the runtime needs here."),
        "run": Verb(f"{CLASSES}.run:Run", "Run the runtime, in several modes and banks."),
        "check": Verb(
            f"{CLASSES}.check:Check", "Compare recorded runs with the simulator's predictions, slot by slot."
        ),
        "calibrate": Verb(f"{CLASSES}.calibrate:Calibrate", "Make runs on this machine, and fit it to them."),
    },
}
HELP = {"help_option_names": ["-h", "--help"]}


class Verbs(simulator.Verbs):
    """The verbs of the simulator, some with more below them, and `bridge`."""

    verbs = VERBS

    def load(self, name: str) -> click.Command:
        """The verb's command, with the verbs below it."""
        if name not in BELOW:
            return super().load(name)
        below = {one: _command(one, verb) for one, verb in BELOW[name].items()}
        if not self.verbs[name].module:
            return click.Group(
                name, below, help="Run the patched llama.cpp, and check predictions against it.", context_settings=HELP
            )
        group = super().load(name)
        assert isinstance(group, click.Group)
        return click.Group(name, {**group.commands, **below}, help=group.help, context_settings=group.context_settings)


def _command(name: str, verb: Verb) -> click.Command:
    """The command of a verb's class; see `native_bridge.verbs.base.Verb`."""
    module, _, class_name = verb.module.partition(":")
    of = getattr(importlib.import_module(module), class_name)

    @click.command(name=name, help=of.help, short_help=verb.does, context_settings=HELP)
    @of_verb(of)
    @json_option
    def command(asked: Any, *, as_json: bool) -> None:
        found = asked.run()
        if as_json:
            print_json(asked.document(found))
        else:
            print_sections(asked.sections(found))
            for note in asked.notes(found):
                message(note)
        first, *others = asked.failures(found) or (None,)
        for failure in others:
            message(str(failure))
        if first is not None:
            raise first

    return command


@click.command(cls=Verbs, help=simulator.sim.help, subcommand_metavar="VERB ...", context_settings=HELP)
@click.version_option(package_name="flashmoe-sim", prog_name="sim")
def sim() -> None: ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `sim` with these arguments (the command line's by default) and return the exit code."""
    return simulator.main(arguments, command=sim)


def entry() -> None:
    """The console script."""
    simulator.entry(command=sim)
