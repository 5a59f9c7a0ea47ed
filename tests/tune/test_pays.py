"""Whether a cache pays: its probability, the size and the hit rate at which it breaks even, and what it compares."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flashmoe_sim.io.sizes import MIB
from flashmoe_sim.report.advice import sections
from flashmoe_sim.report.advice_json import document
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.compare import Compared, at_setting
from flashmoe_sim.systems.cpu import Cpu
from flashmoe_sim.systems.hot_cache import HotCache
from flashmoe_sim.systems.nvmoe import Nvmoe
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.systems.slot_bank import SlotBank
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.pays import CachePays, cache_pays, gains, likely_faster, p_faster
from flashmoe_sim.tune.recommend import Recommendation, recommend
from tests.systems.cases import case, machine, model, workload

TITLE = "Does a cache pay?"


def large(gpu_gib: float = 4.0) -> Case:
    return Case(model(layers=range(2, 26), experts=64, top_k=4), machine(gpu_gib=gpu_gib))


def found(of: Case, *systems: Any, tokens: int = 128, **asked: Any) -> Recommendation:
    return recommend(workload(of.model, tokens=tokens), of, list(systems), **asked)


def pays(of: Case, *systems: Any) -> CachePays:
    one = found(of, *systems).cache_pays
    assert one is not None
    return one


def ran(system: Any, tok_s: float, *draws: float) -> Compared:
    parts = {"read": 1.0, "upload": 0.0, "cpu": 0.0, "compute": 0.0, "host": 0.0}
    return Compared(system, tok_s=tok_s, draws=np.array(draws or [tok_s]), ms_per_token=parts)


def test_probability_is_the_mean_over_draws() -> None:
    """A draw that is twice as fast and one that is half as fast, by hand."""
    known, plain = gains(), ran(PlacedLayers(), 10.0, 10.0, 10.0)
    each = [known.of_system("hot-cache", math.log(gain)) for gain in (2.0, 0.5)]
    assert p_faster(ran(HotCache(), 10.0, 20.0, 5.0), plain) == pytest.approx(sum(each) / 2)
    assert each[0] > 0.9
    assert each[1] < 0.1


def test_a_machine_of_which_less_is_known_has_a_less_sure_answer() -> None:
    plain = ran(PlacedLayers(), 10.0, 10.0, 10.0)
    sure, unsure = (p_faster(ran(HotCache(), 20.0, *draws), plain) for draws in ((20.0, 20.0), (9.0, 40.0)))
    assert 0.5 < unsure < sure


def test_each_cache_is_held_against_the_best_without() -> None:
    found = likely_faster([ran(HotCache(), 20.0), ran(PlacedLayers(), 10.0), ran(Cpu(), 5.0), ran(Nvmoe(), 4.0)])
    assert found is not None
    plain, likely = found
    assert plain.system == PlacedLayers()
    assert set(likely) == {HotCache().spec, Nvmoe().spec}
    assert likely[HotCache().spec] > 0.9
    assert likely[Nvmoe().spec] < 0.1
    assert likely_faster([ran(HotCache(), 20.0)]) is None


def test_it_breaks_even_at_the_hit_rate_at_which_the_speeds_are_equal() -> None:
    of = large()
    one = pays(of, HotCache(), PlacedLayers())
    rate, tok_s = one.least_hit_rate, one.plain.tok_s

    def speed(at: float) -> float:
        return at_setting(None, of, one.cached.system, hit_rate=at, interval=False).tok_s or 0.0

    assert speed(min(rate + 0.01, 1.0)) >= tok_s
    assert rate == 0 or speed(rate - 0.01) <= tok_s


def against(on: Recommendation, tok_s: float) -> CachePays:
    """The same with a setting without a cache that is as fast as this."""
    plain, cached = on.cache_pays.plain, on.cache_pays.cached
    systems = [replace(one, best=replace(plain, tok_s=tok_s)) if one.best is plain else one for one in on.found.systems]
    one = cache_pays(replace(on.found, systems=tuple(systems)), on.case, named=cached.system)
    assert one is not None
    return one


def test_it_breaks_even_at_the_size_at_which_the_speeds_are_equal() -> None:
    on = found(large(), HotCache(), PlacedLayers(), tokens=512)  # few tokens leave chance in a profile of half of them
    (tried,) = [one.tried for one in on.found.systems if one.best.system.caches]
    speeds = [one.tok_s or 0.0 for one in tried]
    middle = (min(speeds) + max(speeds)) / 2
    one = against(on, middle)
    assert one.least_share == one.least_bytes / on.case.model.routed_bytes
    mib = one.least_bytes / MIB

    def speed(size: float) -> float:
        system = replace(one.cached.system, max_mib=round(size))  # type: ignore[call-arg]
        return at_setting(on.workload, on.case, system, interval=False).tok_s or 0.0

    assert speed(mib * 1.05) > middle > speed(mib * 0.95)


def test_every_size_or_none_breaks_even() -> None:
    on = found(large(), HotCache(), PlacedLayers())
    (tried,) = [one.tried for one in on.found.systems if one.best.system.caches]
    speeds = [one.tok_s or 0.0 for one in tried]
    assert against(on, max(speeds) * 1.01).least_bytes is None
    least = against(on, min(speeds) * 0.99).least_bytes
    assert least <= 1.01 * tried[0].system.max_mib * MIB  # type: ignore[attr-defined]


def test_parts_of_a_token_add_up_to_the_difference() -> None:
    one = pays(large(), HotCache(), PlacedLayers())
    assert sum(one.more_ms.values()) == pytest.approx(1000 / one.cached.tok_s - 1000 / one.plain.tok_s, rel=1e-6)


def test_nothing_to_compare_is_no_answer() -> None:
    assert found(case(arch="gemma4"), SlotBank()).cache_pays is None
    assert found(case(), PlacedLayers()).cache_pays is None
    prompt = Objective(goal="prompt", prompt_tokens=64)
    assert found(large(), HotCache(), PlacedLayers(), objective=prompt).cache_pays is None


def test_text_and_json_say_the_same() -> None:
    on = found(large(), HotCache(), PlacedLayers())
    one = on.cache_pays
    (section,) = [each for each in sections(on) if each.title == TITLE]
    text = " ".join(str(part) for part in section.parts)
    assert one.cached.system.spec in text
    assert f"{one.p:.0%}" in text
    assert document(on)["cache_pays"] == one.as_row()
    without = found(case(), PlacedLayers())
    assert document(without)["cache_pays"] is None
    assert TITLE not in [each.title for each in sections(without)]
