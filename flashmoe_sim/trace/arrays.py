"""Files of arrays with the experts of every token: `.npy`, or one of `.npz` or `.safetensors`. No pickle is loaded.

Hints supply what an array does not record: the order of its axes, which tokens are the prompt, and the layers' numbers.
This covers the Python outputs of vLLM and TensorRT-LLM, stacked outputs of transformers, and arrays saved by training
code.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput, shown, unknown_name
from flashmoe_sim.trace import safetensors
from flashmoe_sim.trace.formats import NPY_MAGIC, ZIP_MAGIC
from flashmoe_sim.trace.lines import trace_name
from flashmoe_sim.trace.request_calls import trace_of_requests
from flashmoe_sim.trace.requests import Hints, Request
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.source import open_bytes
from flashmoe_sim.trace.token_rows import prompt_length
from flashmoe_sim.trace.wire import npy_array, small_ids
from flashmoe_sim.trace.zipped import Archive

FORMAT = "array"
AXES = ("token", "layer", "k")
MOST_LISTED = 8


def read(
    path: Path,
    *,
    lenient: bool = False,
    progress: Callable[[int], None] | None = None,
    hints: Hints | None = None,
) -> RoutingTrace:
    """Read a trace; see `trace_of_requests`.

    Raises BadInput for an array with other axes or without whole numbers, and if no hint says which tokens are the
    prompt.
    """
    hints = hints or Hints()
    with open_bytes(path) as stream:
        content = stream.read()
    if progress:
        progress(len(content))
    ids, weights = _arrays(path, content, hints)
    axes = hints.axes or AXES
    expert = _ordered(path, ids, axes)
    weight = None if weights is None else _ordered(path, weights, axes)
    if weight is not None and weight.shape != expert.shape:
        raise BadInput(f"{path}: weights are {list(weight.shape)} and experts {list(expert.shape)}; give arrays alike")
    requests = [
        _request(path, hints, one, None if weight is None else weight[number], f"{path.name}, request {number}")
        for number, one in enumerate(expert)
    ]
    known = hints.moe_layers or hints.model
    notes = () if known else (f"layers are numbered 0-{expert.shape[2] - 1}, as they stand in the array",)
    return trace_of_requests(requests, format=FORMAT, name=trace_name(path), hints=hints, lenient=lenient, notes=notes)


def _arrays(path: Path, content: bytes, hints: Hints) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """The ids, and the weights if hints name them."""
    if content.startswith(NPY_MAGIC):
        if hints.array or hints.weights_array:
            raise BadInput(
                f"{path}: one array without a name; --array and --weights-array are for .npz and .safetensors"
            )
        return _ids(path, _array(path, content, "")), None
    names, named = _held(path, content)
    chosen = hints.array or (names[0] if len(names) == 1 else None)
    if chosen is None:
        listed = ", ".join(shown(name, 40) for name in names[:MOST_LISTED]) + (" …" if len(names) > MOST_LISTED else "")
        raise BadInput(f"{path}: {len(names):,} arrays: {listed}; give the one with the expert ids as --array")
    for name in (chosen, hints.weights_array):
        if name and name not in names:
            raise unknown_name(f"array in {path}", name, names)
    return _ids(path, named(chosen)), named(hints.weights_array) if hints.weights_array else None


def _held(path: Path, content: bytes) -> tuple[list[str], Callable[[str], NDArray[Any]]]:
    """The names of the arrays in a file, and a function that reads one of them."""
    if content.startswith(ZIP_MAGIC):
        archive = Archive(content, str(path))
        names = [name.removesuffix(".npy") for name in archive.names if name.endswith(".npy")]
        return names, lambda name: _array(path, archive.read(f"{name}.npy"), f" {name}")
    try:
        tensors = safetensors.Tensors(content)
    except ValueError as error:
        raise BadInput(f"{path}: no safetensors ({error})") from None

    def tensor(name: str) -> NDArray[Any]:
        try:
            return tensors.read(name)
        except ValueError as error:
            raise BadInput(f"{path}: {error}") from None

    return tensors.names, tensor


def _array(path: Path, content: bytes, name: str) -> NDArray[Any]:
    try:
        return npy_array(np.frombuffer(content, np.uint8))
    except ValueError as error:
        raise BadInput(f"{path}{name}: {error}") from None


def _ids(path: Path, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind not in "iu":
        raise BadInput(
            f"{path}: {array.dtype} {list(array.shape)}; expected ids of experts, whole numbers. Scores and counts "
            "hold no order of tokens: `sim trace synth` makes a trace from a hit curve"
        )
    return array


def _ordered(path: Path, array: NDArray[Any], axes: tuple[str, ...]) -> NDArray[Any]:
    """The array as [requests, tokens, layers, k]."""
    if not {*AXES} <= {*axes} <= {"request", *AXES} or len({*axes}) < len(axes):
        raise BadInput(
            f"--axes {','.join(axes)}: expected token, layer and k in their order, and request if there is one"
        )
    if array.ndim != len(axes):
        raise BadInput(
            f"{path}: an array {list(array.shape)} of {array.ndim} axes, but --axes has {len(axes)}: {','.join(axes)}; "
            "name each axis"
        )
    if "request" not in axes:
        array, axes = array[np.newaxis], ("request", *axes)
    return array.transpose([axes.index(name) for name in ("request", *AXES)])


def _request(path: Path, hints: Hints, ids: NDArray[Any], weight: NDArray[Any] | None, where: str) -> Request:
    try:
        expert = small_ids(ids)
    except ValueError as error:
        raise BadInput(f"{path}: {error}") from None
    if hints.axes and "request" in hints.axes:  # shorter ones are filled up at their ends
        absent = (expert < 0) | (expert == (-1 if hints.missing is None else hints.missing))
        held = np.flatnonzero(~absent.all(axis=(1, 2)))
        expert = expert[: int(held[-1]) + 1 if len(held) else 0]
    start = hints.start or 0
    prompt = prompt_length(start + len(expert), start, hints, where)
    kept = None if weight is None else np.ascontiguousarray(weight[: len(expert)], np.float32)
    return Request(expert=expert, prompt=prompt, start=start, weight=kept, where=where)
