"""Verbs of the simulator with additional subcommands."""

from __future__ import annotations

import click


def with_more(group: click.Group, *commands: click.Command) -> click.Group:
    """A copy of the group with these commands after its own."""
    return click.Group(
        name=group.name,
        help=group.help,
        commands=[*group.commands.values(), *commands],
        context_settings=group.context_settings,
    )
