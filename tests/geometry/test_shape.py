from __future__ import annotations

from typing import Any

import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.recordings import find_shape
from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, OutOfRange, UnknownName
from tests.support import refused


def test_of_a_model() -> None:
    shape = find_shape("deepseek-v2-lite")
    assert (shape.name, shape.top_k, shape.n_experts) == ("deepseek-v2-lite:q4_k_m", 6, dict.fromkeys(range(1, 27), 64))
    assert find_shape(load_model("deepseek-v2-lite")) == shape
    fewer = find_shape("deepseek-v2-lite", top_k=4)
    assert fewer.top_k == 4


def test_of_numbers() -> None:
    shape = find_shape(layers=3, n_experts=8, top_k=2)
    assert (shape.n_experts, shape.top_k) == ({0: 8, 1: 8, 2: 8}, 2)
    assert find_shape() is None


@pytest.mark.parametrize(
    ("options", "found", "kind"),
    [
        ({"layers": 3}, "give all three, or a model", Incomplete),
        ({"top_k": 3}, "give all three, or a model", Incomplete),
        ({"layers": 0, "n_experts": 4, "top_k": 1}, "0 layers", OutOfRange),
        ({"layers": 40_000, "n_experts": 4, "top_k": 1}, "40000 layers", OutOfRange),
        ({"model": "deepseek-v2-lite", "layers": 3}, "leave them out, or the model", Conflict),
        ({"model": "deepseek-v2-lite", "top_k": 7}, "deepseek-v2-lite:q4_k_m routes at most 6 experts a t", OutOfRange),
        ({"model": "deepseek-v2-lite", "top_k": 0}, "top-k 0 of 64 experts", OutOfRange),
        ({"model": "deepseek-v3-lite"}, "unknown model", UnknownName),
    ],
)
def test_refusals(options: dict[str, Any], found: str, kind: type[BadInput]) -> None:
    with refused(kind, found):
        find_shape(**options)
