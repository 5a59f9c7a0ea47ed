"""Arguments of Python functions checked against their annotations, as a command line checks its options."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

from flashmoe_sim.io.errors import Malformed, shown

_WORDS = {int: "a whole number", float: "a number", bool: "True or False", str: "a text", Path: "a path"}


class _Wrong(Exception):
    """A value is not of its annotation."""


def taken(name: str, value: Any, annotation: Any) -> Any:
    """The value of an argument, with NumPy's numbers as Python's.

    Raises BadInput, with what was expected, for a value that is not of the annotation.
    """
    try:
        return _taken(value, annotation)
    except _Wrong:
        expected = list(dict.fromkeys(_expected(annotation)))
        if expected == ["a list"]:
            expected = [f"a list, each {' or '.join(_expected(get_args(annotation)[0]))}"]
        listed = ", ".join(expected[:-1]) + " or " * (len(expected) > 1) + expected[-1]
        raise Malformed(f"{name} is {shown(value)}; expected {listed}") from None


def _taken(value: Any, annotation: Any) -> Any:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        for part in parts:
            try:
                return _taken(value, part)
            except _Wrong:
                continue
        raise _Wrong
    if origin is Literal:
        return _if(value in parts, value)
    if origin is type:
        return _if(isinstance(value, type) and issubclass(value, parts[0]), value)
    if origin is Mapping:
        return _if(isinstance(value, Mapping), value)
    if origin is not None:  # Iterable or Sequence
        try:
            items = list(_if(not isinstance(value, str | bytes | Mapping), value))
        except TypeError:
            raise _Wrong from None
        return [_taken(item, parts[0]) for item in items]
    if annotation is bool:
        return bool(_if(isinstance(value, bool | np.bool_), value))
    if annotation is int:
        return operator.index(_if(isinstance(value, Integral) and not isinstance(value, bool), value))
    if annotation is float:
        real = _if(isinstance(value, Real) and not isinstance(value, bool | np.bool_), value)
        return operator.index(real) if isinstance(real, Integral) else float(real)
    if annotation is Path:
        return _if(isinstance(value, os.PathLike), value)
    return _if(isinstance(value, annotation), value)


def _if(right: bool, value: Any) -> Any:
    if not right:
        raise _Wrong
    return value


def _expected(annotation: Any) -> Iterator[str]:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        for part in parts:
            yield from _expected(part)
    elif origin is Literal:
        yield from map(repr, parts)
    elif origin is type:
        yield f"a class that extends {parts[0].__name__}"
    elif origin is not None:
        yield "a mapping" if origin is Mapping else "a list"
    elif annotation is not NoneType:
        yield _WORDS.get(annotation) or f"a {annotation.__name__}"
