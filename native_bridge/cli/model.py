"""`sim model`, with what needs more than the simulator."""

from __future__ import annotations

from flashmoe_sim.cli import model
from native_bridge.cli.groups import with_more
from native_bridge.cli.model_fixture import COMMANDS

command = with_more(model.command, *COMMANDS)
