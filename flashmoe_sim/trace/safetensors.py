"""Safetensors files: a JSON header with the place of each tensor's numbers, then the numbers.

Source: the format's page, huggingface.co/docs/safetensors.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io import strict_json
from flashmoe_sim.io.errors import shown
from flashmoe_sim.trace.formats import LONGEST_HEADER

MOST = 1 << 48  # far beyond any file
KINDS = {
    **{f"{letter}{8 * size}": f"<{kind}{size}" for letter, kind in (("I", "i"), ("U", "u")) for size in (1, 2, 4, 8)},
    **{f"F{8 * size}": f"<f{size}" for size in (2, 4, 8)},
    "BF16": "<u2",
}


class Tensors:
    """The tensors of a file that is in memory. Raises ValueError for an invalid header."""

    def __init__(self, content: bytes) -> None:
        size = int.from_bytes(content[:8], "little")
        if size > min(LONGEST_HEADER, len(content) - 8):
            raise ValueError(f"a header of {size:,} bytes in a file of {len(content):,}: it is cut off or damaged")
        header = strict_json.loads(content[8 : 8 + size])
        if not isinstance(header, dict):
            raise ValueError(f"the header is {shown(header, 40)}; expected an object")
        self._header = {name: entry for name, entry in header.items() if name != "__metadata__"}
        self._data = np.frombuffer(content, np.uint8)[8 + size :]

    @property
    def names(self) -> list[str]:
        return list(self._header)

    def read(self, name: str) -> NDArray[Any]:
        """Read one of `names`, bf16 as f32. Raises ValueError if its dtype, shape and bytes do not fit together."""
        entry: Any = self._header[name]
        entry = entry if isinstance(entry, dict) else {}
        kind, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
        if not isinstance(kind, str) or kind not in KINDS:
            raise ValueError(
                f"tensor {shown(name, 40)} is of dtype {shown(kind, 40)}; one of {', '.join(KINDS)} expected"
            )
        if not _whole(shape) or not _whole(offsets) or len(offsets) != 2:
            raise ValueError(f"tensor {shown(name, 40)} is {shown(entry, 60)}; expected its shape and two offsets")
        dtype, (begin, end) = np.dtype(KINDS[kind]), offsets
        size = dtype.itemsize
        for side in shape:
            size *= side
        if not begin <= end <= len(self._data) or end - begin != size:
            raise ValueError(
                f"tensor {shown(name, 40)}: bytes {begin:,} to {end:,} of {len(self._data):,}, but {size:,} make "
                f"{kind} {shape}: it is cut off or damaged"
            )
        values = np.frombuffer(self._data[begin:end].tobytes(), dtype).reshape(shape)
        return (values.astype(np.uint32) << 16).view(np.float32) if kind == "BF16" else values


def _whole(numbers: Any) -> TypeGuard[list[int]]:
    return isinstance(numbers, list) and all(type(number) is int and 0 <= number < MOST for number in numbers)
