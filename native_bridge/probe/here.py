"""This machine as it is seen, with what was measured of it."""

from __future__ import annotations

from dataclasses import dataclass

from flashmoe_sim.machines.here.read import Here
from flashmoe_sim.machines.machine import Machine
from native_bridge.probe.probe import Probed


@dataclass(frozen=True)
class MeasuredHere(Here):
    """This machine, and what was measured of it."""

    measured: tuple[Probed, Machine] | None = None
