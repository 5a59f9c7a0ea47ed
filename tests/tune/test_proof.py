"""What an answer names first: what anybody can install, unless another engine is shown to be faster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flashmoe_sim.machines.belief import Whose, error_draws
from flashmoe_sim.systems.all_gpu import AllGpu
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.big_moe_on_edge import BigMoeOnEdge
from flashmoe_sim.systems.bounded_insert import BoundedInsert
from flashmoe_sim.systems.cached import Cached
from flashmoe_sim.systems.compare import Compared
from flashmoe_sim.systems.cpu import Cpu
from flashmoe_sim.systems.crow import Crow
from flashmoe_sim.systems.hot_cache import HotCache
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.systems.placed_ik import PlacedIk
from flashmoe_sim.systems.slot_bank import SlotBank
from flashmoe_sim.systems.static_profile import StaticProfile
from flashmoe_sim.tune import proof
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.proof import LEAST_SPEEDS, SURE, first, pick, runs_there, wins
from tests.systems.cases import case

SHOWN = {"arch": "qwen35moe", "api": "cuda", "rows": 3, "machines": 2, "median_error": 0.1, "median_ratio": 1.0}


@pytest.fixture
def speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three published speeds of hot-cache and crow with qwen35moe on CUDA."""
    own = {"rows": 5, "machines": 3, "median_error": 0.1, "within_2": 1.0, "of": [SHOWN]}
    table: dict[str, Any] = {"all": {"rows": 100, "median_error": 0.3}, "hot-cache": own, "crow": own}
    monkeypatch.setattr(proof, "checked", lambda: {"published": table, "fitted": {}})


def at(on: Case, system: System, tok_s: float | None) -> Compared:
    """A speed with the error of its engine alone."""
    if tok_s is None:
        return Compared(system, "too large")
    error = error_draws(on.machine, Whose(system.name, system.program, system.spec))
    return Compared(system, gpu_bytes=1, ram_bytes=1, tok_s=tok_s, draws=tok_s * np.exp(error))


def chosen(on: Case, *each: tuple[System, float | None]) -> str | None:
    found = first([at(on, system, tok_s) for system, tok_s in each], on, Objective())
    return None if found is None else found.system.name


PLAIN = (PlacedLayers(cpu_layers=2), 10.0)


@pytest.mark.parametrize(
    ("others", "name"),
    [
        ([(BoundedInsert(slots=4), 30.0)], "placed"),  # unproven
        ([(HotCache(max_mib=99), 30.0)], "hot-cache"),
        ([(HotCache(max_mib=99), 20.0)], "hot-cache"),
        ([(HotCache(max_mib=99), 13.0)], "placed"),  # faster in three of four draws
        ([(HotCache(max_mib=99), 30.0), (BoundedInsert(slots=4), 90.0)], "hot-cache"),
        ([(SlotBank(slots=4, top_k=1), 90.0)], "placed"),
        ([(PlacedIk(cpu_layers=2), 11.0)], "placed"),  # a fork, too
        ([(PlacedIk(cpu_layers=2), 90.0)], "placed"),
        ([(PlacedIk(cpu_layers=2), 10.1)], "placed"),
        ([(HotCache(max_mib=99), None)], "placed"),
        ([(Cached(cache_mib=99), 12.0)], "placed"),  # llama.cpp's own, which a slow link may turn round
        ([(Cached(cache_mib=99), 30.0)], "cached"),
        ([(Cached(cache_mib=99), 13.0), (HotCache(max_mib=99), 30.0)], "hot-cache"),
    ],
)
@pytest.mark.usefixtures("speeds")
def test_proof_comes_before_speed(others: list[tuple[System, float | None]], name: str) -> None:
    assert chosen(case(), PLAIN, *others) == name


def test_within_a_tie_a_fork_never_leads() -> None:
    """However much less memory it uses."""
    on = case()
    main_line = replace(at(on, PLAIN[0], 10.0), gpu_bytes=9)
    forks = [at(on, PlacedIk(cpu_layers=2), 10.2), at(on, HotCache(max_mib=99), 10.2)]
    assert pick([*forks, main_line], Objective()) is main_line
    assert pick([at(on, HotCache(max_mib=99), 10.4), main_line], Objective()) is not main_line


@pytest.mark.usefixtures("speeds")
def test_speeds_count_for_their_architecture_and_kind_of_gpu_alone() -> None:
    fork = (HotCache(max_mib=99), 30.0)
    assert chosen(case(arch="gpt-oss"), PLAIN, fork) == "placed"
    on = case()
    assert chosen(replace(on, machine=replace(on.machine, api="rocm")), PLAIN, fork) == "placed"


@pytest.mark.usefixtures("speeds")
def test_an_engine_of_one_operating_system_leads_only_where_that_is_known() -> None:
    on = case(arch="deepseek4")
    there = replace(on, machine=replace(on.machine, os="windows"))
    assert not runs_there(Crow(), on.machine)
    assert runs_there(Crow(), there.machine)
    shown = {**SHOWN, "arch": "deepseek4"}
    proof.checked()["published"]["crow"]["of"].append(shown)
    fork = (Crow(slots=8), 30.0)
    assert chosen(on, PLAIN, fork) == "placed"
    assert chosen(there, PLAIN, fork) == "crow"


@pytest.mark.usefixtures("speeds")
def test_without_proof_something_is_still_named() -> None:
    on = case()
    assert chosen(on, (StaticProfile(slots=4), 30.0), (BigMoeOnEdge(cache_mib=9), 8.0)) == "static-profile"
    assert chosen(on, (SlotBank(slots=4, top_k=1), 30.0)) == "slot-bank"
    assert chosen(on, (Cpu(), None)) is None


@pytest.mark.parametrize(
    ("cpu", "gpu", "name"),
    [(11.0, 10.0, "all-gpu"), (9.9, 10.0, "all-gpu"), (40.0, 10.0, "cpu"), (1.0, 10.0, "all-gpu"), (11.0, None, "cpu")],
)
def test_the_cpu_alone_leads_only_where_it_is_surely_faster_than_the_gpu(
    cpu: float, gpu: float | None, name: str
) -> None:
    on = case("m4-max-128")
    assert chosen(on, (Cpu(), cpu), (AllGpu(), gpu)) == name


def test_a_gpu_setting_that_may_not_fit_does_not_keep_the_cpu_from_the_lead() -> None:
    on = case("m4-max-128")
    tight = replace(at(on, AllGpu(), 10.0), tight=True)
    found = first([at(on, Cpu(), 9.0), tight], on, Objective())
    assert found.system.name == "cpu"


def test_a_fork_leads_exactly_where_it_wins_nine_of_ten_draws() -> None:
    on = case()
    plain = at(on, *PLAIN)
    shares = [wins(at(on, HotCache(max_mib=99), tok_s), plain, Objective()) for tok_s in (5.0, 10.0, 15.0, 20.0, 40.0)]
    assert shares == sorted(shares)
    assert shares[1] == pytest.approx(0.5, abs=0.05)
    assert wins(plain, plain, Objective()) == 0.5
    assert shares[0] < 1 - SURE < SURE < shares[-1]


def test_one_speed_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do two of another architecture."""
    one = {**SHOWN, "rows": LEAST_SPEEDS - 1, "machines": 1}
    own = {"rows": 9, "machines": 3, "median_error": 0.1, "within_2": 1.0, "of": [one]}
    monkeypatch.setattr(proof, "checked", lambda: {"published": {"all": {}, "hot-cache": own}, "fitted": {}})
    assert chosen(case(), PLAIN, (HotCache(max_mib=99), 40.0)) == "placed"
