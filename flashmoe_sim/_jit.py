"""How kernels are compiled: the only place with compiler settings."""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from threading import Lock
from types import FunctionType
from typing import Any

import numba
from numba.core import caching, cgutils, config, imputils, runtime, types
from numba.extending import intrinsic

from flashmoe_sim.cache import cache_root

_numba: Any = config
_caching: Any = caching
_cgutils: Any = cgutils
_imputils: Any = imputils
_runtime: Any = runtime

_PACKAGE = Path(__file__).parent
_AFTER_KERNELS = (
    "ceilings",
    "options.py",
    "systems",
    "describe.py",
    "measured",
    "field",
    "question.py",
    "sweep",
    "tune",
    "report",
    "verbs",
    "reference.py",
    "api.py",
    "cli",
)
_KEPT_VERSIONS = 4
_choosing_folder = Lock()  # numba reads it from a variable that all threads share


@cache
def kernel_cache() -> Path | None:
    """The folder for this exact source tree, or None if no folder can be written.

    To decide whether a compiled kernel is current, numba looks only at the file of the outermost function, so it would
    miss an edit in a file that the kernel calls into. Naming the folder after the content of the source files makes a
    stale kernel unreachable. No kernel can import what comes after the timeline in the data flow, so an edit there
    keeps the folder, except in a file that makes kernels itself, which has to name this module.
    """
    digest = hashlib.blake2b(f"{numba.__version__} {sys.version_info[:2]}".encode(), digest_size=10)
    found = (os.path.join(folder, file) for folder, _, files in os.walk(_PACKAGE) for file in files)
    for source in sorted(path for path in found if path.endswith(".py")):  # as text: objects take twice as long
        with open(source, "rb") as stream:
            content = stream.read()
        name = source[len(str(_PACKAGE)) + 1 :]
        if name.partition(os.sep)[0] in _AFTER_KERNELS and b"_jit" not in content:
            continue
        digest.update(name.encode())
        digest.update(content)
    try:
        root = cache_root() / "kernels"
        folder = root / digest.hexdigest()
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not _is_private(root):
            return None
        if not folder.exists():
            folder.mkdir()
            others = [entry for entry in root.iterdir() if entry != folder]  # a clock set back makes it the oldest
            others.sort(key=lambda entry: entry.stat().st_mtime, reverse=True)
            for old in others[_KEPT_VERSIONS - 1 :]:
                shutil.rmtree(old, ignore_errors=True)
    except (OSError, RuntimeError):  # the latter if there is no home folder
        return None
    return folder if os.access(folder, os.W_OK) else None


def _is_private(folder: Path) -> bool:
    """Whether nobody else can write there, after removing their permission: loading a kernel runs its code."""
    if not hasattr(os, "getuid"):  # on Windows, where a user's own folders are private
        return True
    status = folder.stat()
    if status.st_uid != os.getuid():
        return False
    if status.st_mode & 0o077:
        folder.chmod(0o700)
    return True


class _KernelCache(_caching.FunctionCache):  # type: ignore[misc]
    """numba's cache, except that a damaged one is emptied, and a full disk only means that nothing is stored.

    Loading a kernel does not need all that compiling one imports, which takes 0.3 s, and only one that creates arrays
    needs numba's runtime; if loading fails, everything is imported first.
    """

    compiles = False  # whether this process had to compile a kernel that no earlier run left
    allocates = True

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = None
        for load in (self._load_alone, super().load_overload):
            with suppress(Exception):  # unpickling foreign bytes can raise anything
                found = load(sig, target_context)
                break
        else:
            with suppress(OSError):
                self.flush()
        if found is None:
            _spare_scipy()
            _KernelCache.compiles = True
        return found

    def _load_alone(self, sig: Any, target_context: Any) -> Any:
        if self.allocates:
            _spare_scipy()
            _runtime.rtsys.initialize(target_context)
        return self._load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):
            super().save_overload(sig, data)


@cache
def _spare_scipy() -> None:
    """Import a part of numba that looks for a BLAS by importing all of scipy.linalg, without the latter.

    A kernel that needs it still imports it when it is compiled.
    """
    linalg: Any = importlib.import_module("numba.np.linalg")
    ensure = linalg.ensure_blas
    linalg.ensure_blas = lambda: None
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = ensure


def compiles() -> bool:
    """Whether this process had to compile a kernel, which takes far longer than to load one."""
    return _KernelCache.compiles or kernel_cache() is None


def jit(function: Callable[..., Any]) -> Any:
    """Compile a kernel on its first call: no Python objects, no GIL, exact floating point, cached on disk.

    It creates and returns no arrays, so it counts no references, and compiles a tenth sooner; see `allocating`.
    Functions from outside the package (a policy in a notebook) are compiled too, but not cached.
    """
    return _compile(function)


def allocating(function: Callable[..., Any]) -> Any:
    """Compile a kernel that creates arrays; otherwise as `jit`."""
    return _compile(function, allocates=True)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a part of a kernel that allocates nothing, into every kernel that calls it, however large it is.

    Passing arrays to a function, with reference counting, costs more than what most policies do with them.
    """
    return _compile(function, inline=True)


def _compile(function: Callable[..., Any], *, inline: bool = False, allocates: bool = False) -> Any:
    ours = function.__module__.startswith("flashmoe_sim.")
    folder = kernel_cache() if ours else None
    njit: Any = numba.njit  # its types lack _nrt: whether arrays are reference-counted, and can be created
    checked = None if ours else inline  # a mistake in a user's policy must not write into other memory
    part = inline and ours  # only kernels call it: it needs no entry from Python
    kernel: Any = njit(
        nogil=True,
        forceinline=inline,
        boundscheck=checked,
        _nrt=allocates or not ours,
        no_cpython_wrapper=part,
        no_cfunc_wrapper=True,
    )(function)
    if ours:
        kernel.get_call_template = partial(_for_any_constant, kernel.get_call_template)
    if folder is not None:
        with _choosing_folder:
            before = _numba.CACHE_DIR
            _numba.CACHE_DIR = str(folder)
            try:
                kernel._cache = _KernelCache(function)  # as cache=True does with numba's own cache
                kernel._cache.allocates = allocates
            finally:
                _numba.CACHE_DIR = before
    return kernel


def _for_any_constant(template: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """The form of a kernel for a call in another one: one for all constants, which inlining makes constant again."""
    any_constant: Any = types.unliteral
    return template(list(map(any_constant, arguments)), {name: any_constant(one) for name, one in keywords.items()})


def _read_only(_: Any, array: Any) -> Any:

    def same(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _imputils.impl_ret_borrowed(context, builder, signature.return_type, arguments[0])

    return array.copy(readonly=True)(array), same


# In a kernel, an array as one to which numba compiles no writes; it costs nothing. A replay loop relies on what it gave
# to a user's function.
read_only: Any = intrinsic(_read_only)


def _trailing_zeros(_: Any, word: Any) -> Any:

    def count(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, False))

    return word(word), count


# In a kernel, how many zeros are below the lowest 1 of an integer, in its type: one instruction.
trailing_zeros: Any = intrinsic(_trailing_zeros)


def _fields_after_first(_: Any, record: Any) -> Any:
    members = record.members[1:]

    def load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values = []
        for name, kind in members:
            place = _cgutils.get_record_member(builder, arguments[0], record.offset(name), context.get_data_type(kind))
            values.append(context.unpack_value(builder, kind, place))
        return context.make_tuple(builder, signature.return_type, values)

    as_tuple: Any = types.BaseTuple.from_types
    return as_tuple(tuple(kind for _, kind in members))(record), load


# In a kernel, the fields of a record but the first, as a tuple: a function that gets it cannot write to the record.
fields_after_first: Any = intrinsic(_fields_after_first)


def compile_for(kernel: Any, *arguments: Any) -> None:
    """Compile a kernel for the types of these arguments; if that fails, numba's error names the line of the kernel."""
    kernel.compile(tuple(map(numba.typeof, arguments)))


def returned_types(kernel: Any) -> list[str]:
    """The types that a kernel returns, by numba's names, for all signatures that were compiled."""
    return [str(signature.return_type) for signature in kernel.nopython_signatures]


def bounds_checked(function: Callable[..., Any], callers: tuple[Callable[..., Any], ...] = ()) -> Any:
    """Compile a copy of a part of a kernel, and of all compiled functions that it calls, that tests array bounds.

    The copy has the globals of now, so it is not kept for another call. callers: functions that are being copied; a
    function that calls one of them again calls the original.
    """
    callers = (*callers, function)
    used: dict[str, Any] = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    compiled = {name: one.py_func for name, one in used.items() if hasattr(one, "py_func")}
    parts = {name: bounds_checked(one, callers) for name, one in compiled.items() if one not in callers}
    copy = FunctionType(
        function.__code__,
        {**function.__globals__, **parts},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__module__ = "outside"
    return _compile(copy, inline=True)


def specialise(engine: Callable[..., Any], name: str, *, inline: bool = False, **kernels: Any) -> Any:
    """Compile a copy of `engine` in which the global names in `kernels` mean the kernels given.

    This is how one replay loop is compiled with each policy's functions inlined, without a call through a pointer.
    `name` and the content of `kernels` distinguish the copies in the cache. inline: as for `inlined`.
    """
    bound = {key: value if hasattr(value, "py_func") else jit(value) for key, value in kernels.items()}
    globals_ = {**engine.__globals__, **bound}
    copy = FunctionType(engine.__code__, globals_, name, engine.__defaults__, engine.__closure__)
    made_of = sorted(
        (key, used.py_func.__module__, used.py_func.__qualname__, used.py_func.__code__.co_firstlineno)
        for key, used in bound.items()
    )
    copy.__qualname__ = f"{name}_{hashlib.blake2b(repr(made_of).encode(), digest_size=4).hexdigest()}"
    outside = any(not kernel.py_func.__module__.startswith("flashmoe_sim.") for kernel in bound.values())
    copy.__module__ = "outside" if outside else engine.__module__
    return _compile(copy, inline=inline)
