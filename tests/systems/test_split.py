"""Layers shared out over several GPUs: the cuts, what each GPU then holds, and the flags."""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest

from flashmoe_sim.io.errors import BadInput, Incomplete, Malformed, TooLarge, Unsupported
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.systems.base import BUFFERS_BYTES, Case
from flashmoe_sim.systems.compare import compare
from flashmoe_sim.systems.placed import PlacedLayers, overridden
from flashmoe_sim.systems.placed_ik import PlacedIk
from flashmoe_sim.systems.split import evened, gpu_of_layers, loads, parse_shares, shared_out
from tests.systems.cases import case, model, workload


def two_gpus(each_mib: float = 2560) -> Case:
    """Layers 0 to 5 and the output weigh 1024 / 7 MiB each, the experts of layers 2 to 5 640 MiB more each."""
    return case(gpus=2, gpu_gib=2 * each_mib / 1024, experts=160)


def test_shares_are_of_the_number_of_layers_and_the_output() -> None:
    assert gpu_of_layers([1, 1], 6) == [0, 0, 0, 0, 1, 1, 1]  # 3 / 7 is below a half, 4 / 7 is not
    assert gpu_of_layers([3, 1], 6) == [0, 0, 0, 0, 0, 0, 1]
    assert gpu_of_layers([0.2, 0, 0.8], 4) == [0, 2, 2, 2, 2]


@pytest.mark.parametrize(("text", "shares"), [("3/1", (3, 1)), ("3,1", (3, 1)), ("1", (1, 0)), ("0/.5", (0, 0.5))])
def test_shares_are_read_as_the_engine_reads_them(text: str, shares: tuple[float, ...]) -> None:
    assert parse_shares(text, 2) == shares


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a/b", "expected shares from 0 with a / between them"),
        ("1/-1", "expected shares from 0"),
        ("0/0", "expected shares from 0"),
        ("1/1/1", "3 shares; the machine has 2 GPUs"),
    ],
)
def test_shares_that_cannot_be(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_shares(text, 2)


def test_the_first_gpu_is_emptied_by_n_cpu_moe() -> None:
    """Its layers are 0 to 3, whose experts --n-cpu-moe 4 puts on the CPU; the second keeps all that are left."""
    held = PlacedLayers(cpu_layers=4).held(two_gpus(), [1, 1])
    assert held == [BUFFERS_BYTES + 4 * (GIB // 7), BUFFERS_BYTES + 3 * (GIB // 7) + 2 * 640 * MIB]


def test_one_gpu_may_overflow_while_all_have_room() -> None:
    """The second holds 3 x 146.3 + 2 x 640 MiB beside its buffers, 183 more than it has; with 5 and 2 layers 4 x 146.3
    + 786.3 and 786.3 + 146.3 fit."""
    of = two_gpus(BUFFERS_BYTES // MIB + 1536)
    with pytest.raises(TooLarge, match=r"of GPU 1, 0.2 more than it has; give ts=5/2$"):
        PlacedLayers(cpu_layers=4, ts="1/1").check(of)
    PlacedLayers(cpu_layers=4, ts="5/2").check(of)
    by_itself = PlacedLayers(cpu_layers=4)
    by_itself.check(of)
    assert by_itself.launch(of).line.startswith("llama-server -m MODEL.gguf -ngl 99 --n-cpu-moe 4 -ts 5,2 -fa on")
    roomy = two_gpus(8192)
    assert by_itself.launch(roomy).line.startswith("llama-server -m MODEL.gguf -ngl 99 --n-cpu-moe 4 -fa on")
    assert "-ts 1,1" in PlacedLayers(cpu_layers=4, ts="1/1").launch(roomy).line
    assert sum(one.size_bytes for one in by_itself.memory(of) if one.where == "gpu") == (
        GIB + 2 * BUFFERS_BYTES + 2 * 640 * MIB
    )


def test_no_cut_may_fit() -> None:
    """Experts of three layers are on one GPU 2 x 640 + 3 x 146.3 MiB at best, which is more than 1600."""
    of = two_gpus(BUFFERS_BYTES // MIB + 1600)
    with pytest.raises(TooLarge, match="no ts that fits was found; put more layers on the CPU"):
        PlacedLayers(cpu_layers=3).check(of)
    PlacedLayers(cpu_layers=4).check(of)
    assert PlacedLayers().sizes(of) == [4, 6]
    assert compare(workload(of.model), of, [PlacedLayers()], best=True)[0].why_not == ""


def test_the_default_with_several_gpus_is_fit() -> None:
    assert PlacedLayers().launch(two_gpus()).line.startswith("llama-server -m MODEL.gguf -fa on")
    with pytest.raises(Incomplete, match="ts without cpu_layers or ot"):
        PlacedLayers(ts="3/1")


def test_overrides_name_gpus() -> None:
    of = r"blk\.[0-3]\.=CUDA0,blk\.4\.=CUDA1,exps=CPU"
    small = two_gpus()
    assert overridden(small.model, of, gpus=2) == {2: "CUDA0", 3: "CUDA0", 4: "CUDA1", 5: "CPU"}
    sizes, held = loads(small, overridden(small.model, of, gpus=2))
    assert sizes == [GIB // 7] * 7
    assert held == [BUFFERS_BYTES + 2 * 640 * MIB, BUFFERS_BYTES + 640 * MIB]
    assert overridden(model(), r"blk\.5\.=CPU", gpus=2)[2] == ""
    with pytest.raises(Malformed, match="expected a pattern, = and CPU or CUDA0 or CUDA1"):
        PlacedLayers(ot="exps=CUDA2").on_cpu(small)
    with pytest.raises(Unsupported, match="puts only a part of the experts of layer 2 on one GPU"):
        overridden(model(), "ffn_up_exps=CUDA1", gpus=2)


@pytest.mark.parametrize(
    ("number", "counts", "expected"),
    [
        (3, [4, 2], [2, 1]),
        (31, [24, 24], [15, 16]),
        (1, [1, 1, 1], [1, 0, 0]),
        (9, [2, 3], [2, 3]),
        (0, [2, 3], [0, 0]),
    ],
)
def test_ik_shares_out_what_is_on_the_cpu(number: int, counts: list[int], expected: list[int]) -> None:
    """15.5 of 24 and 24 layers are rounded to 16 and 16, one too many; a third of one to none, one too few."""
    assert shared_out(number, counts) == expected


@pytest.mark.parametrize(("cpu_layers", "expected"), [(0, []), (3, [2, 3, 5]), (5, [2, 3, 4, 5])])
def test_ik_takes_the_last_layers_of_each_gpu(cpu_layers: int, expected: list[int]) -> None:
    """Layers 0 to 3 are on the first GPU, which gives up 2 of 3 and 3 of 5; the others on the second, with 1 and 2."""
    assert PlacedIk(cpu_layers=cpu_layers).on_cpu(two_gpus(8192)) == expected


def test_ik_takes_as_few_as_leave_each_gpu_room() -> None:
    of = two_gpus(BUFFERS_BYTES // MIB + 1500)
    sized = PlacedIk().sized(of)
    assert sized.cpu_layers > 0
    sized.check(of)
    with pytest.raises(TooLarge):
        PlacedIk(cpu_layers=sized.cpu_layers - 1).check(of)


@pytest.mark.parametrize("seed", range(20))
def test_the_fullest_gpu_is_as_empty_as_any_cut_leaves_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes, taken = rng.integers(0, 9, rng.integers(1, 12)).tolist(), rng.integers(0, 9, 3).tolist()
    counts = evened(sizes, taken)

    def fullest(ends: tuple[int, ...]) -> int:
        cuts = pairwise((0, *ends, len(sizes)))
        return max(already + sum(sizes[a:b]) for already, (a, b) in zip(taken, cuts, strict=True))

    assert sum(counts) == len(sizes)
    least = min(map(fullest, combinations_with_replacement(range(len(sizes) + 1), 2)))
    assert fullest((counts[0], counts[0] + counts[1])) == least
    found = gpu_of_layers(counts, len(sizes) - 1)
    assert [found.count(gpu) for gpu in range(3)] == counts
