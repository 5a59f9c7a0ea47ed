"""Tensors in files of `torch.save`, read without torch and without running a pickle.

The file is a zip of one pickle, which describes the object, and raw storages. The pickle is interpreted here, opcode by
opcode, with plain containers, numbers and texts, and the one function that rebuilds a tensor. It can call nothing else,
so the worst that a file can do is be refused.
"""

from __future__ import annotations

import io
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import shown
from flashmoe_sim.trace.source import Archive

STORAGES = {
    "ByteStorage": "u1", "CharStorage": "i1", "ShortStorage": "i2", "IntStorage": "i4", "LongStorage": "i8",
    "HalfStorage": "f2", "FloatStorage": "f4", "DoubleStorage": "f8", "BoolStorage": "u1",
}  # fmt: skip
MORE_THAN_STORED = 1 << 20
_MARK = object()


class NotTensors(ValueError):
    """The pickle has something other than tensors and plain values."""


@dataclass(frozen=True)
class _Global:
    module: str
    name: str


@dataclass(frozen=True)
class _Storage:
    dtype: str
    key: str


def load_tensors(archive: Archive, pickle_name: str) -> Any:
    """The object in a file of `torch.save`: dictionaries, lists, tuples, numbers, texts, and arrays for tensors.

    Raises NotTensors for any other content, including a tensor that reaches beyond its storage.
    """
    folder = pickle_name.removesuffix("data.pkl")
    order = "<"
    if f"{folder}byteorder" in archive.names:
        order = ">" if archive.read(f"{folder}byteorder").strip() == b"big" else "<"
    storages: dict[_Storage, NDArray[Any]] = {}
    used = 0

    def storage(found: _Storage) -> NDArray[Any]:
        if found not in storages:
            name = f"{folder}data/{found.key}"
            if name not in archive.names:
                raise NotTensors(f"no storage {shown(found.key, 40)}")
            content = archive.read(name)
            dtype = np.dtype(order + found.dtype)
            if len(content) % dtype.itemsize:
                raise NotTensors(f"storage {shown(found.key, 40)} of {len(content):,} bytes is cut off")
            storages[found] = np.frombuffer(content, dtype)
        return storages[found]

    def rebuild(arguments: Any) -> NDArray[Any]:
        nonlocal used
        try:
            of, offset, shape, strides = arguments[:4]
            sides = [int(one) for one in (offset, *shape, *strides)]
        except (TypeError, ValueError, OverflowError):
            raise NotTensors("a tensor without a shape") from None
        if not isinstance(of, _Storage) or min(sides) < 0 or len(shape) != len(strides) or len(shape) > 8:
            raise NotTensors("a tensor that is not described in numbers")
        values = storage(of)
        size = 1
        for side in shape:
            size *= side
        last = offset + sum((side - 1) * stride for side, stride in zip(shape, strides, strict=True))
        used += size
        if size and last >= len(values):
            raise NotTensors(f"a tensor {list(shape)} reaches beyond its storage of {len(values):,}")
        if used > sum(map(len, storages.values())) + MORE_THAN_STORED:
            raise NotTensors("tensors that hold more than is stored")
        if not size:
            return np.empty(shape, values.dtype)
        steps = [stride * values.itemsize for stride in strides]
        return np.lib.stride_tricks.as_strided(values[offset:], shape, steps, writeable=False).copy()

    try:
        return _interpret(archive.read(pickle_name), rebuild)
    except (IndexError, KeyError, TypeError, AttributeError, OverflowError, UnicodeDecodeError) as error:
        raise NotTensors(f"a broken pickle ({type(error).__name__})") from None
    except ValueError as error:
        raise NotTensors(str(error).partition("\n")[0]) from None


def _interpret(content: bytes, rebuild: Callable[[Any], NDArray[Any]]) -> Any:
    """The value that the opcodes build. Raises NotTensors for an opcode that plain values and tensors do not need."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}

    def since_mark() -> list[Any]:
        at = len(stack) - 1
        while stack[at] is not _MARK:
            at -= 1
        items = stack[at + 1 :]
        del stack[at:]
        return items

    argument: Any
    for opcode, argument, _ in pickletools.genops(io.BytesIO(content)):
        name = opcode.name
        if name in ("PROTO", "FRAME"):
            continue
        if name == "STOP":
            return stack.pop()
        if name in _PLAIN:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name]())
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(memo[argument])
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            stack[-count:] = [tuple(stack[-count:])]
        elif name == "TUPLE":
            stack.append(tuple(since_mark()))
        elif name == "APPEND":
            item = stack.pop()
            stack[-1].append(item)
        elif name == "APPENDS":
            items = since_mark()
            stack[-1].extend(items)
        elif name == "SETITEM":
            key, value = stack[-2:]
            del stack[-2:]
            stack[-1][_key(key)] = value
        elif name == "SETITEMS":
            items = since_mark()
            stack[-1].update(zip(map(_key, items[::2]), items[1::2], strict=True))
        elif name == "GLOBAL":
            stack.append(_Global(*argument.split(" ", 1)))
        elif name == "STACK_GLOBAL":
            stack[-2:] = [_Global(*stack[-2:])]
        elif name == "BINPERSID":
            stack.append(_storage(stack.pop()))
        elif name == "REDUCE":
            arguments, function = stack.pop(), stack.pop()
            stack.append(_reduced(function, arguments, rebuild))
        else:
            raise NotTensors(f"a pickle with {name}, which tensors do not need: it is not run")
    raise NotTensors("a pickle without an end")


_PLAIN = ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple,
}  # fmt: skip


def _key(key: Any) -> str | int:
    if not isinstance(key, str | int):
        raise NotTensors("a key that is neither text nor number")
    return key


def _storage(described: Any) -> _Storage:
    """The parts of a storage's persistent id: ("storage", its type, key, device, numbers)."""
    kind, of, key = described[:3]
    if kind != "storage" or not isinstance(of, _Global) or of.module != "torch" or of.name not in STORAGES:
        raise NotTensors(f"a storage of {shown(of, 60)}, which is not read")
    return _Storage(STORAGES[of.name], str(key))


def _reduced(function: Any, arguments: Any, rebuild: Callable[[Any], NDArray[Any]]) -> Any:
    if function == _Global("torch._utils", "_rebuild_tensor_v2"):
        return rebuild(arguments)
    if function == _Global("collections", "OrderedDict") and arguments == ():
        return {}
    called = f"{function.module}.{function.name}" if isinstance(function, _Global) else shown(function, 40)
    raise NotTensors(f"a pickle that calls {called}, which is not a tensor: it is not run")
