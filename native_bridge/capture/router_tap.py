"""From the named tensors of llama.cpp's graph to routed calls."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput
from native_bridge.capture.record import RoutedCall

# The last computed of these weights are the factors of the experts' outputs; which of them exist depends on the
# architecture. llama.cpp names them in llm_graph_context::build_moe_ffn.
_ROUTER = re.compile(rb"ffn_moe_(topk|weights(?:_softmax|_norm|_scaled)?)-(\d+)")
PREFIX = b"ffn_moe_"


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
            raise BadInput(
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
