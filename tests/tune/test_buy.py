"""What to buy: the fewest changed parts that reach a speed, the next better ones, many machines and many models."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest

from flashmoe_sim.geometry.named import named_model
from flashmoe_sim.io.errors import OutOfRange, UnknownName, Unsupported
from flashmoe_sim.machines.compose import compose_parts
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.parts import catalogue
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.all_gpu import AllGpu
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import NEAR, at_setting
from flashmoe_sim.systems.cpu import Cpu
from flashmoe_sim.systems.hot_cache import HotCache
from flashmoe_sim.systems.moe_cache import MoeCache
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.systems.slot_bank import SlotBank
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.tune import buy as buy_module
from flashmoe_sim.tune import change
from flashmoe_sim.tune.buy import Advice, Stock, at_least, buy, least
from flashmoe_sim.tune.change import WhatIf
from flashmoe_sim.tune.many import over_machines, over_models
from flashmoe_sim.tune.recommend import recommend
from flashmoe_sim.tune.shop import OtherPart, changes, note_on, parts_of
from tests.systems.cases import model, workload

LARGE = model(layers=range(2, 26), experts=128, top_k=4)  # 12 GiB of experts
OF_LARGE = workload(LARGE)
DESKTOP = "rtx-3050 + ryzen-5600 + ddr4-3200x2 + 16GiB + pcie4x16 + nvme-gen3"
SYSTEMS: list[System] = [AllGpu(), Cpu(), SlotBank()]
TINY = {
    "gpu": [OtherPart("gpu", "rtx-4060"), OtherPart("gpu", "rtx-4060-ti-16gb"), OtherPart("gpu", "rtx-3060")],
    "ram": [OtherPart("ram", ram_gib=32), OtherPart("ram", ram_gib=64)],
    "storage": [OtherPart("storage", "nvme-gen4"), OtherPart("storage", "nvme-gen5"), OtherPart("storage", "sata-ssd")],
}


def a_stock(systems: list[System] | None = None, machine: str = DESKTOP) -> Stock:
    parts = parts_of(machine)
    return Stock(WhatIf(OF_LARGE, Case(LARGE, compose_parts(parts)), systems or SYSTEMS), parts)


def bought(target_tok_s: float, systems: list[System] | None = None, machine: str = DESKTOP) -> Advice:
    return buy(a_stock(systems, machine), target_tok_s)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buy_module, "changes", lambda parts: TINY)


def every_speed(stock: Stock, number: int) -> dict[tuple[OtherPart, ...], float]:
    """All sets of so many changes of the tiny catalogue with their speeds, none left out."""
    sets = [one for kinds in combinations(TINY, number) for one in product(*(TINY[kind] for kind in kinds))]
    stock.machines |= {one: compose_parts(stock.parts_with(one)) for one in sets}
    return {one: stock.speed(one) for one in sets}


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("number", [1, 2])
def test_the_fewest_changes_are_those_of_an_exhaustive_search(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    by_speed = "flashmoe_sim.tune.change.first"  # two changes are wanted, and proof of a streamed bank there is not
    monkeypatch.setattr(by_speed, lambda each, case, objective: max(each, key=lambda one: one.tok_s or 0.0))
    systems: list[System] = [Cpu(), SlotBank()]
    stock = a_stock(systems)
    speeds = every_speed(stock, number)
    fewer = every_speed(stock, number - 1) if number > 1 else {(): stock.what_if.now.tok_s or 0.0}
    target = (max(fewer.values()) + max(speeds.values())) / 2
    assert max(fewer.values()) < target
    reaching = [one for one, speed in speeds.items() if speed >= target]
    better = at_least([stock.machines[one] for one in reaching])
    lines = [stock.parts_with(one).by_kind["gpu"].compute for one in reaching]
    strictly = better & ~better.T & np.array([[a == b for b in lines] for a in lines])
    wanted = {" + ".join(stock.parts_with(one).names) for i, one in enumerate(reaching) if not strictly[i].any()}
    found = bought(target, systems)
    assert {" + ".join(one.parts.names) for one in found.rows} == wanted
    assert all(len(one.kinds) == len(set(one.kinds)) == len(one.changes) == number for one in found.rows)
    assert all((one.found.tok_s or 0.0) >= target for one in found.rows)
    order = [one.order for one in found.rows]
    assert order == sorted(order)
    assert found.fastest is None


@pytest.mark.usefixtures("tiny")
def test_no_machine_is_slower_than_a_worse_one() -> None:
    stock = a_stock()
    speeds = every_speed(stock, 1) | every_speed(stock, 2)
    sets = list(speeds)
    better = at_least([stock.machines[one] for one in sets])
    for i, j in np.argwhere(better):
        assert speeds[sets[i]] >= (1 - NEAR) * speeds[sets[j]]


@pytest.mark.usefixtures("tiny")
def test_a_card_that_holds_everything_is_one_change() -> None:
    parts = parts_of(DESKTOP)
    larger = compose_parts(OtherPart("gpu", "rtx-4060-ti-16gb").made(parts))
    speed = at_setting(OF_LARGE, Case(LARGE, larger), AllGpu()).tok_s
    found = bought(0.99 * speed)
    (one,) = found.rows
    assert one.changes == ("NVIDIA GeForce RTX 4060 Ti 16 GB",)
    assert (one.found.system, one.found.tok_s) == (AllGpu(), speed)
    assert one.as_row()["machine"].startswith("rtx-4060-ti-16gb + ryzen-5600")
    assert "one change is enough" in found.sentence


@pytest.mark.usefixtures("tiny")
def test_a_speed_that_nothing_reaches() -> None:
    stock = a_stock()
    found = bought(1e6)
    assert found.rows == ()
    every = every_speed(stock, 1) | every_speed(stock, 2) | every_speed(stock, 3)
    assert found.fastest.found.tok_s == pytest.approx(max(every.values()), rel=NEAR)
    assert found.sentence.startswith("Nothing in the catalogue reaches 1,000,000 tok/s; the fastest is")


def test_only_the_best_card_is_asked_for_a_speed_that_nothing_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the best of each generation."""
    cards = [OtherPart("gpu", name) for name in ("rtx-3060", "rtx-4060-ti-16gb", "rtx-5090")]
    monkeypatch.setattr(buy_module, "changes", lambda parts: {"gpu": cards})
    stock = a_stock()
    assert stock.least_reaching(stock.sets(1, stock.options), 1e6, None) == []
    assert list(stock.tried) == [(cards[-1],)]


def test_nothing_to_buy_below_the_present_speed() -> None:
    now = bought(0.001)
    assert now.enough
    assert (now.rows, now.fastest, now.n_machines) == ((), None, 0)
    assert now.sentence.startswith("For 0.001 tok/s there is nothing to buy: the machine has")
    assert now.present.tok_s is not None
    assert "it may be less" in bought(now.present.tok_s).sentence


@pytest.mark.parametrize("target", [0, -1, float("nan"), float("inf")])
def test_a_target_that_is_no_speed(target: float) -> None:
    with pytest.raises(OutOfRange, match="tok/s; expected a speed above 0, such as 10"):
        bought(target)


def test_machines_without_parts() -> None:
    with pytest.raises(Unsupported, match="'rtx-3060'"):
        parts_of("rtx-3060")
    with pytest.raises(UnknownName, match="unknown part 'rtx-3061'; did you mean"):
        parts_of("rtx-3061 + ryzen-5600 + 32GiB")


def test_what_goes_together() -> None:
    stock = a_stock()
    made = [stock.parts_with(one) for number in (1, 2) for one in stock.sets(number, stock.next_better())]
    made += [stock.parts_with(one) for one in stock.sets(1, stock.options)]
    named = [parts for parts in made if "memory" in parts.by_kind]
    assert {parts.by_kind["memory"].name.partition("-")[0] for parts in named} == {"ddr4"}
    assert {parts.ram_gib for parts in named} == {16, 32, 48, 64, 96, 128}  # two channels with two modules of 32
    others = [catalogue()[parts.by_kind["cpu"].name].memory for parts in made if parts not in named]
    assert others
    assert not [memory for memory in others if memory.startswith("ddr4")], "a new board has its own RAM"
    assert not [one for one in made if one.by_kind["storage"].name == "sata-ssd"]  # a slower drive is no purchase
    stock = a_stock()
    platform = {"cpu": [OtherPart("cpu", "ryzen-7600")], "memory": [OtherPart("memory", "ddr5-5200x2")]}
    assert stock.sets(1, platform) == [(platform["cpu"][0],)], "DDR5 alone does not fit"
    assert len(stock.sets(2, platform)) == 1


def test_what_can_be_changed() -> None:
    assert list(changes(parts_of("m4 + 32GiB"))) == ["chip"]
    assert OtherPart("chip", "m4-pro", ram_gib=48) in changes(parts_of("m4 + 32GiB"))["chip"]
    assert OtherPart("chip", "m4", ram_gib=48) not in changes(parts_of("m4 + 32GiB"))["chip"]
    assert list(changes(parts_of("strix-halo + 64GiB + nvme-gen4"))) == ["chip", "storage"]
    assert list(changes(parts_of("ryzen-5600 + 32GiB"))) == ["gpu", "ram", "memory", "cpu"]
    assert list(changes(parts_of("ryzen-5800h + 16GiB + nvme-gen3"))) == ["storage"]
    assert list(changes(parts_of("rtx-3060-laptop + ddr4-3200x2 + 16GiB + nvme-gen3"))) == ["ram", "storage"]
    assert changes(parts_of("snapdragon-8-elite + 16GiB + ufs-4.0")) == {}
    second = OtherPart("gpu", "rtx-3090", n_gpus=2)
    parts = parts_of("rtx-3090 + ryzen-5600 + 32GiB")
    assert second in changes(parts)["gpu"]
    assert second.in_words(parts) == "2x NVIDIA GeForce RTX 3090"
    newer = OtherPart("cpu", "ryzen-7600")
    assert newer.in_words(parts) == "AMD Ryzen 5 7600, its board and DDR5-5200, 2 channels"
    same = parts_of("rtx-3090 + ryzen-5600 + ddr4-3200x2 + 32GiB")
    server = OtherPart("cpu", "epyc-7302")
    assert server.in_words(same) == "AMD EPYC 7302 and its board"
    assert not [part.name for part in catalogue().values() if part.kind == "chip" and not part.sold_gib]


def test_what_is_not_changed_is_said() -> None:
    assert note_on(parts_of(DESKTOP)) == ""
    assert "add storage (such as nvme-gen4) and a CPU or memory" in note_on(parts_of("rtx-3060 + 32GiB"))
    assert "a Mac's memory and SSD are soldered in" in note_on(parts_of("m4 + 32GiB"))
    assert "only storage is changed" in note_on(parts_of("ryzen-5800h + 16GiB + nvme-gen3"))


def test_a_processor_with_fewer_cores_is_no_better_one() -> None:
    """It may have the faster memory: experts of two or three bits wait for its cores."""
    few, many = (compose_parts(parts_of(f"{cpu} + 32GiB")) for cpu in ("ryzen-7600", "ryzen-5950x"))
    assert few.cpu.weights_gb_s.value > many.cpu.weights_gb_s.value
    assert (few.cpu_cores, many.cpu_cores) == (6, 16)
    assert not at_least([few, many])[[0, 1], [1, 0]].any()


@pytest.mark.usefixtures("tiny")
def test_the_next_better_parts_gain_one_after_another() -> None:
    found = buy(a_stock())
    assert {row.kinds for row in found.rows} | {(kind,) for kind in found.useless} == {(kind,) for kind in TINY}
    for kind in TINY:
        speeds = [row.found.tok_s or 0.0 for row in found.rows if row.kinds == (kind,)]
        assert all(b > a for a, b in zip([found.present.tok_s or 0.0, *speeds], speeds, strict=False))
    assert found.evaluations > found.n_machines > 0


OWNED = "rtx-3060 + ryzen-5600 + 64GiB + nvme-gen3"


@pytest.fixture(scope="module")
def owned() -> tuple[Workload, Case]:
    """What the owner of a card with 12 GB asks, of one recorded trace."""
    model = named_model("gpt-oss-120b")
    return prepare(load_trace("gpt-oss-120b"), model), Case(model, compose_parts(parts_of(OWNED)))


def test_the_cards_that_people_buy_are_among_the_next_better(owned: tuple[Workload, Case]) -> None:
    found = buy(Stock(WhatIf(*owned, [HotCache(), PlacedLayers()]), parts_of(OWNED)))
    names = [row.parts.by_kind["gpu"].name for row in found.rows if row.kinds == ("gpu",)]
    assert {"rtx-3090", "rtx-4060-ti-16gb", "rtx-5060-ti-16gb", "rtx-5070-ti", "rtx-5090", "p40"} <= set(names)
    forms = [catalogue()[name].form for name in names]
    assert forms == sorted(forms, key=bool)
    desktop = [row.found.tok_s or 0.0 for row in found.rows if row.kinds == ("gpu",) and not row.order[0]]
    assert desktop == sorted(desktop)
    assert [row.parts.n_gpus for row in found.rows if row.parts.by_kind["gpu"].name == "rtx-3060"].count(2) == 1
    assert "ddr4-3600x2" in [row.parts.by_kind["memory"].name for row in found.rows if row.kinds == ("memory",)]


def test_a_target_is_reached_by_a_card_of_each_generation(owned: tuple[Workload, Case]) -> None:
    found = buy(Stock(WhatIf(*owned, [HotCache()]), parts_of(OWNED)), 30)
    names = [row.parts.by_kind["gpu"].name for row in found.rows]
    assert "rtx-3090" in names
    assert len({catalogue()[name].compute for name in names if not catalogue()[name].form}) >= 3
    assert not [row for row in found.rows if row.parts.by_kind["cpu"].form == "laptop"]


@pytest.mark.parametrize("seed", range(20))
def test_the_least_that_is_enough(seed: int) -> None:
    """Against asking all: points of a plane, enough from some of them upward; equal points count once."""
    draws = np.random.default_rng(seed)
    points = draws.integers(0, 6, (40, 2))
    better = (points[:, None, :] >= points[None, :, :]).all(axis=2)
    enough = better[:, draws.integers(0, 40, draws.integers(0, 4))].any(axis=1)
    asked: list[int] = []

    def ask(item: int) -> bool:
        asked.append(item)
        return bool(enough[item])

    found = least(better, ask)
    strictly = better & ~better.T
    wanted = {tuple(points[i]) for i in np.flatnonzero(enough) if not (strictly[i] & enough).any()}
    assert sorted(tuple(points[i]) for i in found) == sorted(wanted)
    assert len(asked) == len(set(asked)) < 30


def test_many_machines_and_many_models() -> None:
    names = ["rtx-4090", "rtx-3060", "m1-8"]
    machines = [load_machine(name) for name in names]
    found = over_machines(OF_LARGE, Case(LARGE, machines[0]), [AllGpu(), SlotBank()], machines)
    assert [cell.machine for cell in found.cells] == names
    assert found.cells[0].found.system == AllGpu()
    here = at_setting(OF_LARGE, Case(LARGE, machines[1]), found.cells[1].found.system)
    assert (found.cells[1].found.tok_s, found.cells[1].found.tok_s_lo) == (here.tok_s, here.tok_s_lo)
    (none,) = over_machines(OF_LARGE, Case(LARGE, machines[0]), [AllGpu()], [machines[2]]).cells
    assert none.as_row()["why_not"].startswith("takes")
    assert none.as_row()["tok_s"] is None
    speeds = [cell.found.tok_s or 0.0 for cell in found.fastest]
    assert speeds == sorted(speeds, reverse=True)
    small = model()
    cells = over_models([Case(LARGE, machines[0]), Case(small, machines[0])], [AllGpu()]).cells
    assert [cell.model for cell in cells] == [LARGE.name, small.name]
    assert all(cell.found.system == AllGpu() and cell.found.tok_s_lo for cell in cells)


def test_more_ram_is_as_fast_as_the_ram_that_is_guessed_now() -> None:
    """A size says what memory people have with it; who adds some has the same as before."""
    parts = parts_of("rtx-3060 + 32GiB")
    more = OtherPart("ram", ram_gib=384).made(parts)
    now, then = (compose_parts(one).memory for one in (parts, more))
    assert (then.bandwidth_gb_s.value, then.ram_gib.value) == (now.bandwidth_gb_s.value, 384)
    assert load_machine("rtx-3060 + 384GiB").memory.bandwidth_gb_s.value > now.bandwidth_gb_s.value


def test_what_to_buy_names_what_an_answer_for_that_machine_names_first(owned: tuple[Workload, Case]) -> None:
    of, case = owned
    systems: list[System] = [PlacedLayers(), MoeCache()]
    what_if, named = WhatIf(of, case, systems), set[str]()
    for memory in ("ddr4-2400x2", "ddr4-3200x2", "ddr5-5600x2", "ddr5-6400x2"):
        machine = load_machine(f"rtx-4070 + {memory} + 64GiB + nvme-gen4")
        answer = recommend(of, replace(case, machine=machine), systems)
        named.add(answer.best.best.system.name)
        assert what_if.fastest(machine).system.name == answer.best.best.system.name
    assert named == {"placed", "moe-cache"}


def test_few_replays_are_kept_at_once(owned: tuple[Workload, Case], monkeypatch: pytest.MonkeyPatch) -> None:
    def bought() -> tuple[WhatIf, list[float | None]]:
        what_if = WhatIf(*owned, [HotCache()])
        return what_if, [row.found.tok_s for row in buy(Stock(what_if, parts_of(OWNED)), 30).rows]

    kept_all, speeds = bought()
    monkeypatch.setattr(change, "MOST_KEPT", 2)
    kept_two, again = bought()
    assert speeds
    assert again == speeds
    assert len(kept_all.replays) > len(kept_two.replays) == 2
