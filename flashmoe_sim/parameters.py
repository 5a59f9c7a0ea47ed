"""Names with parameters: how policies and predictors are written on the command line and in results."""

from __future__ import annotations

import importlib
import typing
from collections.abc import Mapping
from dataclasses import fields
from inspect import isabstract
from typing import Any, TypeVar

from flashmoe_sim.errors import BadInput, unknown_name
from flashmoe_sim.numbers import decimal

T = TypeVar("T")


def spec_of(chosen: Any) -> str:
    """The name with the parameters that differ from their defaults, as `parse` takes it."""
    changed = [
        f"{item.name}={getattr(chosen, item.name)}"
        for item in fields(chosen)
        if getattr(chosen, item.name) != item.default
    ]
    return ":".join([chosen.name, *changed])


def parse(kind: str, text: str, known: Mapping[str, type[T]], base: type) -> T:
    """One of `known` from `name:key=value`, or a class of one's own from `module:Class`.

    kind: what the user calls it, for messages. base: what a class of one's own must extend.
    Raises BadInput for an unknown name or parameter and for a value of the wrong type.
    """
    name, *pieces = text.split(":")
    if pieces and "=" not in pieces[0]:
        name = f"{name}:{pieces.pop(0)}"
    if name in known:
        chosen = known[name]
    elif ":" in name and name.split(":")[0] not in known:
        chosen = _outside(kind, name, base)
    else:
        raise unknown_name(kind, name, known)
    types = typing.get_type_hints(chosen)
    allowed = [item.name for item in fields(chosen)]  # type: ignore[arg-type]
    parameters = {}
    for piece in pieces:
        key, equals, value = piece.partition("=")
        if not equals or key not in allowed:
            listed = ", ".join(allowed) or "none"
            raise BadInput(f"{kind} {text!r}: {piece!r} is not a parameter; {name} has: {listed}")
        try:
            if types[key] in (int, float) and decimal(value) is None:
                raise ValueError
            parameters[key] = types[key](value)
        except ValueError:
            raise BadInput(f"{kind} {text!r}: {key} is {value!r}, expected {types[key].__name__}") from None
    return chosen(**parameters)


def _outside(kind: str, name: str, base: type) -> type[Any]:
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        listed = "`sim policy list`" if kind == "policy" else "`sim prefetch list`"
        raise BadInput(f"{kind} {name!r}: {error}; expected a name from {listed} or module:Class") from None
    if not (isinstance(found, type) and issubclass(found, base)) or isabstract(found) or not hasattr(found, "name"):
        raise BadInput(f"{kind} {name!r}: not a {kind}: expected a named class that extends {base.__name__}")
    return found
