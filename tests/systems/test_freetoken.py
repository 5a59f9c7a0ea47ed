"""FreeToken by hand: its list, its sizes, its flags, and what its published runs say.

The model: three layers of 16 experts of 64 MiB; dense weights of 1 GiB.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flashmoe_sim.geometry.model import LayerGeometry
from flashmoe_sim.geometry.named import named_model
from flashmoe_sim.io.errors import TooLarge, Unsupported
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.freetoken import FreeToken
from tests.residency.builders import Call, geometry_of
from tests.systems.by_hand import misses_of, published, replayed_by, timed_by
from tests.systems.cases import machine

EXPERTS, EACH = 16, 64 * MIB
LAYERS = (0, 1, 2)
MODEL = replace(
    geometry_of(dict.fromkeys(LAYERS, EACH), EXPERTS), top_k=2, dense_bytes=GIB, arch="qwen3moe", quant="nvfp4"
)


def case(name: str = "rtx-4090") -> Case:
    return Case(MODEL, load_machine(name))


def engine(calls: list[Call], number: int) -> tuple[list[int], list[tuple[int, int]]]:
    """The misses of each call and the experts in the slots, written again after the engine's reference on the CPU."""
    held: list[tuple[int, int] | None] = [None] * number
    usage, counted = [0] * number, []
    for step, (layer, experts, _) in enumerate(calls, 1):
        wanted = {(layer, expert) for expert in experts}
        for slot, one in enumerate(held):
            if one in wanted:
                usage[slot] = step
        missing = sorted(wanted - set(held))  # type: ignore[arg-type]
        for one in missing:
            victim = min(range(number), key=lambda slot: (usage[slot], slot))
            held[victim], usage[victim] = one, step
        counted.append(len(missing))
    return counted, sorted(one for one in held if one is not None)


@pytest.mark.parametrize("slots", [32, 33, 40, 47])
def test_its_list_is_the_engines_on_random_calls(slots: int) -> None:
    rng = np.random.default_rng(slots)
    share = rng.dirichlet(np.full(EXPERTS, 0.5), len(LAYERS))
    calls: list[Call] = []
    for number in range(1500):
        layer, tokens = LAYERS[number % len(LAYERS)], int(rng.integers(1, 5))
        calls.append((layer, rng.choice(EXPERTS, 2 * tokens, p=share[layer]).tolist(), tokens))
    found = replayed_by(FreeToken(slots=slots), calls, case())
    counted, held = engine(calls, slots)
    assert misses_of(found) == counted
    assert [(key // EXPERTS, key % EXPERTS) for key in sorted(found.contents[0].tolist())] == held


def test_misses_are_uploaded_from_pinned_ram_and_the_host_has_no_part() -> None:
    """Four misses of a token take the link as long as their bytes; then all are hits."""
    calls: list[Call] = [(0, [0, 1], 1), (1, [0, 1], 1)]
    on = case()
    timed = timed_by(FreeToken(slots=32), calls, on)
    assert on.machine.link is not None
    uploads_ms = 4 * EACH / on.machine.link.pinned_gb_s.value / 1e6
    parts = timed.timing.part_ms_per_token
    assert parts["upload"] == pytest.approx(uploads_ms, rel=0.1)
    assert parts["read"] == 0
    assert parts["host"] < 0.02
    assert misses_of(replayed_by(FreeToken(slots=32), calls * 2, on)) == [2, 2, 0, 0]


def test_its_own_size_takes_nine_tenths_of_the_gpu() -> None:
    model = named_model("qwen3.8-flash-next:nvfp4")
    on = Case(model, load_machine("rtx-5090 + 256GiB"), GIB)
    own = FreeToken().sized(on)
    each = max(layer.expert_bytes for layer in model.layers.values())
    left = 0.9 * on.gpu_bytes - on.gpu_dense_bytes - GIB - own.chosen * each
    assert 0 <= left < each
    own.check(on)
    assert own.launch(on).line.endswith(f"--moe-cache-size {own.slots} --max-running-requests 1")


def test_what_it_does_not_take_is_one_line() -> None:
    assert FreeToken(slots=31).why_not(case()) == "slots=31; the engine takes 32 to 48 for this model"
    assert FreeToken(slots=49).why_not(case()) == "slots=49; the engine takes 32 to 48 for this model"
    assert FreeToken(slots=48).why_not(case()) == ""
    mixed = replace(MODEL, layers={0: LayerGeometry(16, {"all": MIB}), 1: LayerGeometry(16, {"all": 2 * MIB})})
    assert "slots of one size" in FreeToken().why_not(Case(mixed, load_machine("rtx-4090")))
    assert "a memory of its own" in FreeToken().why_not(case("gb10-128"))
    assert "needs cuda" in FreeToken().why_not(case("rx-7900-xtx + 64GiB"))
    assert "one GPU only" in FreeToken().why_not(case("2x rtx-3090 + 64GiB"))
    with pytest.raises(TooLarge, match=r"^[^\n]* left for 32 slots, too little$"):
        FreeToken().sized(Case(replace(MODEL, dense_bytes=23 * GIB), load_machine("rtx-4090")))
    large = replace(MODEL, layers={0: LayerGeometry(640, {"all": 128 * MIB})})
    with pytest.raises(TooLarge, match=r"^[^\n]*80\.0 GiB[^\n]*$"):
        FreeToken(slots=640).check(Case(large, machine("rtx-5090", gpu_gib=96, ram_gib=64)))


def test_what_its_published_runs_say() -> None:
    run = published(MODEL, strategy="vram_lru")
    assert FreeToken.ran(run) == FreeToken()
    assert FreeToken.ran(replace(run, flags="--moe-backend offload --moe-cache-size 700")) == FreeToken(slots=700)
    for flags in ("--moe-strategy hybrid, v0.1.2", "CPU MoE"):
        with pytest.raises(Unsupported, match="row: hybrid and cpu of FreeToken are not modelled"):
            FreeToken.ran(replace(run, flags=flags))
