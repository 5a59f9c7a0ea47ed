"""User code, such as a policy: how it is found, and errors in it as one line with place and cause."""

from __future__ import annotations

import importlib
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint
from importlib.util import module_from_spec
from inspect import isabstract, unwrap
from pathlib import Path
from types import ModuleType
from typing import Any

from flashmoe_sim.content import INSTALLED, OURS
from flashmoe_sim.io.errors import Malformed, Missing, SimError, UnknownName, Unusable

_PACKAGE = str(Path(__file__).parent)
_MOST_SHOWN = 300


def is_outside(kind: Any) -> bool:
    """Whether a class or function is the user's rather than this program's."""
    return (kind.__module__ or "").partition(".")[0] not in OURS


def find_class(kind: str, name: str, base: type) -> type[Any]:
    """The class named by `module:Class`, from a file in the current folder or from Python's path.

    kind: what the user calls it, for messages. base: what the class must extend.
    Raises BadInput for a missing module or class, for a class that is not a complete policy, and for any error in it.
    """
    module_name, _, attribute = name.partition(":")
    verb = {"predictor": "prefetch"}.get(kind, kind)
    expected = f"expected a name from `sim {verb} list` or module:Class"
    if not all(part.isidentifier() for part in (*module_name.split("."), attribute)):
        raise Malformed(f"{kind} {name!r}: {expected}")
    try:
        module = _import(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise Unusable(f"{kind} {name!r}: {place_of(error)}: {cause_of(error)}") from error
        raise Missing(
            f"{kind} {name!r}: No module named {error.name!r} in the current folder ({_here()}), in PYTHONPATH or "
            f"among installed packages; {expected}"
        ) from None
    except (Exception, SystemExit) as error:
        where = place_of(error) or module_name
        raise Unusable(f"{kind} {name!r}: {where}: {cause_of(error)}") from error
    return _class_of(module, attribute, f"{kind} {name!r}", kind, base, expected)


def installed_class(kind: str, entry: EntryPoint, base: type) -> type[Any]:
    """The class that an entry point of an installed package names; raises BadInput as `find_class`."""
    asked = f"{kind} {entry.name!r} of {package_of(entry)}"
    try:
        module = importlib.import_module(entry.module)
    except (Exception, SystemExit) as error:
        raise Unusable(f"{asked}: {place_of(error) or entry.module}: {cause_of(error)}") from error
    found = _class_of(module, entry.attr, asked, kind, base, "mend or uninstall the package")
    if found.name != entry.name:
        raise Malformed(f"{asked}: its class is named {found.name!r}; expected one name")
    return found


def package_of(entry: EntryPoint) -> str:
    """The package of an entry point, in words."""
    return f"package {entry.dist.name}" if entry.dist is not None else "a package"


def _class_of(module: ModuleType, attribute: str, asked: str, kind: str, base: type, expected: str) -> type[Any]:
    """A class of a module, complete. asked: what names it, and expected: what else could, for messages."""
    found = getattr(module, attribute, None)
    if found is None:
        classes = [key for key, one in vars(module).items() if isinstance(one, type) and issubclass(one, base)]
        own = ", ".join(key for key in classes if getattr(module, key).__module__ == module.__name__)
        there = f"; a {kind} there: {own}" if own else ""
        where = shown_path(getattr(module, "__file__", None) or module.__name__)
        raise UnknownName(f"{asked}: no {attribute} in {where}{there}; {expected}")
    if not (isinstance(found, type) and issubclass(found, base)) or not hasattr(found, "name"):
        raise Malformed(f"{asked}: not a {kind}: expected a named class that extends {base.__name__}")
    if isabstract(found):
        lacks = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
        raise Malformed(f"{asked}: not a {kind} yet: {attribute} lacks the method {lacks}")
    if lacks := ", ".join(name for name in vars(base).get("__annotations__", ()) if not hasattr(found, name)):
        raise Malformed(f"{asked}: not a {kind} yet: {attribute} lacks {lacks}")
    return found


def _import(name: str) -> ModuleType:
    """Import a module like `python -m`: from the current folder first.

    That holds only for this name. Imports inside the module search the current folder last, so that no file there
    shadows an installed package.
    """
    top, here = name.partition(".")[0], _here()
    added = here and here not in sys.path
    if added:
        sys.path.append(here)
    try:
        spec = PathFinder.find_spec(top, [here]) if here and top not in sys.modules else None
        if spec is not None and spec.loader is not None:
            module = sys.modules[top] = module_from_spec(spec)
            try:
                spec.loader.exec_module(module)
            except BaseException:
                del sys.modules[top]
                raise
        return importlib.import_module(name)
    finally:
        if added:
            sys.path.remove(here)


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # deleted meanwhile
        return ""


@contextmanager
def blaming(kind: str, chosen: Any) -> Iterator[None]:
    """Turn an error in a user's policy or predictor, an instance or a class, into BadInput of one line."""
    try:
        yield
    except SimError:
        raise
    except (Exception, SystemExit) as error:
        owner = chosen if isinstance(chosen, type) else type(chosen)
        if not is_outside(owner):
            raise
        where = place_of(error) or place_of_class(owner)
        raise Unusable(f"{kind} {getattr(owner, 'name', owner.__name__)}: {where}: {cause_of(error)}") from error


def cause_of(error: BaseException) -> str:
    """An error's message in one line: from a compiler's pages, the first lines that say what is wrong."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if hasattr(error, "patch_message"):  # numba's own
        lines = [line for line in lines if not line.startswith("Failed in nopython mode")]
        lines = lines[: 2 if lines and lines[0].endswith(":") else 1]
        text = " ".join(lines).partition(". Raised from")[0]
        if "(readonly array(" in text:
            text = "it writes to an array that is read-only; it may write only to those that `allocate` returns"
        return f"numba cannot compile it: {text[:_MOST_SHOWN]}"
    if isinstance(error, SyntaxError):
        text = error.msg
    return f"{type(error).__name__}: {' '.join(text.split())[:_MOST_SHOWN]}".rstrip(": ")


def place_of(error: BaseException) -> str:
    """File and line of the user's code that caused an error; empty if there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{shown_path(error.filename)}:{error.lineno}"
    if (loc := getattr(error, "loc", None)) is not None and is_users(loc.filename):
        return f"{shown_path(loc.filename)}:{loc.line}"
    frames = traceback.extract_tb(error.__traceback__)
    found = [frame for frame in frames if is_users(frame.filename)]
    return f"{shown_path(found[-1].filename)}:{found[-1].lineno}" if found else ""


def place_of_class(kind: type) -> str:
    """The file of a class, or its module if that has none."""
    return shown_path(getattr(sys.modules.get(kind.__module__), "__file__", None) or kind.__module__)


def place_of_function(function: Any) -> str:
    """File and line where a function begins, compiled or not; of a wrapper, where the function that it wraps begins."""
    code = unwrap(function).__code__
    return f"{shown_path(code.co_filename)}:{code.co_firstlineno}"


def is_users(file: str) -> bool:
    """Whether a file of code is the user's: not this program's, Python's own, or an installed package's."""
    installed = any(folder in file for folder in INSTALLED) or file.startswith(sysconfig.get_path("stdlib"))
    return not installed and not file.startswith((_PACKAGE, "<frozen"))


def shown_path(file: str) -> str:
    """A path as the user would write it: relative to the current folder, if it is in there."""
    here = _here()
    return os.path.relpath(file, here) if here and file.startswith(here + os.sep) else file
