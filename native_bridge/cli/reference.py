"""The page of all commands, generated from the click tree: `docs/reference/commands.md`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from native_bridge.cli.main import VERBS, sim

HEAD = """\
# Commands

`./dev docs` makes this page from the program. `sim COMMAND --help` explains every option and gives an example. With
`--json`, a command prints its result as one JSON document.

"""


def markdown() -> str:
    """The page: a row for each command, with what it does and the names of its options."""
    context = click.Context(sim, info_name="sim")
    lines = ["| command | what it does | options |", "|---|---|---|"]
    for verb, known in VERBS.items():
        command = sim.get_command(context, verb)
        assert command is not None
        lines += [_row(*one) for one in _commands(f"sim {verb}", command, known.does, context)]
    return HEAD + "\n".join(lines) + "\n"


def _commands(name: str, command: click.Command, does: str, above: click.Context) -> Iterator[tuple[str, str, str]]:
    """A command, or the commands of a group: its name with its arguments, what it does, its options."""
    context = click.Context(command, info_name=name, parent=above)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            one = command.get_command(context, below)
            assert one is not None
            yield from _commands(f"{name} {below}", one, one.get_short_help_str(limit=200), context)
        return
    arguments = [one.make_metavar(context) for one in command.params if isinstance(one, click.Argument)]
    options = [max(one.opts, key=len) for one in command.params if isinstance(one, click.Option) and not one.hidden]
    yield " ".join([name, *arguments]), does, ", ".join(f"`{option}`" for option in options)


def _row(name: str, does: str, options: str) -> str:
    cells = (f"`{name}`", f"{does[0].upper()}{does[1:].rstrip('.')}", options)
    return " ".join(("|", " | ".join(cell.replace("|", "\\|") for cell in cells), "|"))
