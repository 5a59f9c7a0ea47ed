"""Work made from a rate misses as often as told, and runs as a replay's does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flashmoe_sim.geometry.model import LayerGeometry, ModelGeometry
from flashmoe_sim.io.errors import OutOfRange, TooLarge
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.timeline.assemble import Conditions, weigh
from flashmoe_sim.timeline.from_rates import STEPS, RatePrediction, made_work, page_cache_share, predict
from flashmoe_sim.timeline.models.table import EXECUTION_MODELS, parse_execution
from flashmoe_sim.timeline.rates import Rate

MACHINE = load_machine("m2-16")  # 16 GiB, of which the system takes some
MODEL = ModelGeometry(
    "made", {layer: LayerGeometry(64, {"all": 1 << 22}) for layer in range(8)}, 4, "made", dense_bytes=1 << 28
)
SERIAL = Conditions(parse_execution("sync-install"))


def one(rate: float, machine: Machine = MACHINE, conditions: Conditions = SERIAL, **options: object) -> RatePrediction:
    (found,) = predict([Rate("here", hit_rate=rate)], MODEL, machine, conditions, **options)  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(("top_k", "misses", "share"), [(8, 1.68, 0.0), (4, 4.0, 1.0), (4, 0.0, 0.5), (6, 2.345, 0.3)])
def test_rates_are_exact_over_the_run(top_k: int, misses: float, share: float) -> None:
    work = made_work(layers=5, top_k=top_k, misses_per_call=misses, page_cache_share=share, steps=200)
    total = round(misses * 1000)
    assert work.misses.sum() == total
    assert work.warm.sum() == round(share * total)
    assert (work.requests == top_k).all()
    assert ((work.warm >= 0) & (work.warm <= work.misses) & (work.misses <= top_k)).all()
    assert work.row.tolist() == [0, 1, 2, 3, 4] * 200
    assert work.step.tolist() == [step for step in range(200) for _ in range(5)]


def test_misses_are_spread_as_if_drawn_one_by_one() -> None:
    work = made_work(layers=40, top_k=8, misses_per_call=2.0, steps=500)
    share, n = 2 / 8, 8
    assert np.var(work.misses) == pytest.approx(n * share * (1 - share), rel=0.03)
    by_layer = work.misses.reshape(500, 40).mean(axis=0)
    assert np.abs(by_layer - 2).max() < 5 * np.sqrt(1.5 / 500)


def test_the_same_seed_draws_the_same() -> None:
    first, again, other = (made_work(layers=3, top_k=4, misses_per_call=1.5, steps=50, seed=s) for s in (1, 1, 2))
    assert (first.misses == again.misses).all()
    assert (first.misses != other.misses).any()


def test_time_is_what_misses_and_the_rest_take() -> None:
    """Under sync-install nothing overlaps: the time of a token is a straight line in its misses."""
    cold = replace(SERIAL, direct_io=True)
    times = [1 / one(rate, conditions=cold).tok_s for rate in (0.25, 0.5, 1)]
    assert (times[0] - times[1]) * 2 == pytest.approx(times[1] - times[2], rel=1e-9)
    miss_s = (times[0] - times[1]) / 8  # one miss less in each layer
    copy_s = (1 << 22) / (MACHINE.memory.copy_gb_s.value * 1e9)  # type: ignore[union-attr]
    install_s = MACHINE.host.install_us.value * 1e-6
    assert miss_s == pytest.approx(4 * MACHINE.storage.chunk_s(1 << 20, 1) + copy_s + install_s, rel=1e-9)


def test_the_interval_holds_the_speed() -> None:
    found = one(0.5)
    assert found.tok_s_lo < found.tok_s < found.tok_s_hi
    assert found.as_row()["ms_per_token"] == pytest.approx(1e3 / found.tok_s)
    assert found.error is None


def test_page_cache_serves_what_it_holds_of_what_the_bank_does_not() -> None:
    assert one(0.5).page_cache_share == 1  # 2 GiB of experts on 16
    assert one(0.5, conditions=replace(SERIAL, direct_io=True)).page_cache_share == 0
    large = replace(MODEL, layers={layer: LayerGeometry(1024, {"all": 1 << 22}) for layer in range(8)})
    weights = weigh(large, tuple(large.layers.values()), replace(SERIAL, dense_bytes=0))
    free = MACHINE.memory.ram_gib.value - MACHINE.memory.reserve_gib.value
    for bank, inside in [(None, 0), (Bank(slots=64), 2), (Bank(budget_bytes=3 * GIB), 3), (Bank(slots=9999), 32)]:
        if inside > free:
            with pytest.raises(TooLarge, match=r"^here: bank 9999: 32\.0 GiB of slots"):
                page_cache_share(large, weights, MACHINE, SERIAL, bank, "here")
        else:
            share = page_cache_share(large, weights, MACHINE, SERIAL, bank, "here")
            assert share == pytest.approx((free - inside) / (32 - inside))


def test_banks_and_experts_of_a_row_come_before_those_of_all() -> None:
    rates = [Rate("a", hit_rate=0.5), Rate("b", hit_rate=0.5, top_k=2, bank=Bank(slots=8))]
    first, second = predict(rates, MODEL, MACHINE, SERIAL, bank=Bank(slots=16), top_k=3)
    assert (first.top_k, first.misses_per_call, str(first.rate.bank)) == (3, 1.5, "16")
    assert (second.top_k, second.misses_per_call, str(second.rate.bank)) == (2, 1.0, "8")
    assert one(0.5).top_k == MODEL.top_k
    with pytest.raises(OutOfRange, match="here: 65 experts a token; made has 64 a layer"):
        one(0.5, top_k=65)


@pytest.mark.parametrize("name", EXECUTION_MODELS)
def test_every_execution_model(name: str) -> None:
    execution = parse_execution(name)
    machine = load_machine("rtx-4090")
    more, fewer = (one(rate, machine, Conditions(execution)) for rate in (0.2, 0.9))
    assert more.tok_s <= fewer.tok_s
    assert (more.page_cache_share is None) == (name == "resident")
    assert len(more.timing.step_s) == STEPS
