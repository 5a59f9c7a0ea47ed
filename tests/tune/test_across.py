"""The choice of one trace on another: sizes, profiles, and settings that do not run there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashmoe_sim.schema import TRANSFERS
from flashmoe_sim.systems.base import System
from flashmoe_sim.systems.slot_bank import SlotBank
from flashmoe_sim.systems.table import parse_system
from flashmoe_sim.tune.across import across
from flashmoe_sim.tune.objective import Objective
from tests.systems.cases import case, served_by
from tests.tune.made import BANKS, drawn

DECODE = Objective()
PROFILED = ("static-profile:slots=4", "hot-cache:max_mib=80", "ktransformers:experts=4:strategy=frequency")


def test_every_ordered_pair() -> None:
    small = case(arch="gemma4")  # the slots are on the GPU
    of = [drawn(small, [range(size)] * 256, name=f"of {size}") for size in (4, 6, 12)]
    found = across(of, small, BANKS, objective=DECODE)
    assert [(one.tuned_on, one.scored_on) for one in found] == [
        ("of 4", "of 6"),
        ("of 4", "of 12"),
        ("of 6", "of 4"),
        ("of 6", "of 12"),
        ("of 12", "of 4"),
        ("of 12", "of 6"),
    ]
    slots = {one.tuned_on: one.chosen for one in found}
    assert slots == {"of 4": SlotBank(slots=4), "of 6": SlotBank(slots=6), "of 12": SlotBank(slots=12)}
    for one in found:
        assert one.seconds_more is not None
        assert one.with_profile is None
        smaller = one.tuned_on == "of 4" or one.scored_on == "of 12"
        assert (one.seconds_more > 0.5) if smaller else (one.seconds_more == pytest.approx(0, abs=1e-9))
        assert set(one.as_row()) == {column.name for column in TRANSFERS}
    assert found[0].sentence == (
        "slot-bank:slots=4, the choice of of 4, takes 77% longer on of 6 than slot-bank:slots=6, its own choice"
    )


@pytest.mark.parametrize("spec", PROFILED)
def test_a_profile_of_other_experts_is_worth_nothing(spec: str) -> None:
    on = case()
    small = replace(on, model=served_by(parse_system(spec), on.model))
    low, again = (drawn(small, [range(4)] * 128, name=name) for name in ("low", "again"))
    high = drawn(small, [range(8, 12)] * 128, name="high")
    system: System = parse_system(spec)
    same, other, *_ = across([low, again, high], small, [system], objective=DECODE)
    assert (same.seconds_more, same.with_profile) == (0.0, pytest.approx(0, abs=1e-9))
    assert other.seconds_more == 0.0
    assert other.with_profile > 0.05
    assert f"with the profile of low it takes {100 * other.with_profile:.0f}% longer" in other.sentence


def test_a_setting_that_does_not_run_there() -> None:
    small = case(arch="gemma4")  # the slots are on the GPU
    single = drawn(small, [range(4)] * 128, name="single")
    wide = drawn(small, [range(16)] * 128, name="wide", tokens=8)  # calls of up to 16 experts
    there, back = across([single, wide], small, BANKS, objective=DECODE)
    assert (there.chosen, there.own) == (SlotBank(slots=4), SlotBank(slots=16))
    assert there.seconds_more is None
    assert "slot-bank overflow" in there.why_not
    assert there.sentence == (f"slot-bank:slots=4, the choice of single, does not run on wide: {there.why_not}")
    assert back.seconds_more == pytest.approx(0, abs=1e-9)


def test_a_profile_that_is_given_is_no_traces() -> None:
    small = case(arch="gemma4")  # the slots are on the GPU
    of = [drawn(small, [range(4)] * 64, name=name) for name in ("one", "two")]
    for spec in ("static-profile:slots=4:profile=first-9", "ktransformers:experts=4"):
        assert [one.with_profile for one in across(of, small, [parse_system(spec)], objective=DECODE)] == [None, None]
