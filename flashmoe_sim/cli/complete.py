"""What Tab offers for a parameter of `sim`, by the parameter's name, without importing heavy packages."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from importlib import import_module, resources
from types import MethodType

import click
from click.shell_completion import CompletionItem


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
    """The keys or items of a table, from the text of a module that is slow to import."""
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
    return [*_literal("flashmoe_sim.policies.table", "POLICIES"), "all"]


def _models() -> Iterable[str]:
    from flashmoe_sim.geometry.named import model_names

    return model_names()


def _traces() -> Iterable[str]:
    from flashmoe_sim.trace.bundled import catalog

    return catalog()


MACHINES = _table("flashmoe_sim.machines.table", "PRESETS")
SYSTEMS = _table("flashmoe_sim.systems.table", "SYSTEMS")
PREDICTORS = _table("flashmoe_sim.prefetchers.table", "PREFETCHERS")
# By the parameter's name: what completes it, and whether files are accepted too.
NAMES: dict[str, tuple[Callable[[], Iterable[str]], bool]] = {
    "policy": (_policies, False),
    "contract": (lambda: _literal("flashmoe_sim.policies.base", "ALL_CONTRACTS"), False),
    "scope": (lambda: ("layer", "global"), False),
    "prefetch": (PREDICTORS, False),
    "execution": (_table("flashmoe_sim.timeline.models.table", "EXECUTION_MODELS"), False),
    "kv_type": (_table("flashmoe_sim.geometry.attention", "CACHE_TYPES"), False),
    "machine": (MACHINES, True),
    "model": (_models, True),
    "spec": (_models, True),
    "systems": (SYSTEMS, False),
    "system": (SYSTEMS, False),
    "trace": (_traces, True),
    "traces": (_traces, True),
}
