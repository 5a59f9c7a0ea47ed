"""Verbs of the simulator with more below them."""

from __future__ import annotations

import click


def with_more(group: click.Group, *commands: click.Command) -> click.Group:
    """The group with these commands after its own; the group itself stays as it is."""
    return click.Group(
        name=group.name,
        help=group.help,
        commands=[*group.commands.values(), *commands],
        context_settings=group.context_settings,
    )
