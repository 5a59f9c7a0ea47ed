"""Prices of parts: the table, what a change costs, and what a budget leaves."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.compose import compose_parts
from flashmoe_sim.machines.rows import read_table
from flashmoe_sim.report.advice import _without_a_price
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.compare import Compared
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.tune.buy import Stock, buy
from flashmoe_sim.tune.change import Changed, WhatIf
from flashmoe_sim.tune.prices import Prices, launch_prices, read_prices
from flashmoe_sim.tune.shop import OtherPart, changes, parts_of
from tests.support import refused
from tests.systems.cases import model, workload

DESKTOP = parts_of("rx-7700-xt + ryzen-5600 + ddr4-3200x2 + 16GiB + nvme-gen3")
LARGE = model(layers=range(2, 26), experts=128, top_k=4)  # 12 GiB of experts
OF_LARGE = workload(LARGE)
CASE = Case(LARGE, compose_parts(DESKTOP))
TABLE = "Part,Price,Shop\nRX 7900 XTX,800,a\nrx-7700-xt,300,b\nRX 6800,280,b\n32GB,60,b\nDDR4-3600x2,90,a\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "prices.csv").write_text(TABLE)
    return tmp_path / "prices.csv"


def stock(prices: Prices | None = None) -> Stock:
    return Stock(WhatIf(OF_LARGE, CASE, [PlacedLayers()]), DESKTOP, prices)


def test_what_changes_cost(table: Path) -> None:
    prices = read_prices(table)
    assert prices.by_name["32GiB"] == 60
    assert prices.of([OtherPart("gpu", "rx-7900-xtx")], DESKTOP) == 800
    assert prices.of([OtherPart("gpu", "rx-7700-xt", n_gpus=2)], DESKTOP) == 300, "one more of the present card"
    assert prices.of([OtherPart("gpu", "rx-6800", beside=True), OtherPart("ram", ram_gib=32)], DESKTOP) == 340
    assert prices.of([OtherPart("gpu", "rx-6800"), OtherPart("ram", ram_gib=64)], DESKTOP) is None
    assert Prices(prices.by_name, 300).within([OtherPart("gpu", "rx-7700-xt", n_gpus=2)], DESKTOP)
    assert not Prices(prices.by_name, 299).within([OtherPart("gpu", "rx-7700-xt", n_gpus=2)], DESKTOP)
    another = Prices({"m4-max + 64GiB": 3000})
    assert another.of([OtherPart("chip", "m4-max", ram_gib=64)], parts_of("m4-pro + 24GiB")) == 3000


def test_a_second_card_is_one_of_the_same_maker_beside_the_first() -> None:
    beside = [one for one in changes(DESKTOP)["gpu"] if one.beside]
    after = beside[0].made(DESKTOP)
    assert {card.maker for card in after.cards} == {"amd"}
    assert len(after.cards) == 2
    assert "as a second GPU" in beside[0].in_words(DESKTOP)
    assert "gpu" not in changes(after), "a machine with unlike cards keeps them"


def test_a_budget_leaves_the_affordable_parts_by_price(table: Path) -> None:
    found = buy(stock(read_prices(table, 300)))
    prices = [row.price for row in found.rows]
    assert prices == sorted(prices)  # type: ignore[type-var]
    assert prices
    assert max(prices) <= 300  # type: ignore[type-var]
    fastest = max(found.rows, key=lambda row: row.found.tok_s or 0.0)
    assert f"Of the parts with a price, for at most 300, the fastest is {fastest.changes[0]}: " in found.sentence
    assert "other changes have no price in the table" in found.note
    richer = buy(stock(read_prices(table, 1000)))
    assert {row.changes for row in found.rows} <= {row.changes for row in richer.rows}


def test_a_target_within_a_budget(table: Path) -> None:
    def bought(target_tok_s: float, budget: float | None) -> list[tuple[float | None, int]]:
        prices = read_prices(table, budget)
        found = buy(stock(prices), target_tok_s)
        if not found.rows:
            assert "Nothing in the catalogue with a price" in found.sentence
        return [(row.price, len(row.kinds)) for row in found.rows]

    now = buy(stock()).present.tok_s
    cheap, rich = bought(1.5 * now, 400), bought(1.5 * now, None)
    assert rich
    assert all(price is not None and price <= 400 for price, _ in cheap)
    assert bought(1000 * now, 400) == []


def test_a_processor_for_other_ram_comes_with_it() -> None:
    """Also where the RAM is named; its price is then needed too."""
    change = OtherPart("cpu", "ryzen-8600g")
    for parts in (DESKTOP, parts_of("rx-7700-xt + ryzen-5600 + 16GiB + nvme-gen3")):
        assert change.new_memory(parts)
        assert change.in_words(parts).endswith("its board and DDR5-5200, 2 channels")
        assert "memory" not in change.made(parts).by_kind
        assert change in changes(parts)["cpu"]
        assert Prices({"ryzen-8600g": 300.0}).of([change], parts) is None
        assert Prices({"ryzen-8600g": 300.0, "16GiB": 60.0}).of([change], parts) == 360
    assert not OtherPart("cpu", "ryzen-5600").new_memory(DESKTOP)


def test_parts_with_a_price_that_are_no_change_are_named(tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text("part,price\nRX 7900 XTX,800\nm4-max + 64GiB,3000\n64GiB,100\ni5-12600k,300\n")
    found = buy(stock(read_prices(tmp_path / "prices.csv")))
    assert "m4-max + 64GiB, i5-12600k: not tried, since they do not go with this machine" in found.note
    assert "7900" not in found.note


def test_prices_at_launch() -> None:
    """Cards of the catalogue alone, each with its month and its source."""
    rows = [row for _, row in read_table(Path("flashmoe_sim/tune/launch_prices.csv"))[1]]
    assert all(re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", row["launched"]) for row in rows)
    assert all(row["source"].startswith("https://") for row in rows)
    prices = launch_prices(500)
    assert prices.at_launch
    assert prices.by_name["rtx-3060"] == 329
    assert prices.within([OtherPart("gpu", "rtx-4060-ti-16gb")], DESKTOP)
    assert not prices.within([OtherPart("gpu", "rtx-3090")], DESKTOP)


def test_an_old_card_is_named_that_fits_the_budget_only_used() -> None:
    """An RTX 3090 cost 1,499 in 2020; an RTX 4090, of 2022, is not taken for an old card."""
    prices = launch_prices(700)
    card = OtherPart("gpu", "rtx-3090")
    assert prices.perhaps_used(card, DESKTOP)
    assert not launch_prices(1500).perhaps_used(card, DESKTOP), "it is within the budget new"
    assert not launch_prices(500).perhaps_used(card, DESKTOP), "nobody sells it for a third"
    assert not launch_prices().perhaps_used(card, DESKTOP)
    assert not launch_prices(1000).perhaps_used(OtherPart("gpu", "rtx-4090"), DESKTOP)
    assert not Prices(prices.by_name, 700).perhaps_used(card, DESKTOP), "a table of yours has your prices"
    desktop = parts_of("rtx-3060 + ryzen-5600 + ddr4-3200x2 + 32GiB + nvme-gen3")
    small = Stock(WhatIf(OF_LARGE, Case(LARGE, compose_parts(desktop)), [PlacedLayers()]), desktop, prices)
    found = buy(small)
    assert found.used is not None
    assert found.used.price is not None
    assert found.used.price > 700
    assert found.used.found.tok_s > max(row.found.tok_s for row in found.rows)  # type: ignore[operator, type-var]
    begins = "Used, if you find it for at most 700, NVIDIA GeForce RTX 3090"
    assert re.fullmatch(rf"{begins}.* gives more: .*; it cost 1499 when it came out\.", found.if_used)
    assert buy(stock(launch_prices())).if_used == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("part,cost\nrtx-3090,5\n", "no column price; expected part,price with a part and its price in each row"),
        ("part,price\nrtx-309,5\n", "line 2: unknown part 'rtx-309'; did you mean "),
        ("part,price\nrtx-3090,cheap\n", "line 2: the price of rtx-3090 is 'cheap'; expected a number from 0"),
        ("part,price\nrtx-3090,-1\n", "line 2: the price of rtx-3090 is '-1'; expected a number from 0"),
        ("part,price\nrtx-3090,5\nRTX 3090 24GB,6\n", "line 3: rtx-3090 has a price already; give one"),
        ("part,price\n", "no rows under its header"),
    ],
)
def test_a_table_that_is_wrong(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text(text)
    with refused(BadInput, begins=f"{file}: {message}"):
        read_prices(file)


def test_a_memory_without_a_price_that_gives_more_is_named(table: Path) -> None:
    found = buy(stock(read_prices(table, 300)))
    fastest = max(row.found.tok_s or 0.0 for row in found.rows)
    more = replace(found.present, tok_s=2 * fastest)

    def gives(after: Compared) -> list[Changed]:
        changes = "128 GiB of RAM", "the host twice as fast"
        return [Changed(change, found.present, after, lambda: after) for change in changes]

    assert _without_a_price(found, gives(more)).startswith("More than any of them gives 128 GiB of RAM: ")
    assert _without_a_price(found, gives(more)[1:]) == ""
    assert _without_a_price(found, gives(found.present)) == ""
    assert _without_a_price(replace(found, prices=None), gives(more)) == ""
