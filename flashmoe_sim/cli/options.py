"""The command-line options of a question, made from the fields of Question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any

import click

from flashmoe_sim.question import CONDITIONS, SIZED, Question

__all__ = ["CONDITIONS", "SIZED", "asks"]

FIELDS: dict[str, Field[Any]] = {item.name: item for item in fields(Question)}


def asks(*names: str, several: bool = False, **changed: dict[str, Any]) -> Callable[[Any], Any]:
    """Options for these fields of Question, in this order.

    several: for a verb that accepts lists. changed: by field, what a verb says or requires instead.
    """

    def decorated(function: Any) -> Any:
        for name in reversed(names):
            function = _option(FIELDS[name], several=several, **changed.get(name, {}))(function)
        return function

    return decorated


def _option(item: Field[Any], *, several: bool, **changed: Any) -> Callable[[Any], Any]:
    metavar, help_ = item.metadata["several"] if several else (item.metadata["metavar"], item.metadata["help"])
    settings: dict[str, Any] = {"help": help_} | ({"is_flag": True} if item.default is False else {"metavar": metavar})
    if item.type == "int | None":
        settings |= {"type": int}
    if item.default is MISSING:
        settings |= {"required": True}
    elif item.default not in (None, False):
        settings |= {"default": item.default, "show_default": True}
    return click.option(f"--{item.name.replace('_', '-')}", item.name, **settings | changed)


def system_option(help_: str) -> Callable[[Any], Any]:
    """The option for systems."""
    help_ += "; see `sim system list`."
    return click.option("--system", "systems", default="all", show_default=True, metavar="S,S", help=help_)


def memory_options(function: Any) -> Any:
    """Options for what a model and its context, the engine and the system use of a machine's memories."""
    options = (
        asks(
            "dense",
            "context",
            "kv",
            "kv_type",
            context={"help": "Tokens of the context; the model gives their size; default: 4096."},
        ),
        click.option("--reserve", metavar="SIZE", help="RAM of the system and other programs; default: the machine's."),
        click.option(
            "--buffers", metavar="SIZE", help="Compute buffers of an engine like llama.cpp; default: from the model."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function
