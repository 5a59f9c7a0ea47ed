"""`sim replay`, with a note that comes from the log of a recorded run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flashmoe_sim.cli.common import message
from flashmoe_sim.verbs.replay import Replay

if TYPE_CHECKING:
    from flashmoe_sim.machines.machine import Machine


@dataclass(frozen=True, kw_only=True)
class ReplayRecorded(Replay):
    """Replay, and say first if the recorded run did not use the machine's link."""

    def check(self) -> None:
        """Raise BadInput as `Replay` does, and print the note."""
        super().check()
        if self.machine is None:
            return
        from flashmoe_sim.verbs.given import machine_of

        if note := host_bank(Path(str(self.trace)), machine_of(self.machine)):
            message(note)


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
