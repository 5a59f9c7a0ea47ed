"""`sim bridge`: the real runtime, and the accuracy of predictions for its runs."""

from __future__ import annotations

import click

from native_bridge.cli.bridge_calibrate import calibrate
from native_bridge.cli.bridge_check import check
from native_bridge.cli.bridge_doctor import doctor
from native_bridge.cli.bridge_run import run


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Run the patched llama.cpp, and check predictions against it."""


command.add_command(doctor)
command.add_command(run)
command.add_command(check)
command.add_command(calibrate)
