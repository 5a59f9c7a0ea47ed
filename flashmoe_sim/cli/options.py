"""Command-line options, made from the fields that declare them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from flashmoe_sim.cli.common import FiniteRange
from flashmoe_sim.question import in_order

Asked = TypeVar("Asked")
MANY = "..."  # ends the metavar of an argument that can be repeated
PATHS = ("FILE", "DIR")  # metavars of what a shell completes


def of_verb(verb: Callable[..., Asked], name: str = "asked") -> Callable[[Any], Any]:
    """Options for every field of a class, such as a verb's; the function gets an instance by this name."""

    def decorated(function: Callable[..., None]) -> Any:
        options = [item for item in in_order(verb) if not item.metadata["in_python"]]  # type: ignore[arg-type]

        @wraps(function)
        def with_verb(**given: Any) -> None:
            asked = {item.name: given.pop(item.name) for item in options}
            for item in options:
                parse = item.metadata["parse"]
                if parse is not None and asked[item.name] is not None:
                    asked[item.name] = parse(asked[item.name])
            function(**{name: verb(**asked)}, **given)

        command: Any = with_verb
        for item in reversed(options):
            command = _option(item)(command)
        return command

    return decorated


def _option(item: Field[Any]) -> Callable[[Any], Any]:
    metadata, required = item.metadata, item.default is MISSING
    metavar = metadata["metavar"]
    if metadata["positional"]:
        kind = click.Path(path_type=Path) if item.type in ("Path", "tuple[Path, ...]") else None
        nargs = -1 if metavar.endswith(MANY) else 1
        return click.argument(item.name, required=required, metavar=metavar, nargs=nargs, type=kind)
    settings: dict[str, Any] = {"help": metadata["help"], "required": required}
    if item.default is False:
        settings |= {"is_flag": True}
    elif "/" in (metadata["flag"] or ""):  # a flag, and its opposite
        settings |= {"is_flag": True, "default": item.default}
    elif metadata["choices"]:
        settings |= {"type": click.Choice(metadata["choices"])}
    else:
        settings |= {"metavar": metavar, "type": _type(item)}
    if item.default == ():
        settings |= {"multiple": True}
    elif not required and item.default is not None and item.default is not False:
        settings |= {"default": item.default, "show_default": True}
    return click.option(metadata["flag"] or f"--{item.name.replace('_', '-')}", item.name, **settings)


def _type(item: Field[Any]) -> Any:
    metadata, kind = item.metadata, str(item.type).removesuffix(" | None")
    if metadata["metavar"] in PATHS:
        return click.Path(path_type=Path)
    least, most, above = metadata["least"], metadata["most"], metadata["above"]
    if kind == "int":
        return int if least is None else click.IntRange(least, most)
    if kind == "float" and metadata["parse"] is None:
        if above is not None:
            return FiniteRange(above, most, min_open=True)
        return float if least is None else FiniteRange(least, most)
    return str
