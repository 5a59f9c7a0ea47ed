"""The content of a value as canonical JSON, and its hash: equal values have equal hashes wherever they are made."""

from __future__ import annotations

import hashlib
import json
import sys
import sysconfig
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import cached_property
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

OURS = ("flashmoe_sim", "native_bridge")
INSTALLED = ("site-packages", "dist-packages")


class NoContent(Exception):
    """A value whose content is unknown, such as an open file."""


def hash_of(
    value: Any,
    *,
    without: Mapping[type, Collection[str]] | None = None,
    own: Collection[str] = (),
    digest_size: int = 16,
) -> str:
    """The hash of a value in hexadecimal, over JSON with sorted keys and exact floats; arrays: dtype, shape and bytes.

    A dataclass is hashed by its fields. A user's own function or class is hashed by its compiled code and everything
    that the code names; one from Python, this or another package by its name.
    without: fields to ignore, by dataclass. own: top-level modules that count as the user's although installed.
    Raises NoContent for anything else.
    """
    plain = _ContentReader(without or {}, own).plain(value)
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=digest_size).hexdigest()


class _ContentReader:
    """Turns values into JSON values; numbers the code that it meets, since functions can name each other."""

    def __init__(self, without: Mapping[type, Collection[str]], own: Collection[str]) -> None:
        self.without = without
        self.own = own
        self.met: dict[int, int] = {}

    def plain(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, Fraction):
            return str(value)
        if isinstance(value, np.generic):
            return self.plain(value.item())
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            digest = hashlib.blake2b(np.ascontiguousarray(value).data, digest_size=16).hexdigest()
            return {"array": digest, "dtype": value.dtype.str, "shape": value.shape}
        if isinstance(value, bytes):
            return {"bytes": value.hex()}
        if isinstance(value, Mapping):
            return {"map": sorted(([self.plain(key), self.plain(item)] for key, item in value.items()), key=json.dumps)}
        if isinstance(value, list | tuple):
            return [self.plain(item) for item in value]
        if isinstance(value, set | frozenset):
            return {"set": sorted((self.plain(item) for item in value), key=json.dumps)}
        if is_dataclass(value) and not isinstance(value, type):
            left_out = self.without.get(type(value), ())
            named = [item.name for item in fields(value) if item.name not in left_out]
            return {name: self.plain(getattr(value, name)) for name in named}
        return self.code(value)

    def code(self, value: Any) -> Any:
        value = getattr(value, "py_func", value)  # the source of a function that numba compiled
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        if isinstance(value, property | cached_property):
            value = value.fget if isinstance(value, property) else value.func
        if isinstance(value, ModuleType):
            return {"module": value.__name__}
        if not self.is_own(value):
            name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
            if name is None:
                raise NoContent(f"a {type(value).__name__}")
            return {"name": f"{_module(value)}.{name}"}
        if not isinstance(value, type | FunctionType):
            raise NoContent(f"a {type(value).__name__}")
        if id(value) in self.met:
            return {"met": self.met[id(value)]}
        self.met[id(value)] = len(self.met)
        if isinstance(value, type):
            return {"class": self.attributes(value), "bases": self.plain(value.__bases__)}
        given = [value.__defaults__, value.__kwdefaults__, [cell.cell_contents for cell in value.__closure__ or ()]]
        return {"code": self.compiled(value.__code__), "given": self.plain(given), "names": self.named(value)}

    def is_own(self, value: Any) -> bool:
        """Whether a module, or something defined in it, is the user's."""
        top = _module(value).partition(".")[0]
        if top in self.own:
            return True
        if top in OURS or top in sys.builtin_module_names:
            return False
        file = getattr(sys.modules.get(top), "__file__", None) or ""
        installed = any(folder in file for folder in INSTALLED)
        return not installed and not file.startswith(sysconfig.get_path("stdlib"))

    def attributes(self, kind: type) -> Any:
        """What the body of a class defines, without what Python and `dataclass` add to it."""
        return self.plain(
            {
                name: value
                for name, value in vars(kind).items()
                if not (name.startswith("__") or name == "_abc_impl")
                or (isinstance(value, FunctionType) and value.__code__.co_filename != "<string>")
            }
        )

    def compiled(self, code: CodeType) -> Any:
        shape = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags]
        return [code.co_code.hex(), shape, code.co_names, [self.constant(one) for one in code.co_consts]]

    def constant(self, value: Any) -> Any:
        if isinstance(value, CodeType):
            return self.compiled(value)
        return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)

    def named(self, function: FunctionType) -> Any:
        """What the names in a function's code refer to: globals, and names from other modules of the user's."""
        names = set(_names(function.__code__))
        spaces, seen = [function.__globals__], set()
        found = {}
        while spaces:
            space = spaces.pop()
            seen.add(id(space))
            for name in names & space.keys():
                value = found[f"{space.get('__name__')}.{name}"] = space[name]
                if isinstance(value, ModuleType) and id(vars(value)) not in seen and self.is_own(value):
                    spaces.append(vars(value))
        return self.plain(found)


def _module(value: Any) -> str:
    if isinstance(value, ModuleType):
        return value.__name__
    return getattr(value, "__module__", None) or type(value).__module__


def _names(code: CodeType) -> list[str]:
    inner = [name for one in code.co_consts if isinstance(one, CodeType) for name in _names(one)]
    return [*code.co_names, *inner]
