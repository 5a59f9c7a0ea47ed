"""From ggml's tensors to routed calls, without ggml."""

from __future__ import annotations

import ctypes
import struct
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashmoe_sim.io.errors import SimError, Unsupported
from native_bridge.capture.tensors import Ggml, RouterTap, TensorHead, extent_bytes, strided

I32, F32, F16 = 26, 0, 1


def naive(raw: bytes, ne: list[int], nb: list[int], code: str) -> list[float]:
    """Value after value, the fastest dimension last in the loop."""
    return [
        struct.unpack_from(code, raw, sum(i * stride for i, stride in zip(index[::-1], nb, strict=True)))[0]
        for index in product(*map(range, ne[::-1]))
    ]


@given(
    st.lists(st.integers(1, 4), min_size=4, max_size=4),
    st.lists(st.integers(0, 3), min_size=4, max_size=4),
    st.sampled_from([("i", np.int32), ("f", np.float32)]),
    st.randoms(use_true_random=False),
)
def test_strided_views_equal_the_twin(ne: list[int], gaps: list[int], kind: Any, random: Any) -> None:
    code, dtype = kind
    nb = [4 * (1 + gaps[0])]
    for count, gap in zip(ne, gaps[1:], strict=False):
        nb.append(nb[-1] * count + 4 * gap)
    values = [random.randrange(1 << 20) for _ in range(extent_bytes(ne, nb, 4) // 4)]
    raw = struct.pack(f"{len(values)}{code}", *values)
    taken = strided(np.frombuffer(raw, np.uint8), ne, nb, dtype)
    assert taken.shape == tuple(ne[::-1])
    assert taken.ravel().tolist() == naive(raw, ne, nb, code)


class FakeGgml:
    """A library with one tensor: the ids of the best 3 of 8 experts of 4 tokens, which lie 8 apart."""

    def __init__(self, type_number: int = I32, **changes: int) -> None:
        self.memory = np.arange(32, dtype=np.int32)
        self.head = TensorHead(type_number, None, (3, 4, 1, 1), (4, 32, 128, 128))
        self.n_bytes = changes.get("n_bytes", 3 * 32 + 3 * 4)
        self.read: list[tuple[int, int]] = []

        def ggml_backend_tensor_get(tensor: int, into: int, offset: int, count: int) -> None:
            self.read.append((offset, count))
            ctypes.memmove(into, self.memory.ctypes.data + offset, count)

        self.ggml_get_name = lambda tensor: tensor + 256
        self.ggml_nbytes = lambda tensor: self.n_bytes
        self.ggml_backend_tensor_get = ggml_backend_tensor_get

    @property
    def tensor(self) -> int:
        return ctypes.addressof(self.head)


def test_a_view_of_the_best_experts() -> None:
    library: Any = FakeGgml()
    assert Ggml(library).values(library.tensor).tolist() == [[[[0, 1, 2], [8, 9, 10], [16, 17, 18], [24, 25, 26]]]]
    assert library.read == [(0, 108)]


def test_no_rows_are_no_values() -> None:
    library: Any = FakeGgml(n_bytes=0)
    library.head.ne[1] = 0
    assert Ggml(library).values(library.tensor).shape == (1, 1, 0, 3)
    assert library.read == []


@pytest.mark.parametrize("library", [FakeGgml(F16), FakeGgml(n_bytes=100)], ids=["type", "layout"])
def test_a_tensor_of_another_kind_is_refused(library: Any) -> None:
    with pytest.raises(SimError, match="laid out otherwise than this program knows"):
        Ggml(library).values(library.tensor)
    assert library.read == []


def take(tap: RouterTap, name: str, values: Any) -> None:
    assert tap.wants(name.encode())
    tap.take(name.encode(), np.array(values))


def test_the_weights_computed_last_count() -> None:
    tap = RouterTap(weights=True)
    take(tap, "ffn_moe_topk-3", [[[[5, 2], [7, 0]]]])
    take(tap, "ffn_moe_weights-3", [[[[0.5], [0.25]], [[0.25], [0.125]]]])
    take(tap, "ffn_moe_weights_norm-3", [[[[0.75, 0.25], [0.5, 0.5]]]])
    take(tap, "ffn_moe_weights_scaled-3", [[[[1.5], [0.5]], [[1.0], [1.0]]]])
    take(tap, "ffn_moe_topk-12", [[[[1, 2]]]])
    take(tap, "ffn_moe_weights-12", [[[[0.5], [0.25]]]])
    first, last = tap.calls()
    assert (first.layer, last.layer) == (3, 12)
    assert first.experts.tolist() == [[5, 2], [7, 0]]
    assert first.weights.tolist() == [[1.5, 0.5], [1.0, 1.0]]
    assert last.experts.tolist() == [[1, 2]]
    assert tap.calls() == []


@pytest.mark.parametrize(
    "name",
    [
        "ffn_moe_weights_sum-3",
        "ffn_moe_weights_sum_clamped-3",
        "ffn_moe_topk-3 (view)",
        "ffn_moe_out-3",
        "ffn_moe_topk",
    ],
)
def test_other_tensors_are_not_wanted(name: str) -> None:
    assert not RouterTap(weights=True).wants(name.encode())


def test_without_weights_only_the_choice_is_wanted() -> None:
    tap = RouterTap(weights=False)
    assert not tap.wants(b"ffn_moe_weights_norm-3")
    take(tap, "ffn_moe_topk-3", [[[[5, 2]]]])
    assert tap.calls()[0].weights is None


def test_layers_without_rows_are_left_out_and_the_order_is_kept() -> None:
    tap = RouterTap(weights=False)
    take(tap, "ffn_moe_topk-2", [[[[5, 2], [1, 3]]]])
    take(tap, "ffn_moe_topk-0", [[[[4, 6], [0, 7]]]])
    take(tap, "ffn_moe_topk-5", np.empty((1, 1, 0, 2), np.int32))
    assert [call.layer for call in tap.calls()] == [2, 0]


def test_a_layer_routed_twice_is_refused() -> None:
    tap = RouterTap(weights=False)
    take(tap, "ffn_moe_topk-2", [[[[5, 2]]]])
    with pytest.raises(Unsupported, match="layer 2 is routed twice"):
        take(tap, "ffn_moe_topk-2", [[[[5, 2]]]])
