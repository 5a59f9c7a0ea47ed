"""The console script `sim`: the simulator's verbs and the bridge's."""

from __future__ import annotations

from collections.abc import Sequence

from flashmoe_sim.cli import main as simulator
from flashmoe_sim.cli.main import VerbEntry

CLASSES = "native_bridge.verbs"
VERBS = {
    **simulator.VERBS,
    "replay": VerbEntry(f"{CLASSES}.run:ReplayRecorded", simulator.VERBS["replay"].does),
    "recommend": VerbEntry(f"{CLASSES}.verify:RecommendAndVerify", simulator.VERBS["recommend"].does),
    "tune": VerbEntry(f"{CLASSES}.tune:Tune", "find the fastest flags of a real engine in a few runs"),
    "referee": VerbEntry(f"{CLASSES}.referee:Referee", "score estimators of speeds on measured rows"),
    "bridge": VerbEntry(
        "",
        "run the real runtime, and check the predictions against it",
        "Run the patched llama.cpp, and check predictions against it.",
    ),
}
BELOW = simulator.BELOW | {
    "trace": simulator.BELOW["trace"]
    | {"capture": VerbEntry(f"{CLASSES}.capture:Capture", "Record what the routers of a model choose.")},
    "model": simulator.BELOW["model"]
    | {
        "make-fixture": VerbEntry(
            f"{CLASSES}.fixture:MakeFixture", "Write a small model and its sidecar, to run for real."
        ),
        "make-sidecar": VerbEntry(f"{CLASSES}.fixture:MakeSidecar", "Write the sidecar of a model."),
        "verify-sidecar": VerbEntry(f"{CLASSES}.fixture:VerifySidecar", "Compare a sidecar with its model."),
    },
    "machine": simulator.BELOW["machine"]
    | {
        "this": VerbEntry(f"{CLASSES}.probe:ThisMachineMeasured", simulator.BELOW["machine"]["this"].does),
        "fit": VerbEntry(f"{CLASSES}.calibrate:FitMachine", "A machine from recorded runs, or from rows of a table."),
        "probe": VerbEntry(f"{CLASSES}.probe:Probe", "A machine of your own, measured: storage, memory and link."),
    },
    "bridge": {
        "doctor": VerbEntry(f"{CLASSES}.doctor:Doctor", "Check what a run of the runtime needs here."),
        "run": VerbEntry(f"{CLASSES}.run:RunEngine", "Run the runtime, in several modes and banks."),
        "check": VerbEntry(
            f"{CLASSES}.check:Check", "Compare recorded runs with the simulator's predictions, slot by slot."
        ),
        "calibrate": VerbEntry(f"{CLASSES}.calibrate:Calibrate", "Make runs on this machine, and fit it to them."),
    },
}


class BridgeVerbs(simulator.Verbs):
    """The verbs of the simulator, some with more below them, and `bridge`."""

    verbs = VERBS
    below = BELOW


sim = BridgeVerbs(
    name="sim",
    help=simulator.sim.help,
    params=simulator.sim.params,
    subcommand_metavar="VERB ...",
    context_settings=simulator.sim.context_settings,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `sim` with these arguments (the command line's by default) and return the exit code."""
    return simulator.main(arguments, command=sim)


def entry() -> None:
    """The console script."""
    simulator.entry(command=sim)
