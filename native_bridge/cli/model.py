"""`sim model`, with what needs more than the simulator."""

from __future__ import annotations

from flashmoe_sim.cli import model
from native_bridge.cli.groups import with_more

command = with_more(model.command)
