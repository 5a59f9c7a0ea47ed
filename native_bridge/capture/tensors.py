"""From the named tensors of llama.cpp's graph, read by pointer, to routed calls.

Only the beginning of a tensor's struct is read (type, buffer, ne, nb: ggml.h), and checked against ggml's own byte
count.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import SimError, Unsupported
from native_bridge.capture.record import RoutedCall

MAX_DIMENSIONS = 4
TYPES: dict[int, type[np.generic]] = {0: np.float32, 26: np.int32}

# The last computed of these weights are the factors of the experts' outputs; which of them exist depends on the
# architecture. llama.cpp names them in llm_graph_context::build_moe_ffn.
_ROUTER = re.compile(rb"ffn_moe_(topk|weights(?:_softmax|_norm|_scaled)?)-(\d+)")
PREFIX = b"ffn_moe_"


class TensorHead(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * MAX_DIMENSIONS),
        ("nb", ctypes.c_size_t * MAX_DIMENSIONS),
    )


class Ggml:
    """The functions needed from a loaded ggml library, with their types."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._name = _function(library, "ggml_get_name", ctypes.c_void_p, ctypes.c_void_p)
        self._n_bytes = _function(library, "ggml_nbytes", ctypes.c_size_t, ctypes.c_void_p)
        self._get = _function(
            library,
            "ggml_backend_tensor_get",
            None,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_size_t,
        )

    def name_at(self, tensor: int) -> int:
        """The address of the tensor's name."""
        return int(self._name(tensor))

    def values(self, tensor: int) -> NDArray[Any]:
        """A copy of a computed tensor's values, wherever they are: [ne[3], ne[2], ne[1], ne[0]], i32 or f32.

        For a view, all bytes from its first value to its last are fetched in one piece: another transfer from a GPU
        would cost more than the bytes between the rows.

        Raises SimError for any other type, or if the struct has an unknown layout.
        """
        head = TensorHead.from_address(tensor)
        n_bytes = int(self._n_bytes(tensor))
        ne, nb = list(head.ne), list(head.nb)
        if 0 in ne:
            return np.empty(ne[::-1], np.int32)
        dtype = TYPES.get(head.type)
        if dtype is None or n_bytes != extent_bytes(ne, nb, np.dtype(dtype).itemsize):
            raise SimError(
                f"llama.cpp has a tensor of type {head.type}, {ne} values and {n_bytes} bytes, laid out otherwise than "
                "this program knows; use the version of llama-cpp-python that the extra 'capture' asks for"
            )
        raw = np.empty(n_bytes, np.uint8)
        self._get(tensor, raw.ctypes.data, 0, n_bytes)
        return strided(raw, ne, nb, dtype)


def extent_bytes(ne: list[int], nb: list[int], item_bytes: int) -> int:
    """Bytes from the first value to the end of the last."""
    return item_bytes + sum((count - 1) * stride for count, stride in zip(ne, nb, strict=True))


def strided(raw: NDArray[np.uint8], ne: list[int], nb: list[int], dtype: type[np.generic]) -> NDArray[Any]:
    """The values in bytes that begin with the first value; counts and strides have the fastest dimension first."""
    return np.ndarray(ne[::-1], dtype, buffer=raw.data, strides=nb[::-1]).copy()


def _function(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments
    return function


class RouterTap:
    """Collects the routed calls of one micro-batch from the tensors that are computed in it.

    weights: whether to collect gate weights.
    """

    def __init__(self, *, weights: bool) -> None:
        self._weights = weights
        self._experts: dict[int, NDArray[np.int32]] = {}
        self._weight: dict[int, NDArray[np.float32]] = {}

    def wants(self, name: bytes) -> bool:
        """Whether the values of a tensor with this name are needed."""
        named = _ROUTER.fullmatch(name)
        return named is not None and (self._weights or named[1] == b"topk")

    def take(self, name: bytes, values: NDArray[Any]) -> None:
        """Receive the values of such a tensor, after it was computed: [..., n_tokens, n_expert_used, 1 or not].

        Raises BadInput for an architecture that routes a layer twice.
        """
        named = _ROUTER.fullmatch(name)
        assert named is not None
        layer = int(named[2])
        if named[1] != b"topk":
            self._weight[layer] = values.reshape(self._experts[layer].shape).astype(np.float32)
            return
        if layer in self._experts:
            raise Unsupported(
                f"layer {layer} is routed twice in one evaluation; a model with two sets of experts a layer "
                "cannot be captured"
            )
        self._experts[layer] = values.reshape(-1, values.shape[-1]).astype(np.int32)

    def calls(self) -> list[RoutedCall]:
        """The collected calls, in the order of computation, without layers that have no rows; then start again."""
        calls = [
            RoutedCall(layer, experts, self._weight[layer] if self._weights else None)
            for layer, experts in self._experts.items()
            if experts.size
        ]
        self._experts.clear()
        self._weight.clear()
        return calls
