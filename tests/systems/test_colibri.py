"""colibri by hand: its list of each layer, its tiers, its own sizes, its flags, and what its published runs say.

The model: layers of eight experts of 1 MiB; dense weights of 1 GiB.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flashmoe_sim.drafts import Drafts
from flashmoe_sim.geometry.named import named_model
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.policies._staged import StagedLru
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.stream import distinct
from flashmoe_sim.residency.workload import Setup, prepare
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.colibri import Colibri
from flashmoe_sim.systems.published import PublishedRun
from tests.residency.builders import Call, geometry_of, one_layer, trace_of
from tests.systems.by_hand import misses_of, replayed_by, timed_by
from tests.systems.by_hand import published as any_published

EXPERTS = 8
ONE = replace(geometry_of({0: MIB}, EXPERTS), top_k=2, dense_bytes=GIB, arch="olmoe", quant="int8")
TWO = replace(geometry_of({0: MIB, 1: MIB}, EXPERTS), top_k=2, dense_bytes=GIB, arch="olmoe", quant="int8")
EACH_GB = MIB / 1e9  # of an expert


def case(machine: str | Machine = "rtx-4090", *, two: bool = False) -> Case:
    return Case(TWO if two else ONE, load_machine(machine) if isinstance(machine, str) else machine)


def test_misses_enter_the_list_from_the_last_to_the_first() -> None:
    """Two slots; what is evicted was used before the others, and the last miss of a call before its first one.

    0 1: 1 enters, then 0. 2 0: 0 is a hit, 2 displaces 1. 1 3: 3 displaces 0, then 1 displaces 2. 3 4: 3 is a hit, 4
    displaces 1. 0 1 2: more misses than slots, so the last two stay, 2 before 1. 1 2: hits. 0: displaces 1, used first.
    """
    calls = one_layer([[0, 1], [2, 0], [1, 3], [3, 4], [0, 1, 2], [1, 2], [0], [2], [1]])
    found = replayed_by(Colibri(cap=2), calls, case())
    assert misses_of(found) == [2, 1, 2, 1, 3, 0, 1, 0, 1]
    assert found.contents[0].tolist() == [1, 2]
    assert found.counts.total()["bytes_read"] == 11 * MIB


def engine(calls: list[list[int]], cap: int, pinned: set[int]) -> list[int]:
    """The misses of each call, written again after the engine's moe(): stamps, staging and swaps, without parts."""
    slots: list[list[int]] = []  # an expert and when it was used
    clock, counted = 0, []
    for experts in calls:
        missed = []
        for expert in dict.fromkeys(experts):
            slot = next((one for one in slots if one[0] == expert), None)
            if slot is not None:
                clock += 1
                slot[1] = clock
            elif expert not in pinned:
                missed.append(expert)
        for expert in missed[::-1][:cap]:
            clock += 1
            if len(slots) < cap:
                slots.append([expert, clock])
            else:
                first = min(range(cap), key=lambda number: slots[number][1])
                slots[first] = [expert, clock]
        counted.append(len(missed))
    return counted


@pytest.mark.parametrize("cap", [1, 2, 3, 5, 8, 16, 32])
@pytest.mark.parametrize("pins", [0, 6])
def test_the_list_is_the_engines_on_random_calls(cap: int, pins: int) -> None:
    """Calls of one to three tokens, whose experts repeat."""
    rng = np.random.default_rng(cap)
    share = rng.dirichlet(np.full(32, 0.3))
    drawn = [rng.choice(32, 4 * int(rng.integers(1, 4)), p=share).tolist() for _ in range(400)]
    of = replace(geometry_of({0: MIB}, 32), top_k=4, dense_bytes=GIB, arch="olmoe", quant="int8")
    calls: list[Call] = [(0, one, len(one) // 4) for one in drawn]
    found = replayed_by(
        Colibri(cap=cap, pin_gb=pins * EACH_GB, profile="all"), calls, Case(of, load_machine("rtx-4090"))
    )
    uses = np.bincount([expert for one in drawn for expert in set(one)], minlength=32)
    pinned = set(np.lexsort((np.arange(32), -uses))[:pins].tolist())
    assert misses_of(found) == engine(drawn, cap, pinned)
    assert found.stream is not None
    assert (found.stream.hits + found.stream.misses == found.stream.requests).all()
    assert found.counts.total()["misses"] == found.stream.misses.sum()


def test_pinned_experts_are_hits_and_take_no_slot() -> None:
    """0 and 1 have most uses; the other slot of the list goes from 2 to 3 to 2."""
    calls = one_layer([[0, 1], [0, 2], [1, 3], [0, 1], [1, 2]])
    found = replayed_by(Colibri(cap=1, pin_gb=2 * EACH_GB, profile="all"), calls, case())
    assert misses_of(found) == [0, 1, 1, 0, 1]
    assert found.counts.resident_bytes == 3 * MIB


def test_a_gpu_computes_what_is_pinned_on_it_and_the_ssd_has_what_ram_has_not() -> None:
    """0 is on the GPU and 2 pinned in RAM: the SSD has 1 at first, then its slot, and 3, which displaces it."""
    calls = one_layer([[0, 1], [0, 2], [0, 1], [0, 2], [0, 3], [0, 2]])
    system = Colibri(cap=1, device="cuda", vram_gb=EACH_GB, pin_gb=EACH_GB, profile="all", direct=True)
    found = replayed_by(system, calls, case())
    assert misses_of(found) == [1] * 6
    assert found.in_ram is not None
    assert distinct(trace_of(calls, EXPERTS), found.in_ram).tolist() == [0, 1, 1, 1, 0, 1]
    assert found.stream is not None
    assert found.stream.bypassed.tolist() == [1] * 6
    timed = timed_by(system, calls, case())
    assert timed.work.warm.tolist() == [0, 1, 1, 1, 0, 1]
    without_gpu = replayed_by(replace(system, dense=False), calls, case())
    assert misses_of(without_gpu) == [1, 0, 0, 0, 1, 0]


def test_a_pinned_expert_never_enters_a_list() -> None:
    trace = trace_of(one_layer([[0, 1], [0, 1]]), EXPERTS)
    policy = StagedLru(pinned={0: np.arange(EXPERTS) == 0})
    found = replay(prepare(trace, ONE), Setup(Bank(slots=4), policy, "atomic"), record=True)
    assert misses_of(found) == [2, 1]


def glm(machine: str, **given: object) -> Case:
    return Case(named_model("glm-5.2:int4"), load_machine(machine), **given)  # type: ignore[arg-type]


def test_its_list_is_as_long_as_its_own_plan_says() -> None:
    """Issue 486: 113.3 GB of budget, cap 66; issue 38: 100.1 GB with 2208 experts pinned, cap 28; both with drafts."""
    of = glm("strix-halo-128", drafts=Drafts(3, 0.7, "mtp"))
    assert Colibri(ram_gb=113.3).sized(of).cap == 66
    assert Colibri(ram_gb=100.1, pin_gb=41.8).sized(of).cap == 28
    assert Colibri(device="metal").sized(glm("m3-max-128")).cap == 1, "a fast SSD"


def test_a_list_longer_than_its_budget_is_cut() -> None:
    of = glm("rtx-4090 + 64GiB")
    most = Colibri().sized(of).cap
    assert most is not None
    assert Colibri(cap=256).launch(of).words[5] == str(most)
    assert Colibri(cap=256).memory(of) == Colibri(cap=most).memory(of)


@pytest.mark.parametrize(
    ("system", "machine", "line"),
    [
        (
            Colibri(cap=20),
            "rtx-4090 + 64GiB",
            "CAP_RAISE=0 DRAFT=0 PIPE=0 DIRECT=0 AUTOPIN=0 coli serve --model COLI_MODEL --cap 20 --ctx 4096",
        ),
        (
            Colibri(cap=4, device="metal", pin_gb=10, pipe=True),
            "m3-max-128",
            "CAP_RAISE=0 DRAFT=0 PIPE=1 DIRECT=0 COLI_METAL=1 PIN=auto PIN_GB=10.0 coli serve --model COLI_MODEL "
            "--cap 4 --ctx 4096",
        ),
        (
            Colibri(cap=9, device="cuda", vram_gb=5, ram_gb=48, top_k=6, direct=True),
            "rtx-4090 + 64GiB",
            "CAP_RAISE=0 DRAFT=0 PIPE=0 DIRECT=1 COLI_CUDA=1 CUDA_EXPERT_GB=5.0 CUDA_RELEASE_HOST=1 CUDA_DENSE=1 "
            "COLI_CUDA_ATTN=1 PIN=auto PIN_GB=0.0 coli serve --model COLI_MODEL --cap 9 --ctx 4096 --ram 48 --topk 6",
        ),
    ],
)
def test_its_command_line(system: Colibri, machine: str, line: str) -> None:
    of = glm(machine, context=4096, kv_bytes=GIB // 4)
    assert system.launch(of).line == line
    drafted = replace(of, drafts=Drafts(3, 0.7, "mtp"))
    assert system.started(drafted).line == line.replace("DRAFT=0", "DRAFT=3")


def test_devices_that_a_machine_has_not_are_refused() -> None:
    for system, machine in (
        (Colibri(device="metal"), "rtx-4090"),
        (Colibri(device="cuda"), "m3-max-128"),
        (Colibri(device="cuda"), "strix-halo-128"),
    ):
        assert "leave it out" in system.why_not(case(machine))
    with pytest.raises(BadInput):
        Colibri(device="vulkan")


def test_the_cpu_is_as_fast_as_its_cores() -> None:
    """16 cores with AVX-512 compute 2.6 GB/s each; without the active wait of July 2026 0.31 times as much."""
    machine = load_machine("ryzen-9950x + ddr5-5600x2 + 64GiB")
    of = case(replace(machine, cpu_cores=4))
    assert of.machine.cpu is not None
    for system, gb_s in ((Colibri(), 10.4), (Colibri(tuned=False), 3.224)):
        cpu = system.machine_of(of).cpu
        assert cpu is not None
        assert cpu.weights_gb_s is not None
        assert cpu.weights_gb_s.value == pytest.approx(gb_s)
    unknown = Colibri().machine_of(case(replace(machine, cpu_cores=0))).cpu
    assert unknown is not None
    assert unknown.weights_gb_s == of.machine.cpu.weights_gb_s


def published(
    flags: str, *, model: str = "glm-5.2:int4", strategy: str = "ssd_stream", **told: str | int
) -> PublishedRun:
    return any_published(named_model(model), engine="colibri", flags=flags, strategy=strategy, **told)


@pytest.mark.parametrize(
    ("run", "spec"),
    [
        (published("default"), "colibri"),
        (
            published("MTP off PIN_GB=20 --ram 50 --cap 32 --topp 0.7", slots_per_layer=32),
            "colibri:ram_gb=50.0:pin_gb=20.0:top_k=5",
        ),
        (published("cap 26/layer, MTP=0", slots_per_layer=26), "colibri:cap=26"),
        (published("Metal, --ram 96, 39.7 GB pin"), "colibri:cap=256:ram_gb=96.0:pin_gb=39.7:device=metal"),
        (published("COLI_METAL=1 --cap 33 DIRECT=1", slots_per_layer=33), "colibri:cap=33:device=metal:direct=True"),
        (published("COLI_CUDA=1 CUDA_DENSE=1 CUDA_EXPERT_GB=auto PIPE=1"), "colibri:device=cuda:pipe=True"),
        (published("CUDA_EXPERT_GB=20 URING=1"), "colibri:device=cuda:vram_gb=20.0:dense=False:pipe=True"),
        (published("cap=8; 200 tokens", model="olmoe-1b-7b:int8"), "colibri:cap=8"),
        (published("default", build="before PR 77"), "colibri:tuned=False"),
    ],
)
def test_what_published_runs_say(run: PublishedRun, spec: str) -> None:
    assert Colibri.ran(run).spec == spec


def test_published_runs_draft_by_default_without_cuda() -> None:
    drafted = [
        Colibri.drafted(one)
        for one in (
            published("default"),
            published("default", build="August 2026"),
            published("default", model="glm-5.2:int4-g64"),
            published("MTP off"),
            published("COLI_CUDA=1"),
            published("default", model="olmoe-1b-7b:int8"),
        )
    ]
    assert [None if one is None else one.count for one in drafted] == [3, 1, 1, None, None, None]
