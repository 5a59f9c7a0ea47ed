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
from flashmoe_sim.systems.cached import Cached
from flashmoe_sim.systems.compare import Compared, at_setting
from flashmoe_sim.systems.cpu import Cpu
from flashmoe_sim.systems.hot_cache import HotCache
from flashmoe_sim.systems.nvmoe import Nvmoe
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.systems.slot_bank import SlotBank
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.pays import LIKELY_KEYS, CachePays, Likely, cache_pays, gains, likely, likely_faster
from flashmoe_sim.tune.recommend import Recommendation, recommend
from flashmoe_sim.verbs.compare import Compare
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
    assert likely(ran(HotCache(), 11.0, 20.0, 5.0), plain).p == pytest.approx(sum(each) / 2)
    assert each[0] > 0.85
    assert each[1] < 0.1


def test_a_machine_of_which_less_is_known_has_a_less_sure_answer() -> None:
    plain = ran(PlacedLayers(), 10.0, 10.0, 10.0)
    sure, unsure = (likely(ran(HotCache(), 20.0, *draws), plain).p for draws in ((20.0, 20.0), (9.0, 40.0)))
    assert 0.5 < unsure < sure


def test_each_cache_is_held_against_the_best_without() -> None:
    found = likely_faster([ran(HotCache(), 20.0), ran(PlacedLayers(), 10.0), ran(Cpu(), 5.0), ran(Nvmoe(), 4.0)])
    assert found is not None
    plain, surely = found
    assert plain.system == PlacedLayers()
    assert set(surely) == {HotCache().spec, Nvmoe().spec}
    assert surely[HotCache().spec].p > 0.85
    assert surely[Nvmoe().spec].p < 0.1
    assert likely_faster([ran(HotCache(), 20.0)]) is None


@pytest.mark.parametrize(
    ("tok_s", "hit_rate", "why"), [(10.2, 0.5, "within 3%"), (9.8, None, "within 3%"), (5.0, 0.0, "never hits")]
)
def test_a_cache_without_a_difference_has_no_probability(tok_s: float, hit_rate: float | None, why: str) -> None:
    cached = replace(ran(HotCache(), tok_s, 30.0, 40.0), hit_rate=hit_rate)
    one = likely(cached, ran(PlacedLayers(), 10.0, 10.0, 10.0))
    assert one.p is None
    assert why in one.why_none
    assert one.rank < 0


@pytest.mark.parametrize(
    ("tok_s", "draws", "words"),
    [
        (8.4, (14.0, 15.0), "predicted to be slower, but in 100% of the draws it is not"),
        (12.0, (5.0, 6.0), "predicted to be faster, but in 100% of the draws it is not"),
        (9.6, (9.95, 9.95), "predicted to be slower, but published pairs of its engine gained more than predicted"),
        (12.0, (15.0, 15.0), ""),
    ],
)
def test_a_probability_against_the_speeds_says_why(tok_s: float, draws: tuple[float, ...], words: str) -> None:
    one = likely(ran(Cached(), tok_s, *draws), ran(PlacedLayers(), 10.0, *[10.0] * len(draws)))
    assert one.p is not None
    assert one.despite == words


@pytest.mark.filterwarnings("ignore:no trace of")
@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("deepseek-v3", "rtx-3060 + ryzen-5600 + 64GiB"),
        ("kimi-k2", "rtx-4070 + ryzen-5600 + 128GiB"),
        ("qwen3-30b-a3b", "rtx-4090 + ryzen-7950x + ddr5-6000x2 + 96GiB"),
        ("gpt-oss-120b", "rtx-3060 + 64GiB"),
        ("qwen3-30b-a3b", "m3-max-48"),
    ],
)
def test_no_probability_of_nothing_and_none_against_its_speeds(name: str, parts: str) -> None:
    """Every cache on machines that hold all, some and next to nothing of a model."""
    verb = Compare(model=name, machine=parts)
    answer = verb.run()
    plain, surely = answer.likely_faster() or (None, dict[str, Likely]())
    assert plain is not None
    text = " ".join(str(part) for section in verb.sections(answer) for part in section.parts)
    for row in answer.rows:
        one = surely.get(row.system.spec)
        if one is None:
            continue
        gain = row.tok_s / plain.tok_s
        assert (one.p is None) == bool((row.hit_rate is not None and row.hit_rate < 5e-4) or abs(gain - 1) <= 0.03)
        assert one.p is None or (one.p > 0.5) == (gain > 1) or one.despite in text
        assert one.p is not None or f"{row.system.spec} ({one.why_none})" in text


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
    assert f"{one.likely.p:.0%}" in text
    assert f"faster in {one.likely.faster_in:.0%} of the draws" in text
    assert set(LIKELY_KEYS) <= set(one.as_row())
    assert document(on)["cache_pays"] == one.as_row()
    without = found(case(), PlacedLayers())
    assert document(without)["cache_pays"] is None
    assert TITLE not in [each.title for each in sections(without)]
