"""Slots by layer in seconds: both banks on one machine, and the uncertainty of their difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.timeline.assemble import Conditions, costs_of
from flashmoe_sim.timeline.interval import gain_interval
from flashmoe_sim.timeline.run import total_seconds
from flashmoe_sim.timeline.timed import Timed, time_replay


@dataclass(frozen=True, eq=False)
class LayerSpeed:
    """The given bank and the bank by layer on a machine.

    gain: the speed by layer over the speed with the given bank, less 1; gain_lo, gain_hi: its 90 % interval. The errors
        of the two speeds are correlated, so it is narrower than theirs. None if no speed is known.
    """

    machine: str
    asked: Timed
    best: Timed
    gain: float | None
    gain_lo: float | None
    gain_hi: float | None

    def to_dict(self) -> dict[str, Any]:
        """Speeds and gain, as printed by `sim allocate --json`."""
        speeds = {
            f"{prefix}{name}": value
            for prefix, timed in (("asked_", self.asked), ("", self.best))
            for name, value in (
                ("tok_s", timed.timing.tok_s),
                ("tok_s_lo", timed.tok_s_lo),
                ("tok_s_hi", timed.tok_s_hi),
            )
        }
        return {"machine": self.machine, **speeds, "gain": self.gain, "gain_lo": self.gain_lo, "gain_hi": self.gain_hi}


def time_layers(
    workload: Workload, setups: tuple[Setup, Setup], machine: Machine, conditions: Conditions
) -> LayerSpeed:
    """Replay the given bank and the bank by layer, and run both on a machine.

    Raises BadInput if a bank does not fit the machine, or the machine lacks what the execution model needs.
    """
    asked, best = (_timed(workload, setup, machine, conditions) for setup in setups)
    before, after = asked.timing.tok_s, best.timing.tok_s
    if before is None or after is None:
        return LayerSpeed(machine.name, asked, best, None, None, None)
    parts = [timed.work.last_decoded for timed in (asked, best)]

    def ratio_on(other: Machine) -> float:
        slow, fast = (
            total_seconds(part, costs_of(workload, setup, other, conditions), conditions.execution)
            for part, setup in zip(parts, setups, strict=True)
        )
        return slow / fast

    lo, hi = gain_interval(after / before, ratio_on, machine, asked.timing.decode_step_s, best.timing.decode_step_s)
    return LayerSpeed(machine.name, asked, best, after / before - 1, lo - 1, hi - 1)


def _timed(workload: Workload, setup: Setup, machine: Machine, conditions: Conditions) -> Timed:
    return time_replay(workload, replay(workload, setup, record=True), machine, conditions)
