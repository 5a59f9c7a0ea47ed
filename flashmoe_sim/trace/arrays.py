"""Files of arrays with the experts of every token: `.npy`, or one of `.npz` or `.safetensors`. No pickle is loaded.

Hints supply what an array does not record: the order of its axes, which tokens are the prompt, and the layers' numbers.
This covers the Python outputs of vLLM and TensorRT-LLM, stacked outputs of transformers, and arrays saved by training
code.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io import strict_json
from flashmoe_sim.io.errors import Conflict, Incomplete, Malformed, shown, unknown_name
from flashmoe_sim.trace.calls import ID_MAX
from flashmoe_sim.trace.formats import LONGEST_HEADER, NPY_MAGIC, ZIP_MAGIC
from flashmoe_sim.trace.lines import trace_name
from flashmoe_sim.trace.request_calls import trace_of_requests
from flashmoe_sim.trace.requests import DEFAULTS, Hints, ReadOptions, Request
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.source import Archive, open_bytes
from flashmoe_sim.trace.token_rows import prompt_length

FORMAT = "array"
AXES = ("token", "layer", "k")
MOST_LISTED = 8
MOST = 1 << 48  # far beyond any file
KINDS = {
    **{f"{letter}{8 * size}": f"<{kind}{size}" for letter, kind in (("I", "i"), ("U", "u")) for size in (1, 2, 4, 8)},
    **{f"F{8 * size}": f"<f{size}" for size in (2, 4, 8)},
    "BF16": "<u2",
}
_READ_HEADER = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}


def read(path: Path, options: ReadOptions = DEFAULTS) -> RoutingTrace:
    """Read a trace; see `trace_of_requests`.

    Raises BadInput for an array with other axes or without whole numbers, and if no hint says which tokens are the
    prompt.
    """
    hints = options.hints
    with open_bytes(path) as stream:
        content = stream.read()
    if options.progress:
        options.progress(len(content))
    axes = hints.axes or AXES
    try:
        ids, weights = _arrays(path, content, hints)
        expert = _ordered(path, ids, axes)
        weight = None if weights is None else _ordered(path, weights, axes)
        if weight is not None and weight.shape != expert.shape:
            raise ValueError(f"weights are {list(weight.shape)} and experts {list(expert.shape)}; give arrays alike")
        requests = [
            _request(hints, one, None if weight is None else weight[number], f"{path.name}, request {number}")
            for number, one in enumerate(expert)
        ]
    except ValueError as error:
        raise Malformed(f"{path}: {error}") from None
    known = hints.moe_layers or hints.model
    notes = () if known else (f"layers are numbered 0-{expert.shape[2] - 1}, as they stand in the array",)
    return trace_of_requests(requests, format=FORMAT, name=trace_name(path), options=options, notes=notes)


def _arrays(path: Path, content: bytes, hints: Hints) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """The ids, and the weights if hints name them."""
    if content.startswith(NPY_MAGIC):
        if hints.array or hints.weights_array:
            raise Conflict(
                f"{path}: one array without a name; --array and --weights-array are for .npz and .safetensors"
            )
        return _ids(npy_array(np.frombuffer(content, np.uint8))), None
    names, named = _held(path, content)
    chosen = hints.array or (names[0] if len(names) == 1 else None)
    if chosen is None:
        listed = ", ".join(shown(name, 40) for name in names[:MOST_LISTED]) + (" …" if len(names) > MOST_LISTED else "")
        raise Incomplete(
            f"{path}: {len(names):,} arrays: {listed}; give the one with the expert ids as --array, or stack one for "
            "each layer to an array [tokens, layers, k]"
        )
    for name in (chosen, hints.weights_array):
        if name and name not in names:
            raise unknown_name(f"array in {path}", name, names)
    return _ids(named(chosen)), named(hints.weights_array) if hints.weights_array else None


def _held(path: Path, content: bytes) -> tuple[list[str], Callable[[str], NDArray[Any]]]:
    """The names of the arrays in a file, and a function that reads one of them."""
    if content.startswith(ZIP_MAGIC):
        archive = Archive(content, str(path))
        names = [name.removesuffix(".npy") for name in archive.names if name.endswith(".npy")]
        return names, lambda name: _member(archive, name)
    try:
        tensors = Tensors(content)
    except ValueError as error:
        raise ValueError(f"no safetensors ({error})") from None
    return tensors.names, tensors.read


def _member(archive: Archive, name: str) -> NDArray[Any]:
    try:
        return npy_array(np.frombuffer(archive.read(f"{name}.npy"), np.uint8))
    except ValueError as error:
        raise ValueError(f"array {name}: {error}") from None


def _ids(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind not in "iu":
        raise ValueError(
            f"{array.dtype} {list(array.shape)}; expected ids of experts, whole numbers. Scores and counts "
            "hold no order of tokens: `sim trace synth` makes a trace from a hit curve"
        )
    return array


def _ordered(path: Path, array: NDArray[Any], axes: tuple[str, ...]) -> NDArray[Any]:
    """The array as [requests, tokens, layers, k]."""
    if not {*AXES} <= {*axes} <= {"request", *AXES} or len({*axes}) < len(axes):
        raise Malformed(
            f"--axes {','.join(axes)}: expected token, layer and k in their order, and request if there is one"
        )
    if array.ndim != len(axes):
        raise Conflict(
            f"{path}: an array {list(array.shape)} of {array.ndim} axes, but --axes has {len(axes)}: {','.join(axes)}; "
            "name each axis"
        )
    if "request" not in axes:
        array, axes = array[np.newaxis], ("request", *axes)
    return array.transpose([axes.index(name) for name in ("request", *AXES)])


def _request(hints: Hints, ids: NDArray[Any], weight: NDArray[Any] | None, where: str) -> Request:
    expert = small_ids(ids)
    if hints.axes and "request" in hints.axes:  # shorter ones are filled up at their ends
        absent = (expert < 0) | (expert == (-1 if hints.missing is None else hints.missing))
        held = np.flatnonzero(~absent.all(axis=(1, 2)))
        expert = expert[: int(held[-1]) + 1 if len(held) else 0]
    start = hints.start or 0
    prompt = prompt_length(start + len(expert), start, hints, where)
    kept = None if weight is None else np.ascontiguousarray(weight[: len(expert)], np.float32)
    return Request(expert=expert, prompt=prompt, start=start, weight=kept, where=where)


class Tensors:
    """The tensors of a safetensors file in memory: a JSON header with each tensor's place, then the numbers.

    Raises ValueError for an invalid header. Source: the format's page, huggingface.co/docs/safetensors.
    """

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
