"""`sim replay`, with a note that comes from the log of a recorded run."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashmoe_sim.cli.commands import command_of
from flashmoe_sim.cli.common import message
from flashmoe_sim.verbs.replay import Replay

if TYPE_CHECKING:
    from flashmoe_sim.machines.machine import Machine


def host_bank(trace: Path, machine: Machine) -> str | None:
    """A note if the trace comes from a run whose log shows that it did not use the machine's link."""
    from flashmoe_sim.io.errors import BadInput
    from native_bridge.engines.read import read_run

    folder = trace if trace.is_dir() else trace.parent
    if machine.link is None or not trace.exists() or not (folder / "run.json").is_file():
        return None
    try:
        run = read_run(folder, failed_too=True)
    except BadInput:
        return None
    if not run.log.host_bank_of_gpu:
        return None
    return (
        f"{folder}: its log shows slots in the host's memory and experts computed by the CPU; these seconds assume a "
        f"bank on the GPU of {machine.name}, with uploads over its link"
    )


def _with_note(**given: Any) -> None:
    from flashmoe_sim.machines.load import load_machine

    assert plain.callback is not None
    if given["machine"] is not None and (note := host_bank(Path(given["trace"]), load_machine(given["machine"]))):
        message(note)
    plain.callback(**given)


plain = command_of("replay", Replay)
command = copy(plain)
command.callback = _with_note
