"""ds4 with CUDA and ROCm by hand: its lists, its sizes, its flags, its costs, and what its published runs say.

The model: two layers of 32 experts of 64 MiB; dense weights of 1 GiB.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flashmoe_sim.geometry.model import LayerGeometry
from flashmoe_sim.geometry.named import named_model
from flashmoe_sim.io.errors import BadInput, TooLarge
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.ds4 import Ds4
from tests.residency.builders import Call, geometry_of
from tests.systems.by_hand import misses_of, published, replayed_by, timed_by

EXPERTS, EACH = 32, 64 * MIB
MODEL = replace(geometry_of({0: EACH, 1: EACH}, EXPERTS), top_k=2, dense_bytes=GIB, arch="deepseek4", quant="ds4-q2")


def case(machine: str | Machine = "gb10-128") -> Case:
    return Case(MODEL, load_machine(machine) if isinstance(machine, str) else machine)


def q2(machine: str, name: str = "deepseek-v4-flash:ds4-q2") -> Case:
    return Case(named_model(name), load_machine(machine))


def full(first: int = 0) -> Call:
    """A call of layer 0 that uses all its experts, as many as the smallest cache has slots, one after the other."""
    return 0, [*range(first, EXPERTS), *range(first)], EXPERTS // 2


def test_with_cuda_the_first_slot_of_those_used_longest_ago_is_evicted() -> None:
    """32 slots, filled by layer 0 from expert 5 on, which is in slot 0.

    31 and 0 are hits, in slots 26 and 27; layer 1 gets slots 0 and 1, of 5 and 6. 5 and 7 of layer 0: 7 is a hit and
    stays, although it stands in the lowest slot of the oldest, so that 5 displaces 8 in slot 3. 0 1 of layer 1 are
    hits. Then 8 displaces 9, and 9 displaces 10.
    """
    calls = [full(5), (0, [31, 0], 1), (1, [0, 1], 1), (0, [5, 7], 1), (1, [0, 1], 1), (0, [8, 31], 1), (0, [9, 8], 1)]
    found = replayed_by(Ds4(experts=EXPERTS), calls, case())
    assert misses_of(found) == [32, 0, 2, 1, 0, 1, 1]
    assert set(found.contents[0].tolist()) == {*range(EXPERTS)} - {6, 10} | {EXPERTS, EXPERTS + 1}


def slots_of_cuda(calls: list[Call], number: int) -> tuple[list[int], list[tuple[int, int]]]:
    """The misses of each call and the experts in the slots, written again after the engine: stamps and a scan."""
    slots: list[tuple[tuple[int, int] | None, int]] = [(None, 0)] * number
    counted, clock = [], 1
    for layer, experts, _ in calls:
        clock += 1
        wanted = [(layer, expert) for expert in dict.fromkeys(experts)]
        missed = []
        for one in wanted:
            at = next((place for place, (held, _) in enumerate(slots) if held == one), None)
            if at is None:
                missed.append(one)
            else:
                slots[at] = one, clock
        for one in missed:
            free = [(used, place) for place, (_, used) in enumerate(slots) if used < clock]
            slots[min(free)[1]] = one, clock
        counted.append(len(missed))
    return counted, sorted(held for held, _ in slots if held is not None)


def slots_of_rocm(calls: list[Call], number: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Likewise: an expert's stamp is its place among all uses; those of the call are not evicted."""
    held: dict[tuple[int, int], int] = {}
    counted, clock = [], 0
    for layer, experts, _ in calls:
        wanted = [(layer, expert) for expert in dict.fromkeys(experts)]
        missed = [one for one in wanted if one not in held]
        for one in missed:
            if len(held) == number:
                del held[min((used, key) for key, used in held.items() if key not in wanted)[1]]
            held[one] = clock
        for one in wanted:
            clock += 1
            held[one] = clock
        counted.append(len(missed))
    return counted, sorted(held)


@pytest.mark.parametrize(("machine", "engine"), [("gb10-128", slots_of_cuda), ("strix-halo-128", slots_of_rocm)])
@pytest.mark.parametrize("slots", [32, 33, 37, 48, 63])
def test_its_list_is_the_engines_on_random_calls(machine: str, engine: object, slots: int) -> None:
    """Calls of both layers, of one to six tokens, whose experts repeat."""
    rng = np.random.default_rng(slots)
    share = rng.dirichlet(np.full(EXPERTS, 0.5), 2)
    calls: list[Call] = []
    for number in range(1500):
        tokens = int(rng.integers(1, 7))
        calls.append((number % 2, rng.choice(EXPERTS, 2 * tokens, p=share[number % 2]).tolist(), tokens))
    found = replayed_by(Ds4(experts=slots), calls, case(machine))
    counted, held = engine(calls, slots)  # type: ignore[operator]
    assert misses_of(found) == counted
    assert [(key // EXPERTS, key % EXPERTS) for key in sorted(found.contents[0].tolist())] == held


def test_a_cache_of_fewer_experts_than_a_layer_has_grows_with_cuda_only() -> None:
    assert Ds4(experts=4).plan(case()).setup.bank.budget_bytes == EXPERTS * EACH
    assert Ds4(experts=4).plan(case("strix-halo-128")).setup.bank.budget_bytes == 4 * EACH
    assert Ds4(experts=4).launch(case()).line.endswith("--ssd-streaming --ssd-streaming-cache-experts 32")


def test_a_number_that_leaves_too_little_free_is_lowered() -> None:
    on = q2("rtx-3090")
    large = Ds4(experts=5000)
    taken = sum(share.size_bytes for share in large.memory(on))
    assert 0 <= on.gpu_bytes - taken - 8 * GIB < 7 * MIB
    large.check(on)
    assert Ds4().sized(on).plan(on).setup.bank == large.plan(on).setup.bank


def test_its_own_size_is_as_logged() -> None:
    """80.86 GiB of experts of 9.49 MiB on a GB10: 80% of all its RAM, less the weights and two layers of experts."""
    assert Ds4().sized(q2("gb10-128", "deepseek-v4.1-flash:ds4-q2")).experts == pytest.approx(8723, rel=0.01)


@pytest.mark.parametrize("machine", ["gb10-128", "strix-halo-128", "4x v100-32gb + 128GiB"])
def test_a_model_that_fits_is_resident(machine: str) -> None:
    on = q2(machine)
    own = Ds4().sized(on)
    assert own.experts == 43 * 256
    assert not own.plan(on).execution.reads
    assert "streaming" not in own.launch(on).line
    assert ("--gpu-vram auto" in own.launch(on).line) == (on.machine.gpus > 1)
    own.check(on)


def test_a_card_that_cannot_hold_a_layer_beside_what_stays_free_is_refused_in_one_line() -> None:
    with pytest.raises(TooLarge, match=r"^[^\n]* left for a cache of experts, too little$"):
        Ds4().sized(q2("rtx-3060"))
    several = {0: LayerGeometry(EXPERTS, {"all": EACH}), 1: LayerGeometry(EXPERTS, {"all": 2 * EACH})}
    mixed = replace(MODEL, layers=several)
    assert "experts have another size" in Ds4(experts=40).why_not(Case(mixed, load_machine("gb10-128")))
    assert Ds4().why_not(Case(mixed, load_machine("gb10-128"))) == ""
    assert Ds4(experts=40).why_not(Case(mixed, load_machine("strix-halo-128"))) == ""


def test_an_inert_cache_reads_every_expert_of_every_token() -> None:
    calls = [(0, [0, 1], 1), (1, [0, 1], 1)] * 3
    assert misses_of(replayed_by(Ds4(inert=True, experts=64), calls, case())) == [2] * 6
    assert misses_of(replayed_by(Ds4(experts=63), calls, case())) == [2, 2, 0, 0, 0, 0]
    assert "build of July or August 2026" in Ds4(inert=True).builds


def test_reads_pass_the_page_cache_one_by_one_with_cuda_and_together_with_rocm() -> None:
    """Two misses in each of two layers of a token, in one piece each: four reads with CUDA, two pairs with ROCm, both
    as long as their bytes and a request; of a pair, reads share the drive.
    """
    calls: list[Call] = [(0, [0, 1], 1), (1, [0, 1], 1), (0, [2, 3], 1), (1, [2, 3], 1)]
    for machine, share, requests in (("gb10-128", 0.6, 4), ("strix-halo-128", 1.0, 2)):
        on = case(machine)
        timed = timed_by(Ds4(experts=2), calls, on)
        drive = on.machine.storage
        reads_ms = 4 * EACH / (share * drive.read_gb_s.value * 1e6) + requests * drive.request_us.value / 1e3
        assert timed.page_cache_bytes == 0
        assert timed.timing.part_ms_per_token["read"] == pytest.approx(reads_ms, rel=0.1)


@pytest.mark.parametrize(
    ("machine", "changed"),
    [
        ("gb10-128", {"storage.read_gb_s", "gpu.attention_gb_s"}),  # for which its kernels were made
        ("rtx-3090", {"storage.read_gb_s", "gpu.attention_gb_s", "gpu.layer_us"}),
        ("strix-halo-128", {"gpu.attention_gb_s"}),
        ("m3-max-48", {"memory.copy_gb_s"}),
    ],
)
def test_its_costs_are_of_the_machine(machine: str, changed: set[str]) -> None:
    before = load_machine(machine)
    after = dict(Ds4().adapted(before).quantities())
    assert {path for path, quantity in before.quantities() if after[path] != quantity} == changed


def test_what_its_published_runs_say() -> None:
    model = named_model("deepseek-v4-flash:ds4-q2")
    run = published(model, strategy="ssd_stream")
    assert Ds4.ran(replace(run, strategy="all_gpu")) == Ds4()
    assert Ds4.ran(replace(run, residents=512)) == Ds4(experts=512)
    assert Ds4.ran(replace(run, cache_bytes=10**9)) == Ds4(experts=141)
    assert Ds4.ran(replace(run, flags="--ssd-streaming (cache inert)")) == Ds4(inert=True)


def test_bad_settings_are_one_line() -> None:
    for system, on in ((Ds4(experts=1), case()), (Ds4(inert=True), case("m3-max-48"))):
        with pytest.raises(BadInput) as error:
            system.check(on)
        assert "\n" not in str(error.value)
