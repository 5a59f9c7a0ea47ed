"""Command-line options, made from the fields that declare them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from functools import wraps
from typing import Any, TypeVar

import click

from flashmoe_sim.cli.common import FiniteRange
from flashmoe_sim.options import MemoryOptions
from flashmoe_sim.question import CONDITIONS, SIZED, Question, in_order

__all__ = ["CONDITIONS", "SIZED", "asks", "memory_options", "of_verb"]

FIELDS: dict[str, Field[Any]] = {item.name: item for item in fields(Question)}
Asked = TypeVar("Asked")


def asks(*names: str, several: bool = False, **changed: dict[str, Any]) -> Callable[[Any], Any]:
    """Options for these fields of Question, in this order.

    several: for a verb that accepts lists. changed: by field, what a verb says or requires instead.
    """

    def decorated(function: Any) -> Any:
        for name in reversed(names):
            function = _option(FIELDS[name], several=several, **changed.get(name, {}))(function)
        return function

    return decorated


def of_verb(verb: Callable[..., Asked]) -> Callable[[Any], Any]:
    """Options for every field of a verb's class; the function gets an instance as `asked`."""

    def decorated(function: Callable[..., None]) -> Any:
        options = in_order(verb)  # type: ignore[arg-type]

        @wraps(function)
        def with_verb(**given: Any) -> None:
            asked = {item.name: given.pop(item.name) for item in options}
            for item in options:
                parse = item.metadata["parse"]
                if parse is not None and asked[item.name] is not None:
                    asked[item.name] = parse(asked[item.name])
            function(asked=verb(**asked), **given)

        command: Any = with_verb
        for item in reversed(options):
            command = _option(item)(command)
        return command

    return decorated


def memory_options(function: Any) -> Any:
    """Options for the memory of a real system; the function gets `memory`."""
    options = fields(MemoryOptions)

    @wraps(function)
    def with_memory(**given: Any) -> None:
        function(memory=MemoryOptions(**{item.name: given.pop(item.name) for item in options}), **given)

    command: Any = with_memory
    for item in reversed(options):
        command = _option(item)(command)
    return command


def _option(item: Field[Any], *, several: bool = False, **changed: Any) -> Callable[[Any], Any]:
    said = item.metadata
    if said["positional"]:
        return click.argument(item.name, required=item.default is MISSING, metavar=said["metavar"])
    metavar, help_ = said["several"] if several else (said["metavar"], said["help"])
    settings: dict[str, Any] = {"help": help_}
    if item.default is False:
        settings |= {"is_flag": True}
    elif said["choices"]:
        settings |= {"type": click.Choice(said["choices"])}
    else:
        settings |= {"metavar": metavar}
    if said["above"] is not None:
        settings |= {"type": FiniteRange(said["above"], min_open=True)}
    elif str(item.type) in ("int", "int | None"):
        settings |= {"type": int if said["least"] is None else click.IntRange(said["least"])}
    if item.default is MISSING:
        settings |= {"required": True}
    elif item.default == ():
        settings |= {"multiple": True}
    elif item.default not in (None, False):
        settings |= {"default": item.default, "show_default": True}
    return click.option(said["flag"] or f"--{item.name.replace('_', '-')}", item.name, **settings | changed)
