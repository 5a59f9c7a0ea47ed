"""`sim completion`: a script that completes verbs, options and names in a shell, and what Tab then offers."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterable
from importlib import import_module, resources
from types import MethodType
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

from flashmoe_sim.cli.common import json_option, print_json
from flashmoe_sim.cli.main import COMPLETING

WHERE = {
    "bash": 'eval "$(sim completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(sim completion zsh)" in ~/.zshrc, after compinit',
    "fish": "sim completion fish > ~/.config/fish/completions/sim.fish",
}


@click.command(name="completion")
@click.argument("shell", type=click.Choice(list(WHERE)))
@json_option
@click.pass_context
def command(ctx: click.Context, shell: str, as_json: bool) -> None:
    """Print the script that completes verbs, options and bundled names in SHELL.

    \b
    bash:  eval "$(sim completion bash)" in ~/.bashrc
    zsh:   eval "$(sim completion zsh)" in ~/.zshrc, after compinit
    fish:  sim completion fish > ~/.config/fish/completions/sim.fish
    """
    from click.shell_completion import get_completion_class

    use_shells()
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "sim", COMPLETING).source()
    if as_json:
        print_json({"shell": shell, "install": WHERE[shell], "script": script})
        return
    click.echo(script, nl=False)


def with_names(command: click.Command) -> click.Command:
    """The command, with its parameters and those of its subcommands completed by `NAMES`."""
    for parameter in command.params:
        if parameter.name in (*NAMES, "name") and parameter.type is click.STRING:
            setattr(parameter, "shell_complete", MethodType(_complete, parameter))  # noqa: B010  # only of this one
    for below in getattr(command, "commands", {}).values():
        with_names(below)
    return command


def _complete(parameter: click.Parameter, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
    """Names for the last part of a list with commas; files if no name fits and the parameter accepts them."""
    name = parameter.name or ""
    if name == "name" and ctx.parent is not None:  # of `sim policy show NAME` and the like
        name = ctx.parent.info_name or ""
    if name not in NAMES:
        return []
    names, takes_files = NAMES[name]
    before, comma, last = incomplete.rpartition(",")
    fitting = [f"{before}{comma}{one}" for one in names() if one.startswith(last)]
    if takes_files and not (incomplete and fitting):
        return [CompletionItem(incomplete, type="file")]
    return [CompletionItem(one) for one in fitting]


def _literal(module: str, variable: str) -> list[str]:
    """The items of a tuple, or the keys of a dict, from the text of a module that is slow to import."""
    package, _, file = module.rpartition(".")
    tree = ast.parse(resources.files(package).joinpath(f"{file}.py").read_text("utf-8"))
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if any(isinstance(target, ast.Name) and target.id == variable for target in targets):
            parts = value.keys if isinstance(value, ast.Dict) else getattr(value, "elts", [])
            return [str(part.value) for part in parts if isinstance(part, ast.Constant)]
    raise AssertionError(f"{module} has no {variable}")


def _table(module: str, variable: str) -> Callable[[], Iterable[str]]:
    return lambda: getattr(import_module(module), variable)


def _policies() -> list[str]:
    from flashmoe_sim.policies.table import POLICIES

    return [*POLICIES, "all"]


def _models() -> Iterable[str]:
    from flashmoe_sim.geometry.named import model_names

    return model_names()


def _traces() -> Iterable[str]:
    from flashmoe_sim.trace.bundled import catalog

    return catalog()


def _machines() -> Iterable[str]:
    from flashmoe_sim.machines.table import PRESETS

    return [*PRESETS, "this"]


SYSTEMS = _table("flashmoe_sim.systems.table", "SYSTEMS")
PREDICTORS = _table("flashmoe_sim.prefetchers.table", "PREFETCHERS")
# By the parameter's name: what completes it, and whether files are accepted too.
NAMES: dict[str, tuple[Callable[[], Iterable[str]], bool]] = {
    "policy": (_policies, False),
    "contract": (lambda: _literal("flashmoe_sim.policies.base", "CONTRACT_MEANINGS"), False),
    "scope": (lambda: ("layer", "global"), False),
    "prefetch": (PREDICTORS, False),
    "execution": (_table("flashmoe_sim.timeline.models.table", "EXECUTION_MODELS"), False),
    "kv_type": (_table("flashmoe_sim.geometry.model", "CACHE_TYPES"), False),
    "machine": (_machines, True),
    "model": (_models, True),
    "spec": (_models, True),
    "systems": (SYSTEMS, False),
    "system": (SYSTEMS, False),
    "trace": (_traces, True),
    "traces": (_traces, True),
}


class _WholeWords(ShellComplete):
    """Completes `--option=part` to a whole word; click leaves `--option=` out."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        items = super().get_completions(args, incomplete)
        option, equals, _ = incomplete.partition("=")
        if not equals or not option.startswith("--"):
            return items
        return [
            CompletionItem(f"{option}={item.value}", item.type, item.help) if item.type == "plain" else item
            for item in items
        ]


class Bash(_WholeWords, BashComplete):
    """Takes the line as it was typed: bash's own words end at each `=` and `:`, and so do the words it replaces."""

    source_template = BashComplete.source_template.replace(
        'COMP_WORDS="${COMP_WORDS[*]}"', 'COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORDS="${COMP_WORDS[*]}"'
    )

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("COMP_LINE")
        if line is None:  # asked by a script of click's
            return super().get_completion_args()
        words = split_arg_string(line)[1:]
        return (words, "") if line[-1:].isspace() else (words[:-1], words[-1])

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        items = super().get_completions(args, incomplete)
        if "COMP_LINE" not in os.environ:
            return items
        kept = incomplete[: max(incomplete.rfind("="), incomplete.rfind(":")) + 1]
        return [CompletionItem(item.value.removeprefix(kept), item.type, item.help) for item in items]


class Zsh(_WholeWords, ZshComplete):
    pass


class Fish(_WholeWords, FishComplete):
    """A value may have a comma in it."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')


def use_shells() -> None:
    """Let click take these classes for its own."""
    for kind in (Bash, Zsh, Fish):
        add_completion_class(kind)
