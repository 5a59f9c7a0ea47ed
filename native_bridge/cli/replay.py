"""`sim replay`, with a note that comes from the log of a recorded run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flashmoe_sim.cli.replay import NOTES, command

if TYPE_CHECKING:
    from flashmoe_sim.machines.machine import Machine

__all__ = ["command"]


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
        f"{folder}: by its log the slots were in the host's memory, nothing was uploaded and the CPU computed the "
        f"experts; the seconds are of a bank on the GPU of {machine.name}, with uploads over its link"
    )


NOTES.append(host_bank)
