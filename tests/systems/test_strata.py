"""Strata by hand, on by_hand.TWO_SIZES: what it replays, its memory, and how the CPU and the GPU share misses."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from flashmoe_sim.drafts import MTP, Drafts
from flashmoe_sim.io.errors import BadInput, TooLarge
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.residency.workload import prepare
from flashmoe_sim.systems.execution import SharedMisses
from flashmoe_sim.systems.strata import Strata
from flashmoe_sim.timeline.models.hot_cold import HotCold
from tests.residency.builders import Call, geometry_of, trace_of
from tests.systems.by_hand import TWO_SIZES, on_card, taken
from tests.systems.by_hand import parts_of as any_parts_of

MODEL = replace(TWO_SIZES, arch="qwen4exp")
case = partial(on_card, arch="qwen4exp")
parts_of = partial(any_parts_of, installs=0)


def test_the_gpu_takes_whole_experts_of_the_misses() -> None:
    """Of three misses at 128 / 256 one: up by 0.75, done at 1.0 after the hit; the CPU has 2 x 0.5 s beside it."""
    assert parts_of(SharedMisses(share=128)) == {"experts": 0.5, "upload": 0.5, "merge": 0.0625}
    # 85 x 3 / 256 is less than one; 171 x 3 / 256 is two: 1.5 s of uploads, then 0.5 s of the GPU
    assert parts_of(SharedMisses(share=85)) == {"experts": 0.25, "cold_lane": 1.25, "merge": 0.0625}
    assert parts_of(SharedMisses(share=171)) == {"experts": 0.75, "upload": 1.25, "merge": 0.0625}
    assert parts_of(SharedMisses(share=256)) == {"experts": 1.0, "upload": 2.0}


def test_the_call_waits_for_the_slower_of_both() -> None:
    """Of six misses one is up by 0.75 and done at 1.0; the CPU needs 2.5 s."""
    found = parts_of(SharedMisses(share=64), requests=7, misses=6, warm=6)
    assert found == {"experts": 0.5, "upload": 0.5, "cold_lane": 1.5, "merge": 0.0625}


@pytest.mark.parametrize(("requests", "misses", "warm"), [(4, 3, 3), (4, 0, 0), (4, 4, 4), (4, 3, 1), (8, 5, 2)])
def test_without_a_share_it_is_hot_cold(requests: int, misses: int, warm: int) -> None:
    sharing, plain = (
        parts_of(execution, requests=requests, misses=misses, warm=warm)
        for execution in (SharedMisses(share=0), HotCold())
    )
    assert sharing == plain


def test_what_ram_does_not_hold_is_read_before_both() -> None:
    """Two of three misses in four chunks on two lanes: 2 s. Then one upload until 2.75, and the CPU until 3."""
    found = parts_of(SharedMisses(share=128), warm=1)
    assert found == {"experts": 0.5, "read": 1.75, "upload": 0.75, "merge": 0.0625}


def test_a_prompt_is_computed_while_its_misses_are_uploaded() -> None:
    """Four experts of 1/4 s beside three uploads of 3/4 s, or one."""
    prompt = SharedMisses(copy_from_tokens=1, share=128)
    assert parts_of(prompt) == {"experts": 1.0, "upload": 1.25}
    assert parts_of(prompt, misses=1, warm=1) == {"experts": 1.0}


@pytest.mark.parametrize(
    # experts of 1 MiB: buffers of 160 MiB, and 170 for each 256 tokens
    ("experts", "chunk"),
    [(100, 256), (457, 256), (458, 256), (627, 256), (628, 512), (967, 512), (968, 1024), (6222, 6144), (6223, 8192)],
)
def test_the_chunk_that_slots_lend_buffers_for(experts: int, chunk: int) -> None:
    model = replace(geometry_of({0: MIB}, 8192), top_k=2, dense_bytes=GIB, arch="qwen4exp")
    assert Strata(experts=experts).chunk(model) == chunk


def test_residents_whose_slots_are_lent_are_missed_in_prompts() -> None:
    """330 of 660 slots lend the buffers of a chunk: half of the hits of a call of 256 tokens, none of one token's."""
    model = replace(geometry_of({0: MIB}, 660), top_k=2, dense_bytes=GIB, arch="qwen4exp")
    calls: list[Call] = [(0, [*range(660)], 1), (0, [*range(100)], 256), (0, [*range(100)], 1)]
    on = prepare(trace_of(calls, 660), model)
    system = Strata(experts=660, profile="all")
    stream = system.replay(on, system.plan(replace(case(), model=model)).setup).stream
    assert stream is not None
    assert (stream.hits + stream.misses).tolist() == [660, 100, 100]
    assert stream.misses.tolist() == [stream.misses[0], 50, 0]


def test_attention_reads_what_an_indexer_chooses() -> None:
    assert Strata().attended(MODEL) == 2048
    assert Strata().attended(replace(MODEL, arch="qwen35moe")) == 0


@pytest.mark.parametrize(
    ("link_gb_s", "share"),
    # 0.55 from 20 GB/s on and none below 4; between, 0.55 x GB/s / 26
    [(26, 141), (20, 141), (13, 70), (5.2, 28), (4, 22), (3.9, 0)],
)
def test_the_share_of_the_link_is_the_engines_rule(link_gb_s: float, share: int) -> None:
    execution = Strata(experts=2).plan(case(link_gb_s=link_gb_s)).execution
    assert isinstance(execution, SharedMisses)
    assert execution.share == share
    given = Strata(experts=2, pcie_share=0.25).plan(case(link_gb_s=link_gb_s)).execution
    assert given == SharedMisses(copy_from_tokens=65, share=64)


@pytest.mark.parametrize(("gpu_mib", "experts"), [(2048 + 700 + 3, 1), (2048 + 700 + 23, 7), (24 * 1024, 8)])
def test_it_takes_what_the_gpu_has_beside_its_reserve(gpu_mib: int, experts: int) -> None:
    """Each counts as one of the largest, 3 MiB; there are 8."""
    sized = Strata().sized(case(gpu_mib=gpu_mib))
    assert sized.spec == f"strata:experts={experts}"
    sized.check(case(gpu_mib=gpu_mib))
    assert Strata(experts=3).sized(case(gpu_mib=gpu_mib)).experts == 3


def test_no_room() -> None:
    with pytest.raises(TooLarge, match="too little"):
        Strata().sized(case(gpu_mib=2048 + 702))
    assert Strata().sizes(case(gpu_mib=2048 + 702)) == []
    assert Strata().sizes(case()) == [1, 2, 4, 8]


def test_its_memory() -> None:
    """Three experts of the largest size, and all of them in RAM; eight are more than there is."""
    shares = Strata(experts=3).memory(replace(case(), kv_bytes=7))
    on_gpu = taken(shares, "gpu")
    assert on_gpu.pop("compute buffers") > 0
    assert on_gpu == {"experts on the GPU": 9 * MIB, "dense weights": GIB, "context": 7}
    assert taken(shares, "ram") == {"experts": 16 * MIB}
    assert taken(Strata(experts=8).memory(case()), "gpu")["experts on the GPU"] == 16 * MIB


def test_its_flags() -> None:
    line = "strata --serve --pack PACK --native MODEL.gguf --ple-gguf MODEL.gguf --max-context 4096 "
    line += (
        "--expert-profile data/expert-profile.bin --expert-cache 3 --adapt-every {} --adapt-swaps 96{} --prefill auto"
    )
    assert Strata(experts=3).launch(case()).line == line.format(4, "")
    assert Strata(experts=3, every=0, pcie_share=0.35).launch(case()).line == line.format(0, " --pcie-frac 0.35")
    drafting = replace(case(), drafts=Drafts(3, 0.6, MTP))
    assert Strata(experts=3).started(drafting).line == f"{line.format(4, '')} --mtp MTP --spec 4"


@pytest.mark.parametrize(
    "settings",
    [{"experts": -1}, {"every": -1}, {"swaps": -1}, {"pcie_share": 1.5}, {"pcie_share": -0.5}, {"profile": "x.bin"}],
)
def test_settings_that_mean_nothing(settings: dict[str, int]) -> None:
    with pytest.raises(BadInput, match=f"^system strata: .*{next(iter(settings))}"):
        Strata(**settings)


def test_it_replays_the_profile_of_the_first_half_and_exchanges_in_the_second() -> None:
    """Six tokens, each a window; the first three are the profile. The GPU has room for 6 MiB.

    By use and layer come 0:0, 1:0 (4 MiB), 0:1 (5 MiB), and of those never used 0:2 (6 MiB). Rounds after every fourth
    window find nothing: then expert 1 of layer 1 and expert 3 of layer 0 were used once. With rounds after every second
    window, the third round counts 0.7 + 2 = 2.7 uses of both. Layer 0 gives up 2, which was never used. Layer 1 does
    not give up 0 with its (2 x 0.7 + 1) x 0.7 = 1.68: a gain of 1.02 is too little.
    """
    calls: list[Call] = [
        call
        for first, second in (([0, 1], [0]), ([0], [0]), ([0], [0]), ([3], [1]), ([3], [1]), ([3], [1]))
        for call in ((0, first, 1), (1, second, 1))
    ]
    workload = prepare(trace_of(calls, 4), MODEL)
    for every, hits, held in (
        (4, [2, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0], [[0, 1, 2], [0]]),
        (2, [2, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0], [[0, 1, 3], [0]]),
    ):
        system = Strata(experts=2, every=every)
        plan = system.plan(case())
        assert plan.setup.policy.spec == ("bounded-swaps" if every == 4 else "bounded-swaps:every=2")
        replayed = system.replay(workload, plan.setup)
        assert replayed.stream.hits.tolist() == hits
        assert [keys.tolist() for keys in replayed.contents] == held


def test_without_rounds_the_residents_stay() -> None:
    assert Strata(experts=2, every=0).plan(case()).setup.policy.spec == "bounded-swaps:every=1:swaps=0"
