"""One answer has one speed for each setting, wherever it is said: terminal, page, JSON."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from flashmoe_sim.io.sections import Table, markdown
from flashmoe_sim.io.sizes import three
from flashmoe_sim.machines.compose import compose_parts
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.report.advice import sections
from flashmoe_sim.report.advice_json import document
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import NEAR
from flashmoe_sim.systems.resolve import parse_systems
from flashmoe_sim.tune import buy
from flashmoe_sim.tune.many import over_machines
from flashmoe_sim.tune.recommend import Purchase, Recommendation, recommend
from flashmoe_sim.tune.shop import OtherPart, parts_of
from flashmoe_sim.verbs.recommend import Recommend
from tests.systems.cases import case, workload

BESIDE = ("levers", "bought", "smaller", "enough", "transfers")  # of other machines, models and traces
PARTS = "rtx-3060 + ryzen-5600 + ddr4-3200x2 + 64GiB + nvme-gen3"
MODELS = ("gpt-oss-120b", "qwen3-30b-a3b", "glm-4.5-air", "gemma-4-26b-a4b")
MACHINES = ("rtx-3060", "rtx-4090", "m1-8", "m3-max-48", "m4-32", "m5-max-128", "gb10-128", "strix-halo-128")
MACHINES += (PARTS, "rtx-5070-ti + 96GiB")


def rows_of(value: Any) -> Iterator[dict[str, Any]]:
    """Every row with a setting and a speed."""
    if isinstance(value, dict):
        if value.get("setting") and value.get("tok_s"):
            yield value
        for one in value.values():
            yield from rows_of(one)
    elif isinstance(value, list):
        for one in value:
            yield from rows_of(one)


def check(found: Recommendation) -> None:
    """Every speed of a setting on this machine is the same number, and so is its interval where it has one."""
    answer = document(found)
    speeds, ends = defaultdict(set), defaultdict(set)
    for row in rows_of({name: value for name, value in answer.items() if name not in BESIDE}):
        speeds[row["setting"]].add(row["tok_s"])
        if row["tok_s_lo"] is not None:
            ends[row["setting"]].add((row["tok_s_lo"], row["tok_s_hi"]))
    assert speeds
    assert all(len(each) == 1 for each in (*speeds.values(), *ends.values()))
    best = found.best.best
    assert {row["before_tok_s"] for row in answer["levers"]} <= {best.tok_s}
    if found.bought is not None:
        assert answer["bought"]["present"]["tok_s"] == best.tok_s
    page = sections(found)
    assert f"{three(best.tok_s or 0.0)} tok/s" in markdown(page)
    for section in page:
        if section.title == "Other systems" and isinstance(section.parts[0], Table):
            first = section.parts[0].rows[0]
            assert (first[0], three(best.tok_s or 0.0)) == (best.system.spec, first[1])


@pytest.mark.parametrize("name", ["rtx-3090", "m4-32", "laptop-ddr4", "m1-8", "strix-halo-128"])
def test_of_a_small_model(name: str) -> None:
    of = case(name)
    check(recommend(workload(of.model, tokens=128), of, parse_systems("all")))


def test_with_parts_to_buy() -> None:
    machine = load_machine("rtx-3060 + ryzen-5600 + 32GiB + nvme-gen4")
    of = case()
    of = type(of)(of.model, machine)
    parts = Purchase(parts_of(machine.name))
    check(recommend(workload(of.model, tokens=128), of, parse_systems("placed,cpu"), purchase=parts))


@pytest.fixture(scope="module")
def large() -> tuple[Case, list[System]]:
    """A model of which a card with 8 GB holds a part."""
    on = case("rtx-3050 + ryzen-5600 + 32GiB + nvme-gen4", layers=range(2, 26), experts=128, top_k=4)
    return on, parse_systems("all-gpu,placed,cpu")


def test_of_several_machines_each_has_its_own_answer(large: tuple[Case, list[System]]) -> None:
    on, systems = large
    of = workload(on.model)
    machines = [load_machine(name) for name in ("rtx-3060", "m1-8", "rtx-4090")]
    cells = over_machines(of, on, systems, machines).cells
    for cell, machine in zip(cells, machines, strict=True):
        alone = recommend(of, Case(on.model, machine), systems).best.best
        assert (cell.found.system, cell.found.tok_s) == (alone.system, alone.tok_s)


def test_a_part_to_buy_has_the_speed_of_its_own_answer(
    large: tuple[Case, list[System]], monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = ("rtx-5060-ti-16gb", "rtx-5070-ti", "rtx-3090")
    monkeypatch.setattr(buy, "changes", lambda parts: {"gpu": [OtherPart("gpu", name) for name in cards]})
    on, systems = large
    of = workload(on.model)
    advice = recommend(of, on, systems, purchase=Purchase(parts_of(on.machine.name))).bought
    assert [row.parts.by_kind["gpu"].name for row in advice.rows] == list(cards)
    for row in advice.rows:
        alone = recommend(of, Case(on.model, compose_parts(row.parts)), systems).best.best
        assert row.found.system.name == alone.system.name
        assert row.found.tok_s == pytest.approx(alone.tok_s, rel=NEAR)


if __name__ == "__main__":  # forty answers: python -m tests.tune.test_one_answer
    for model in MODELS:
        for machine in MACHINES:
            check(Recommend(model=model, machine=machine).advise())
            print(model, machine, file=sys.stderr)
