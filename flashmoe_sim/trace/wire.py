"""Arrays as engines send and store them: base64, and NumPy's file format; neither is read beyond its bytes."""

from __future__ import annotations

import binascii
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import shown
from flashmoe_sim.trace.calls import ID_MAX

_READ_HEADER = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}


def from_base64(text: bytes | memoryview) -> NDArray[np.uint8]:
    """Decode base64 into bytes, u8. Raises ValueError for anything else, including line ends."""
    if len(text) % 4:
        raise ValueError(f"base64 of {len(text):,} letters, not a multiple of 4: it is cut off")
    try:
        return np.frombuffer(bytearray(binascii.a2b_base64(text, strict_mode=True)), np.uint8)
    except binascii.Error as error:
        raise ValueError(f"not valid base64 ({error})") from None


def npy_array(content: NDArray[np.uint8]) -> NDArray[Any]:
    """The array in the bytes of a `.npy` file, without a copy; whole or real numbers in any byte order.

    Raises ValueError for any other file, for objects (which are pickles, and never loaded), and if the shape does not
    fit the bytes.
    """
    stream = io.BytesIO(content[: 1 << 16].tobytes())
    try:
        version = np.lib.format.read_magic(stream)
        shape, by_columns, dtype = _READ_HEADER[min(version[0], 2)](stream)
    except ValueError as error:
        raise ValueError(f"not a .npy file ({str(error).splitlines()[0]})") from None
    begin = stream.tell()
    if dtype.kind not in "iufb":
        raise ValueError(f"an array of {shown(dtype, 40)}; expected whole numbers")
    rest = content[begin:]
    size = dtype.itemsize
    for side in shape:
        size *= side
    if size != len(rest):
        raise ValueError(f"{len(rest):,} bytes; {size:,} expected for {dtype} {list(shape)}: it is cut off or damaged")
    return rest.view(dtype).reshape(shape, order="F" if by_columns else "C")


def small_ids(ids: NDArray[Any]) -> NDArray[Any]:
    """Expert ids in C order: u8 if they fit, else u16 or i16.

    Raises ValueError for anything but integers, and for an id that is out of range for a trace.
    """
    if ids.dtype.kind not in "iu":
        raise ValueError(f"an array of {ids.dtype}; expected whole numbers")
    if ids.dtype.itemsize == 1:
        return np.ascontiguousarray(ids)
    least, most = (int(ids.min()), int(ids.max())) if ids.size else (0, 0)
    if ids.dtype in (np.uint16, np.int16) and not 0 <= least <= most < 256:
        return np.ascontiguousarray(ids)
    if most > ID_MAX or least < -ID_MAX:
        worst = most if most > ID_MAX else least
        raise ValueError(f"expert {worst:,}; expected at most {ID_MAX:,}: no routing, or of another dtype")
    return np.ascontiguousarray(ids, np.uint8 if least >= 0 and most < 256 else np.int16)
