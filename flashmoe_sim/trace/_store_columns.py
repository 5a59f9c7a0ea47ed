"""The columns of a store: to and from Arrow's memory, with checks, and a checksum built chunk by chunk."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.trace.check import PER_CALL, PER_REFERENCE, REQUIRED
from flashmoe_sim.trace.routing import RoutingTrace, offsets

CHECKSUM = "checksum"
POLYNOMIAL = 0xEDB88320  # zlib's: the highest bit is the coefficient of x^0
ONE, ONE_BYTE = 1 << 31, 1 << 23  # x^0 and x^8


def columns_of(trace: RoutingTrace) -> dict[str, Any]:
    """The columns of a trace in Arrow's memory; TypeError if one has another dtype."""
    import pyarrow as pa

    columns = {}
    for name, bounds in PER_CALL.items():
        if (values := getattr(trace, name)) is not None:
            columns[name] = pa.array(_exact(name, values, bounds.dtype))
    offset = pa.array(_exact("offset", trace.offset, np.int64))
    for name, bounds in PER_REFERENCE.items():
        if (values := getattr(trace, name)) is not None:
            item = pa.field("item", pa.from_numpy_dtype(bounds.dtype), nullable=False)
            flat = pa.array(_exact(name, values, bounds.dtype))
            columns[name] = pa.LargeListArray.from_arrays(offset, flat, pa.large_list(item))
    return columns


def arrays_of(batch: Any) -> dict[str, Any]:
    """The arrays of a record batch; raises KeyError, TypeError or ValueError if its columns are not a store's."""
    names = batch.schema.names
    if odd := [name for name in names if name not in (*PER_CALL, *PER_REFERENCE) or names.count(name) > 1]:
        raise ValueError(f"a column {odd[0]!r} that no store has")
    if missing := [name for name in REQUIRED if name not in names]:
        raise ValueError(f"no column {missing[0]!r}")
    arrays = arrays_of_calls(batch)
    arrays["offset"] = _offsets("expert", batch.column("expert"))
    for name in PER_REFERENCE:
        if name in names:
            if not np.array_equal(_offsets(name, batch.column(name)), arrays["offset"]):
                raise ValueError(f"the lists of {name} are not as long as the lists of expert")
            arrays[name] = _values(name, batch.column(name).flatten(), PER_REFERENCE[name].dtype)
    return arrays


def arrays_of_calls(batch: Any) -> dict[str, NDArray[Any]]:
    """The arrays of the columns with one number per call."""
    names = [name for name in PER_CALL if name in batch.schema.names]
    return {name: _values(name, batch.column(name), PER_CALL[name].dtype) for name in names}


class Checksum:
    """A checksum of everything stored: the metadata, and each column with its name, built chunk by chunk."""

    def __init__(self, head: RoutingTrace) -> None:
        self.calls = self.refs = 0
        self._offset = zlib.crc32(bytes(8))  # the offset of the first call
        names = (*PER_CALL, *PER_REFERENCE)
        self._columns = {name: (0, 0) for name in names if getattr(head, name) is not None}  # checksum and bytes

    def add(self, chunk: RoutingTrace) -> None:
        """Add the next calls."""
        self._offset = zlib.crc32((chunk.offset[1:] + self.refs).data, self._offset)
        for name, (check, size) in self._columns.items():
            data = np.ascontiguousarray(getattr(chunk, name)).data
            self._columns[name] = zlib.crc32(data, check), size + data.nbytes
        self.calls += chunk.calls
        self.refs += chunk.refs

    def of(self, about: Mapping[str, Any]) -> str:
        """The checksum of everything added, with this metadata."""
        check = zlib.crc32(json.dumps(about, sort_keys=True).encode())
        columns = {"offset": (self._offset, 8 * (self.calls + 1)), **self._columns}
        for name, column in columns.items():
            check = crc32_joined(zlib.crc32(name.encode(), check), *column)
        return f"{check:08x}"

    def compare(self, about: dict[str, Any]) -> None:
        """Raise ValueError if what was added differs from the metadata."""
        for what, number in {"calls": self.calls, "refs": self.refs}.items():
            if about[what] != number:
                raise ValueError(f"{number} {what}, expected {about[what]}")
        if CHECKSUM in about and about[CHECKSUM] != self.of({k: v for k, v in about.items() if k != CHECKSUM}):
            raise ValueError("its checksum does not match: it changed after it was written")


def _exact(name: str, values: NDArray[Any], dtype: Any) -> NDArray[Any]:
    if values.dtype != dtype:
        raise TypeError(f"{name} is {values.dtype}, expected {np.dtype(dtype)}")
    return np.ascontiguousarray(values)


def _values(name: str, values: Any, dtype: Any) -> NDArray[Any]:
    """A column of numbers, copied into an array; raises ValueError if it has another type, or nulls."""
    import pyarrow as pa

    if values.type != pa.from_numpy_dtype(dtype) or values.null_count:
        raise ValueError(f"{name} is {values.type} with {values.null_count} nulls, expected {np.dtype(dtype)}")
    return np.array(values.to_numpy())


def _offsets(name: str, lists: Any) -> NDArray[np.int64]:
    """Where each list of a column begins in its values, then the number of values; i64 [lists + 1]."""
    import pyarrow as pa

    if not (pa.types.is_large_list(lists.type) or pa.types.is_list(lists.type)) or lists.null_count:
        raise ValueError(f"{name} is {lists.type} with {lists.null_count} nulls, expected lists")
    return offsets(np.diff(lists.offsets.to_numpy()))


def crc32_joined(first: int, second: int, second_bytes: int) -> int:
    """The `zlib.crc32` of two pieces of data, one after the other, from the CRC-32 of each.

    second_bytes: the length of the second.
    """
    factor, power = ONE, ONE_BYTE
    while second_bytes:
        if second_bytes & 1:
            factor = _product(factor, power)
        power = _product(power, power)
        second_bytes >>= 1
    return _product(factor, first) ^ second


def _product(a: int, b: int) -> int:
    """The product of two polynomials over the field of 0 and 1, modulo CRC-32's polynomial."""
    product = 0
    while a:
        if a & ONE:
            product ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ (POLYNOMIAL if b & 1 else 0)
    return product
