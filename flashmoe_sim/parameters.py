"""Names with parameters: how policies and predictors are written on the command line and in results."""

from __future__ import annotations

import typing
from collections.abc import Collection, Mapping
from dataclasses import fields
from functools import lru_cache
from types import UnionType
from typing import Any, TypeVar

from flashmoe_sim.io.errors import Malformed, OutOfRange, UnknownName, unknown_name
from flashmoe_sim.outside import blaming, find_class

T = TypeVar("T")
MOST = 10**12
INT32 = 2**31 - 1  # what kernels count with

Limits = Mapping[str, tuple[float, float]]
Choices = Mapping[str, Collection[str]]


@lru_cache
def _types_of(chosen: Any) -> dict[str, Any]:
    """The types of a class's parameters, `int` for `int | None`; finding them takes longer than a short replay."""
    return {name: _written(kind) for name, kind in typing.get_type_hints(chosen).items()}


def _written(kind: Any) -> Any:
    given = [one for one in typing.get_args(kind) if one is not type(None)]
    return given[0] if isinstance(kind, UnionType) and len(given) == 1 else kind


def check(kind: str, chosen: Any, limits: Limits, choices: Choices) -> None:
    """Raise BadInput for a parameter that is not within its limits, or not one of its choices.

    None is a parameter that is left out, for the rule of what is chosen.
    """
    for name, (least, most) in limits.items():
        if (value := getattr(chosen, name)) is not None and not least <= value <= most:
            left_out = any(item.name == name and item.default is None for item in fields(chosen))
            hint = "; leave it out to have it chosen" if left_out else ""
            raise OutOfRange(f"{kind} {chosen.name}: {name}={value} is not in {least}..{most}{hint}")
    for name, known in choices.items():
        if (value := getattr(chosen, name)) not in known:
            raise UnknownName(f"{kind} {chosen.name}: {name}={value!r} is not one of {', '.join(known)}")


def spec_of(chosen: Any) -> str:
    """The name with all parameters that differ from their defaults, as `parse` reads it."""
    changed = [
        f"{item.name}={getattr(chosen, item.name)}"
        for item in fields(chosen)
        if getattr(chosen, item.name) != item.default
    ]
    return ":".join([chosen.name, *changed])


def parse(kind: str, text: str, known: Mapping[str, type[T]], base: type) -> T:
    """One of `known` from `name:key=value`, or the user's own class from `module:Class`.

    kind: what the user calls it, for messages. base: what the user's own class must extend.
    Raises BadInput for an unknown name or parameter and for a value of the wrong type.
    """
    name, *pieces = text.split(":")
    if pieces and "=" not in pieces[0]:
        name = f"{name}:{pieces.pop(0)}"
    chosen = find(kind, name, known, base)
    return made(kind, text, name, chosen, pieces)


def find(kind: str, name: str, known: Mapping[str, type[T]], base: type) -> type[T]:
    """The class of this name in `known`, or one of the user's from `module:Class`.

    Raises BadInput for a name that is in no table and names no class.
    """
    if name in known:
        return known[name]
    if ":" in name and name.partition(":")[0] not in known:
        return find_class(kind, name, base)
    raise unknown_name(kind, name, known)


def made(kind: str, text: str, name: str, chosen: type[T], pieces: list[str]) -> T:
    """One of a class, with parameters as `key=value`; a later piece replaces an earlier one. text: for messages."""
    with blaming(kind, chosen):
        return _made(kind, text, name, chosen, pieces)


def _made(kind: str, text: str, name: str, chosen: type[T], pieces: list[str]) -> T:
    types: dict[str, Any] = _types_of(chosen) if pieces else {}  # type: ignore[arg-type]
    allowed = [item.name for item in fields(chosen)]  # type: ignore[arg-type]
    parameters: dict[str, Any] = {}
    for piece in pieces:
        key, equals, value = piece.partition("=")
        if not equals or key not in allowed:
            listed = ", ".join(allowed) or "none"
            raise UnknownName(f"{kind} {text!r}: {piece!r} is not a parameter; {name} has: {listed}")
        try:
            if types[key] in (int, float) and ("_" in value or not value.isascii()):
                raise ValueError
            if types[key] is bool and value.lower() not in ("false", "true"):
                raise ValueError
            parameters[key] = value.lower() == "true" if types[key] is bool else types[key](value)
        except (TypeError, ValueError):
            expected = "True or False" if types[key] is bool else types[key].__name__
            raise Malformed(f"{kind} {text!r}: {key} is {value!r}, expected {expected}") from None
        if types[key] is int and abs(parameters[key]) > MOST:
            raise OutOfRange(f"{kind} {text!r}: {key} is beyond {MOST}, the most that a kernel counts with")
    return chosen(**parameters)
