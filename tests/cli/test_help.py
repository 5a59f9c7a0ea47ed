"""Every verb, argument and option says what it is for."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module

import click
import pytest

import flashmoe_sim.verbs
import native_bridge.verbs
from flashmoe_sim.cli import main as simulator
from flashmoe_sim.cli.commands import VerbCommand
from flashmoe_sim.verbs.base import Verb
from native_bridge.cli import main as bridge
from native_bridge.cli.main import main, sim
from tests.support import printed_by


def commands(command: click.Command, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """A command and all below it, with what one types to get there."""
    yield path, command
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                assert below is not None
                yield from commands(below, *path, name)


ALL = dict(commands(sim))


def test_every_verb_is_in_the_table_and_every_entry_is_a_verb() -> None:
    """`completion`, which is about the commands themselves, and the server `mcp` have commands of their own."""
    tables = [*(one.VERBS for one in (simulator, bridge)), *simulator.BELOW.values(), *bridge.BELOW.values()]
    entries = {entry.module for table in tables for entry in table.values()} - {""}
    assert {name for name in entries if ":" not in name} == {"flashmoe_sim.cli.completion", "flashmoe_sim.cli.mcp"}
    packages = flashmoe_sim.verbs, native_bridge.verbs
    modules = [
        import_module(f"{package.__name__}.{found.name}")
        for package in packages
        for found in pkgutil.iter_modules(package.__path__)
    ]
    classes = {f"{one.__module__}:{name}" for module in modules for name, one in vars(module).items() if is_verb(one)}
    assert {name for name in entries if ":" in name} == classes
    for name in bridge.VERBS:
        assert isinstance(sim.get_command(click.Context(sim), name), click.Command)


def is_verb(one: object) -> bool:
    return inspect.isclass(one) and issubclass(one, Verb) and not inspect.isabstract(one)


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str], path: tuple[str, ...]) -> None:
    """And every option of it, one of which is to print JSON, unless others are below it."""
    for option in ("-h", "--help"):
        printed = printed_by(capsys, *path, option)
        assert printed.startswith(f"Usage: {' '.join(('sim', *path))} ")
        assert max(map(len, printed.splitlines())) <= 80
    command = ALL[path]
    assert command.help
    assert command.help.strip().partition("\n")[0].endswith((".", ";", ","))
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            assert parameter.help.endswith("."), parameter.name
            assert parameter.help[0].isupper() or parameter.help[0].isdigit() or ":" in parameter.help, parameter.name
    json = "as_json" in {parameter.name for parameter in command.params}
    assert isinstance(command, click.Group) or json or path == ("mcp",)


def test_without_a_verb_it_says_what_to_do_next(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) <= 12
    assert max(map(len, err.splitlines())) <= 80
    commands = re.findall(r"^  sim (\S+ .*?)  ", err, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        verb, *words = command.split()
        with click.Context(sim) as context:
            sim.get_command(context, verb).make_context(verb, words)


def test_a_group_alone_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace"]) == 2
    assert "inspect" in capsys.readouterr().err
    printed = printed_by(capsys, "--help")
    assert all(verb in printed for verb in bridge.VERBS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed_by(capsys, "--version").startswith("sim, version ")


def test_the_other_name_of_the_catalogue_works_in_the_installed_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed_by(capsys, "trace", "list") == printed_by(capsys, "trace", "catalog")


LONG = {path: command for path, command in ALL.items() if isinstance(command, VerbCommand) and command.shown}


@pytest.mark.parametrize("path", LONG, ids=" ".join)
def test_a_long_help_shows_what_people_use_first(capsys: pytest.CaptureFixture[str], path: tuple[str, ...]) -> None:
    """Six options, and every one in groups with --help-all."""
    command = LONG[path]
    every = {one.opts[0] for one in command.params if isinstance(one, click.Option)}
    first = {one.opts[0] for one in command.params if one.name in command.shown}
    assert len(first) == len(command.shown) == 6
    short, whole = (printed_by(capsys, *path, option) for option in ("--help", "--help-all"))
    named = [set(re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE)) for text in (short, whole)]
    assert named[0] == first | {"--help-all"}
    assert named[1] == every
    assert f"Options; {len(every) - len(named[0])} more with --help-all:" in short
    assert "\nContext and memory:\n" in whole
    assert max(map(len, whole.splitlines())) <= 80
