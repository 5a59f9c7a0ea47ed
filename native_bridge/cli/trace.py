"""`sim trace`, with what needs more than the simulator."""

from __future__ import annotations

from flashmoe_sim.cli import trace
from native_bridge.cli.groups import with_more
from native_bridge.cli.trace_capture import capture

command = with_more(trace.command, capture)
