"""Models and traces that systems are tried on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.model import LayerGeometry, ModelGeometry
from flashmoe_sim.residency.workload import Workload, prepare
from tests.residency.builders import Call, trace_of


def big_model() -> ModelGeometry:
    """Of 128 GiB."""
    return load_model("qwen3-235b-a22b")


def model_of(size_bytes: int, *, layers: int = 2, n_experts: int = 16, arch: str = "") -> ModelGeometry:
    """Layers whose experts weigh so much in total, and a tenth of it in dense weights."""
    each = size_bytes // (layers * n_experts)
    return ModelGeometry(
        name="toy",
        layers={layer: LayerGeometry(n_experts, {"expert": each}) for layer in range(layers)},
        top_k=2,
        dense_bytes=size_bytes // 10,
        source="tests",
        arch=arch,
    )


def short_workload(model: ModelGeometry, *, steps: int = 40, prompt_tokens: int = 3) -> Workload:
    """A prompt in one step, then decoded tokens, each requesting two experts of every layer."""
    rng = np.random.default_rng(7)
    experts = model.layers[0].n_experts
    weight = rng.dirichlet(np.full(experts, 0.5))

    def asked(tokens: int) -> list[int]:
        return [int(one) for _ in range(tokens) for one in rng.choice(experts, 2, replace=False, p=weight)]

    calls: list[Call] = []
    for step in range(steps):
        tokens = prompt_tokens if step == 0 else 1
        calls += [(layer, asked(tokens), tokens) for layer in model.layers]
    phase = np.repeat([1] + [2] * (steps - 1), len(model.layers)).astype(np.uint8)
    trace = replace(trace_of(calls, experts), top_k=2, phase=phase)
    return prepare(trace, model)
