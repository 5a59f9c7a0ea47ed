"""The header of a GGUF file: its keys and its list of tensors, without the weights.

Source: the GGUF specification (ggml-org/ggml, docs/gguf.md), versions 2 and 3, either byte order.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import NamedTuple

from flashmoe_sim.geometry.ggml_types import BY_NUMBER, GgmlType, tensor_bytes
from flashmoe_sim.io.errors import BadInput, Malformed, shown
from flashmoe_sim.io.files import regular_file_bytes, unreadable

MAGIC = b"GGUF"
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_SMALLEST_KEY_BYTES = 8 + 4 + 1
_SMALLEST_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8
_MAX_DIMENSIONS = 4
_MAX_NAME_BYTES = 2**16
_MAX_NESTING = 4
_MOST_LISTED = 1024
_AGAIN = "download the file again"
ENOUGH_BYTES = 32 << 20  # nearly every header fits: its tokens and merges take a few MiB
_MOST_HEADER = 1 << 30  # a header that would be longer is damaged, not cut

Value = int | float | bool | str


class HeaderCut(Malformed):
    """The file ends within its header."""


class Tensor(NamedTuple):
    """One tensor of the list: dimensions (the contiguous one first), storage type, bytes and place.

    storage, bytes: None if this program does not know the type.
    offset: of its first byte in the file.
    """

    ne: tuple[int, ...]
    type_number: int
    storage: GgmlType | None
    bytes: int | None
    offset: int


@dataclass(frozen=True)
class Header:
    """Keys with a single value, and the tensors by name.

    strings: the requested array of strings. lists: short arrays of numbers, such as one per layer. Other arrays are
    skipped.
    size: bytes of the file. end: where its last tensor ends, which is beyond `size` if the weights are cut off.
    """

    keys: Mapping[str, Value]
    tensors: Mapping[str, Tensor]
    strings: tuple[str, ...] = ()
    lists: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    size: int = 0
    end: int = 0


def read_header(path: Path, *, strings_of: str = "") -> Header:
    """Read keys and tensors of one GGUF file; the weights need not be there.

    strings_of: the key of an array of strings to read as well.
    Raises BadInput, with the byte offset, for a header that is cut short, damaged or of an unknown version.
    """
    size = regular_file_bytes(path, kind="a GGUF file")
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _HeaderReader(path, content, size).header(strings_of)
    except OSError as error:
        raise unreadable(path, error) from None


class _HeaderReader:
    """A position in a mapped file, and the errors that name it."""

    def __init__(self, path: Path, content: mmap.mmap, size: int) -> None:
        self.path = path
        self.content = content
        self.size = size
        self.at = 0
        self.order = "<"

    def header(self, strings_of: str) -> Header:
        if self.content[:4] != MAGIC:
            raise self.wrong(0, f"begins with {self.content[:4]!r}; expected {MAGIC!r}", advice="is it a GGUF file?")
        self.at = 4
        self._version()
        n_tensors = self._count("tensors", _SMALLEST_TENSOR_BYTES)
        n_keys = self._count("keys", _SMALLEST_KEY_BYTES)
        keys: dict[str, Value] = {}
        lists: dict[str, tuple[Value, ...]] = {}
        strings: tuple[str, ...] = ()
        for _ in range(n_keys):
            name = self._name("a key")
            kind = self._scalar("I")
            begin = self.at
            value = self._value(kind)
            if name == strings_of and kind == _ARRAY:
                strings = self._strings(begin)
            if value is not None:
                keys[name] = value
            elif numbers := self._numbers(begin):
                lists[name] = numbers
        in_data: dict[str, Tensor] = {}
        for _ in range(n_tensors):
            start = self.at
            name = self._name("a tensor")
            if name in in_data:
                raise self.wrong(start, f"a second tensor {shown(name)}; expected one", advice=_AGAIN)
            in_data[name] = self._tensor(name)
        alignment = self._alignment(keys)
        data_begin = _aligned(self.at, alignment)
        tensors = {name: tensor._replace(offset=data_begin + tensor.offset) for name, tensor in in_data.items()}
        end = max((tensor.offset + (tensor.bytes or 0) for tensor in tensors.values()), default=0)
        if end > self.size:
            self._check_offsets(in_data, alignment)
        return Header(keys, tensors, strings, lists, self.size, end)

    def wrong(self, at: int, found: str, *, advice: str = "the file is damaged") -> BadInput:
        return Malformed(f"{self.path}: at byte {at}: {found}", advice=advice)

    def _version(self) -> None:
        version = self._scalar("I")
        if version & 0xFFFF == 0 and version:
            self.order = ">"
            self.at = 4
            version = self._scalar("I")
        if version not in {2, 3}:
            raise self.wrong(4, f"GGUF version {version}; this program reads 2 and 3", advice="convert the model again")

    def _scalar(self, code: str) -> int:
        """One number at the position, with struct code `code`."""
        width = struct.calcsize(self.order + code)
        if width > self.size - self.at:
            raise self._cut_short(width)
        value: int = struct.unpack_from(self.order + code, self.content, self.at)[0]
        self.at += width
        return value

    def _cut_short(self, wanted: int) -> BadInput:
        return self._ends(self.at, f"{wanted} bytes expected, but the file ends", reaches=self.at + wanted)

    def _ends(self, at: int, found: str, *, reaches: int) -> BadInput:
        """The error for a header that reaches to byte `reaches` at least, beyond the end of the file."""
        first = max(ENOUGH_BYTES, 2 * self.size)
        advice = (
            f"its header is cut: get the first {first >> 20} MiB (curl -L -r 0-{first - 1} -o {self.path.name} URL)"
        )
        found = f"{found} at byte {self.size}"
        if max(reaches, first) > _MOST_HEADER:
            return self.wrong(at, found, advice=_AGAIN)
        return HeaderCut(f"{self.path}: at byte {at}: {found}", advice=advice)

    def _skip(self, length: int) -> None:
        if length > self.size - self.at:
            raise self._cut_short(length)
        self.at += length

    def _count(self, what: str, smallest: int) -> int:
        """A count of things that each take at least `smallest` of the following bytes."""
        start = self.at
        count = self._scalar("Q")
        if count * smallest > self.size - self.at:
            found = f"{count} {what}, more than fit before the file ends"
            raise self._ends(start, found, reaches=self.at + count * smallest)
        return count

    def _text(self) -> str:
        length = self._scalar("Q")
        start = self.at
        self._skip(length)
        return self.content[start : self.at].decode("utf-8", "replace")

    def _name(self, what: str) -> str:
        start = self.at
        length = self._scalar("Q")
        if length > _MAX_NAME_BYTES:
            raise self.wrong(start, f"the name of {what} has {length} bytes; expected at most {_MAX_NAME_BYTES}")
        self.at = start
        return self._text()

    def _value(self, kind: int) -> Value | None:
        """The value of a key; None for an array, which is skipped."""
        if kind in _SCALARS:
            return self._scalar(_SCALARS[kind])
        if kind == _STRING:
            return self._text()
        if kind == _ARRAY:
            self._skip_array(nesting=1)
            return None
        raise self.wrong(self.at - 4, f"value type {kind}; expected 0 to 12")

    def _skip_array(self, *, nesting: int) -> None:
        start = self.at
        kind = self._scalar("I")
        if kind in _SCALARS:
            width = struct.calcsize(_SCALARS[kind])
            self._skip(self._count("numbers in an array", width) * width)
        elif kind == _STRING:
            self._skip_strings(self._count("strings in an array", 8))
        elif kind == _ARRAY and nesting < _MAX_NESTING:
            for _ in range(self._count("arrays in an array", 12)):
                self._skip_array(nesting=nesting + 1)
        elif kind == _ARRAY:
            raise self.wrong(start, f"arrays nested deeper than {_MAX_NESTING}")
        else:
            raise self.wrong(start, f"array of type {kind}; expected 0 to 12")

    def _skip_strings(self, count: int) -> None:
        """Jump from length to length: a vocabulary has hundreds of thousands of strings."""
        length_at = struct.Struct(self.order + "Q").unpack_from
        content, at = self.content, self.at
        try:
            for _ in range(count):
                at += 8 + length_at(content, at)[0]
        except (struct.error, OverflowError):
            at = max(at, self.size) + 8
        if at > self.size:
            raise self._ends(self.at, f"an array of {count} strings runs past the end of the file", reaches=at)
        self.at = at

    def _strings(self, begin: int) -> tuple[str, ...]:
        """The strings of an array that has been skipped; empty for an array of another type."""
        end, self.at = self.at, begin
        kind, count = self._scalar("I"), self._scalar("Q")
        found = tuple(self._text() for _ in range(count)) if kind == _STRING else ()
        self.at = end
        return found

    def _numbers(self, begin: int) -> tuple[Value, ...]:
        """The numbers of an array that has been skipped; empty for a long array or another type."""
        end, self.at = self.at, begin
        kind, count = self._scalar("I"), self._scalar("Q")
        listed = kind in _SCALARS and count <= _MOST_LISTED
        found = tuple(self._scalar(_SCALARS[kind]) for _ in range(count)) if listed else ()
        self.at = end
        return found

    def _tensor(self, name: str) -> Tensor:
        """One entry of the list; its offset is still relative to the data section."""
        start = self.at
        dimensions = self._scalar("I")
        if not 1 <= dimensions <= _MAX_DIMENSIONS:
            raise self.wrong(start, f"tensor {shown(name)} has {dimensions} dimensions; expected 1 to 4")
        ne = tuple(self._scalar("Q") for _ in range(dimensions))
        type_number = self._scalar("I")
        offset = self._scalar("Q")
        if prod(ne) == 0 or prod(ne) >= 2**63:
            raise self.wrong(start, f"tensor {shown(name)} has dimensions {list(ne)}")
        storage = BY_NUMBER.get(type_number)
        if storage is None:
            return Tensor(ne, type_number, None, None, offset)
        try:
            return Tensor(ne, type_number, storage, tensor_bytes(storage, ne), offset)
        except ValueError as error:
            raise self.wrong(start, f"tensor {shown(name)}: {error}") from None

    def _alignment(self, keys: Mapping[str, Value]) -> int:
        """Weights begin after the list of tensors, and each tensor after the one before it, at a multiple of this."""
        alignment = keys.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 1 <= alignment <= 2**20:
            raise self.wrong(self.at, f"general.alignment is {shown(alignment)}; expected 1 to 1048576")
        return alignment

    def _check_offsets(self, tensors: Mapping[str, Tensor], alignment: int) -> None:
        """Refuse a tensor that is beyond the bytes of all tensors: its file is damaged, not cut."""
        if any(tensor.bytes is None for tensor in tensors.values()):
            return
        weights = sum(_aligned(tensor.bytes or 0, alignment) for tensor in tensors.values())
        for name, tensor in tensors.items():
            if tensor.offset + (tensor.bytes or 0) > weights:
                found = f"tensor {shown(name)} is at byte {tensor.offset} of the weights, which take {weights}"
                raise self.wrong(self.at, found)


def _aligned(at: int, alignment: int) -> int:
    return -(-at // alignment) * alignment
