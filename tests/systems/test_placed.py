"""Layers placed by llama.cpp and ik_llama.cpp: which, how much memory, and the flags."""

from __future__ import annotations

from typing import Any

import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.io.errors import BadInput, TooLarge, UnknownName
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.systems.base import BUFFERS_BYTES, Case
from flashmoe_sim.systems.placed import PlacedLayers, on_cpu, routed_tensors
from flashmoe_sim.systems.placed_ik import PlacedIk
from flashmoe_sim.timeline.models.prefill_copy import PrefillCopy
from tests.systems.cases import case, machine, model, workload

LAYER_BYTES = 16 * 4 * MIB  # of the small model, whose layers with experts are 2 to 5


def gib_for(layers: float) -> float:
    """GPU memory for so many layers of experts beside dense weights and buffers."""
    return (GIB + BUFFERS_BYTES + layers * LAYER_BYTES) / GIB


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        (PlacedLayers(cpu_layers=0), []),
        (PlacedLayers(cpu_layers=2), []),  # layers 0 and 1 have no experts, and count
        (PlacedLayers(cpu_layers=4), [2, 3]),
        (PlacedLayers(cpu_layers=99), [2, 3, 4, 5]),
        (PlacedIk(cpu_layers=0), []),
        (PlacedIk(cpu_layers=2), [4, 5]),  # the highest that have experts
        (PlacedIk(cpu_layers=99), [2, 3, 4, 5]),
        (PlacedLayers(ot=r"blk\.(2|3)\.ffn_.*_exps=CPU"), [2, 3]),
        (PlacedLayers(ot="exps=CPU"), [2, 3, 4, 5]),
    ],
)
def test_which_layers_are_on_the_cpu(system: PlacedLayers, expected: list[int]) -> None:
    assert system.on_cpu(case()) == expected


@pytest.mark.parametrize(
    ("layers", "expected"), [(4, []), (3.99, [5]), (2.5, [4, 5]), (1, [3, 4, 5]), (0, [2, 3, 4, 5])]
)
def test_fit_fills_the_gpu_from_the_low_layers_on(layers: float, expected: list[int]) -> None:
    small = case(gpu_gib=gib_for(layers))
    assert PlacedLayers().on_cpu(small) == expected
    sized = PlacedLayers().sized(small)  # --n-cpu-moe counts from the first layer on
    assert sized.on_cpu(small) == list(range(2, 2 + len(expected)))
    assert f"--n-cpu-moe {sized.cpu_layers} " in sized.launch(small).line
    assert PlacedLayers().launch(small).line.startswith("llama-server -m MODEL.gguf -fa on -ub 512 -np 1")
    ik = PlacedIk().sized(small)
    assert (ik.cpu_layers, ik.on_cpu(small)) == (len(expected), expected)
    assert f"llama-server -m MODEL.gguf -ngl 99 --n-cpu-moe {len(expected)} " in ik.launch(small).line


def test_dense_weights_alone_may_not_fit() -> None:
    with pytest.raises(TooLarge, match="GiB are left for experts on the GPU, too little"):
        PlacedLayers().sized(case(gpu_gib=1.5))


def test_memory_and_the_replay_have_the_same_layers() -> None:
    small = case(gpu_gib=gib_for(2.5))
    system = PlacedLayers()
    assert {(one.what, one.where): one.size_bytes for one in system.memory(small)} == {
        ("experts", "gpu"): 2 * LAYER_BYTES,
        ("dense weights", "gpu"): GIB,
        ("context", "gpu"): 0,
        ("compute buffers", "gpu"): BUFFERS_BYTES,
        ("experts of the CPU", "mapped"): 2 * LAYER_BYTES,
    }
    system.check(small)
    of, plan = workload(small.model), system.plan(small)
    counts = system.replay(of, plan.setup).counts
    assert counts.resident_bytes == 2 * LAYER_BYTES
    assert [row["hit_rate"] for row in counts.by_layer()] == [1, 1, 0, 0]


@pytest.mark.parametrize(("cpu_layers", "expected"), [(2, [1, 1, 1, 1]), (4, [0, 0, 1, 1]), (6, [0, 0, 0, 0])])
def test_n_cpu_moe_leaves_the_high_layers(cpu_layers: int, expected: list[int]) -> None:
    system, small = PlacedLayers(cpu_layers=cpu_layers), case()
    counts = system.replay(workload(small.model), system.plan(small).setup).counts
    assert [row["hit_rate"] for row in counts.by_layer()] == expected


def test_layers_that_are_not_neighbours_may_stay() -> None:
    system, small = PlacedLayers(ot=r"blk\.(3|5)\.=CPU"), case()
    counts = system.replay(workload(small.model), system.plan(small).setup).counts
    assert [row["hit_rate"] for row in counts.by_layer()] == [1, 0, 1, 0]


def test_prompts_are_copied_from_32_tokens_on_and_by_ik_for_enough_of_each_expert() -> None:
    assert PlacedLayers(mmap="yes").plan(case()).execution == PrefillCopy(32)
    assert PlacedIk().plan(case()).execution == PrefillCopy(32 * 16 // 2)


def test_what_is_not_mapped_is_pinned_for_the_copies_of_prompts() -> None:
    """llama.cpp maps unless told otherwise; the command line says --load-mode none if RAM holds all."""
    on = case()
    for system, pinned in ((PlacedLayers(cpu_layers=4), True), (PlacedLayers(cpu_layers=4, mmap="no"), True)):
        assert system.plan(on).execution == PrefillCopy(32, pinned)
        assert "--load-mode" in system.launch(on).words
    mapped = PlacedLayers(cpu_layers=4, mmap="yes")
    assert mapped.plan(on).execution == PrefillCopy(32, pinned=False)
    assert "--load-mode" not in mapped.launch(on).words
    assert not PrefillCopy.pinned
    link = on.machine.link
    assert PrefillCopy(32, pinned=True).link_rate(link) == link.pinned_gb_s
    assert PrefillCopy(32).link_rate(link) == link.pageable_gb_s
    with pytest.raises(UnknownName, match="mmap 'maybe'"):
        PlacedLayers(mmap="maybe")


def test_the_two_commands_of_the_guide_are_opposites() -> None:
    """Both are said to keep the experts of layers 0 to 30 on the CPU; the first puts exactly those on the GPU."""
    of = Case(load_model("qwen3-30b-a3b"), machine())
    pattern = r"blk\.([0-9]|[1-2][0-9]|30)\.=CUDA0,exps=CPU"
    assert on_cpu(of.model, pattern) == set(range(31, 48))
    assert set(PlacedLayers(cpu_layers=31).on_cpu(of)) == set(range(31))


def test_names_of_tensors() -> None:
    assert routed_tensors(model())[2] == [f"blk.2.ffn_{name}_exps.weight" for name in ("gate", "up", "down")]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cpu_layers": -2}, "cpu_layers=-2 is not in 0.."),
        ({"cpu_layers": 1, "ot": "exps=CPU"}, "both place experts; give one"),
    ],
)
def test_settings_that_cannot_be(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        PlacedLayers(**given)


@pytest.mark.parametrize(
    ("ot", "message"),
    [
        ("exps", "expected a pattern, = and CPU or CUDA0"),
        ("exps=CUDA7", "expected a pattern, = and CPU or CUDA0"),
        ("(=CPU", "is not a pattern"),
        ("ffn_up_exps=CPU", "puts only a part of the experts of layer 2 on the CPU"),
    ],
)
def test_overrides_that_cannot_be(ot: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        PlacedLayers(ot=ot).plan(case())
