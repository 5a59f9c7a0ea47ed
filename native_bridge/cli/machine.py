"""`sim machine`, with what needs more than the simulator."""

from __future__ import annotations

from flashmoe_sim.cli import machine
from native_bridge.cli.groups import with_more
from native_bridge.cli.machine_fit import fit
from native_bridge.cli.machine_probe import probe

command = with_more(machine.command, fit, probe)
