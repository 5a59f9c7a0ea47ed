"""The log of a run of the patched runtime: its settings, what it counted and what it timed."""

from flashmoe_sim.machines.run_log.engine import Device, Perf
from flashmoe_sim.machines.run_log.failure import Overflow, exhausted_of
from flashmoe_sim.machines.run_log.parse import MODES_WITHOUT_SLOTS, RunLog, parse_log, read_log
from flashmoe_sim.machines.run_log.placement import Buffer, Memory, Placement
from flashmoe_sim.machines.run_log.profile import Profile, ProfileRow
from flashmoe_sim.machines.run_log.routed import LayerLine, Routed
from flashmoe_sim.machines.run_log.summary import Family, OracleTrace, Overlap, Prefetch, Prime

__all__ = [
    "MODES_WITHOUT_SLOTS",
    "Buffer",
    "Device",
    "Family",
    "LayerLine",
    "Memory",
    "OracleTrace",
    "Overflow",
    "Overlap",
    "Perf",
    "Placement",
    "Prefetch",
    "Prime",
    "Profile",
    "ProfileRow",
    "Routed",
    "RunLog",
    "exhausted_of",
    "parse_log",
    "read_log",
]
