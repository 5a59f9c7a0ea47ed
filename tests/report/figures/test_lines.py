"""Hit rates and speeds against the bank: every number of the frame is in the figure, whatever the frame is like."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from flashmoe_sim.ceilings.bottleneck import Floor
from flashmoe_sim.ceilings.speed import Ceiling, SpeedCeilings
from flashmoe_sim.ceilings.speed_verdict import SpeedVerdict
from flashmoe_sim.io.errors import Conflict
from flashmoe_sim.report.figures import hit_curves, save, speeds, styled
from flashmoe_sim.report.figures.style import labels, spread
from tests.report.figures.made import results, row, rows_of, svg, timed


def test_hit_rates_are_those_of_the_rows(tmp_path: Path) -> None:
    rates = {("lru", 16): 0.4, ("lru", 64): 0.7, ("fifo", 16): 0.35, ("fifo", 64): 0.6}
    table = results(*(row(bank, policy, hit_rate=rate) for (policy, bank), rate in rates.items()), row(16, "min"))
    chart = hit_curves(table)
    found = {(one["line"], int(one["bank"])): one["y"] for one in rows_of(chart, "line", "bank")}
    assert found == pytest.approx({key: 100 * rate for key, rate in rates.items()})
    assert [one["y"] for one in rows_of(chart, "top")] == [75, 75]
    drawn = svg(chart, tmp_path)
    for text in ("Hit rate against the bank: a trace", "hit rate, %", "bank, slots of each layer", "lru", "fifo"):
        assert f">{text}<" in drawn
    assert drawn.count(">min<") == 1
    assert ">16</tspan>" in drawn
    assert ">3.00 GiB</tspan>" in drawn
    assert (
        "At a bank of 64 slots, lru, which evicts the expert used longest ago, hits 70.0%, min (dashed)"
        in chart.description
    )


def test_names_stand_right_of_the_figure_of_a_single_bank_too() -> None:
    """Beside the point, a name's marker would be a second point."""
    for chart in (hit_curves(results(row(32), row(32, "fifo"))), speeds(results(timed(32), timed(32, "fifo")))):
        places = {one["line"]: one["x"] for one in rows_of(chart, "line", "x") if "bank" not in one}
        assert places == {"lru": 48, "fifo": 48}
        assert {one["x"] for one in rows_of(chart, "bank", "x")} == {32}


def test_the_subtitle_says_what_hits_most_without_hindsight() -> None:
    rates = {"lru": 0.7, "arc": 0.75, "fifo": 0.6, "static": 0.9}
    table = results(*(row(bank, policy, hit_rate=rate) for bank in (16, 64) for policy, rate in rates.items()))
    assert "hits 70.0%, arc most, 75.0%, " in hit_curves(table).description


def test_a_low_line_that_is_not_drawn_takes_no_height() -> None:
    rates = {f"lfu-decay:factor=0.{number}": 0.6 + number / 100 for number in range(1, 10)} | {"lru": 0.6, "fifo": 0.1}
    table = results(*(row(bank, policy, hit_rate=rate) for bank in (16, 64) for policy, rate in rates.items()))
    chart = hit_curves(table)
    assert "Not drawn: 5 others." in chart.description
    domains = {tuple(layer["encoding"]["y"]["scale"]["domain"]) for layer in chart.to_dict()["layer"]}
    assert domains == {(50, 100)}


@pytest.mark.parametrize(("width", "height"), [(640, 300), (320, 150), (238, 120), (900, 300)])
def test_a_narrow_figure_of_lines_is_lower(width: int, height: int) -> None:
    chart = hit_curves(results(row(16), row(32)))
    assert styled(chart, width=width).height == height
    assert styled(chart, width=width, height=200).height == 200


@pytest.mark.parametrize("width", [238, 320, 400])
def test_the_title_of_a_narrow_figure_ends_at_its_edge(width: int, tmp_path: Path) -> None:
    chart = styled(hit_curves(results(row(16), row(32), row(16, "fifo"), row(32, "fifo"))), width=width)
    save(chart, tmp_path / "a.png")
    drawn = imread(tmp_path / "a.png")
    assert (drawn[: len(drawn) // 2, -4:] == 1).all(), "letters at the right edge"


def test_a_curve_has_its_own_optimum_and_no_other_line() -> None:
    chart = hit_curves(results(row(4, "min", best_hit_rate=None, hit_rate=0.6), row(8, "min", best_hit_rate=None)))
    assert [one["y"] for one in rows_of(chart, "top")] == [60, 50]
    assert rows_of(chart, "line") == []


def test_five_hundred_banks_have_all_points_few_markers_and_round_ticks(tmp_path: Path) -> None:
    chart = hit_curves(results(*(row(bank, hit_rate=bank / 1000) for bank in range(1, 501))))
    assert len(rows_of(chart, "line", "bank")) == 500
    assert min(len(data) for data in chart.to_dict()["datasets"].values() if "bank" in data[0]) <= 20
    drawn = svg(chart, tmp_path)
    assert ">64</tspan>" in drawn
    assert ">63</tspan>" not in drawn


def test_one_row_and_one_bank(tmp_path: Path) -> None:
    assert ">lru<" in svg(hit_curves(results(row(32))), tmp_path)
    assert ">4<" in svg(hit_curves(results(row("4GiB", resident_bytes=None))), tmp_path)
    assert ">fifo<" in svg(speeds(results(timed(32), timed(32, "fifo", 5.0))), tmp_path)


def test_bytes_and_slots_have_their_axes(tmp_path: Path) -> None:
    assert ">bank of all layers, GiB<" in svg(hit_curves(results(row("2GiB"), row("4GiB"))), tmp_path)
    in_slots = results(row(8, scope="global"), row(16, scope="global"))
    assert ">bank, slots of each layer, in one bank<" in svg(hit_curves(in_slots), tmp_path)


def test_several_traces_have_panels_up_to_four(tmp_path: Path) -> None:
    rows = [row(bank, trace=f"trace {number}", trace_id=str(number)) for number in range(6) for bank in (16, 32)]
    chart = hit_curves(results(*rows))
    drawn = svg(styled(chart, width=360), tmp_path)
    assert ">Hit rate against the bank: the first 4 of 6<" in drawn
    assert all((f">trace {number}<" in drawn) == (number < 4) for number in range(6))
    with pytest.raises(Conflict, match="needs a single trace"):
        styled(chart, width="container")


def test_of_many_lines_the_best_and_lru_have_names(tmp_path: Path) -> None:
    policies = ["lru", *(f"p{number}" for number in range(9))]
    rows = [row(bank, policy, hit_rate=0.5 + place / 40) for place, policy in enumerate(policies) for bank in (16, 32)]
    chart = hit_curves(results(*rows))
    assert {one["line"] for one in rows_of(chart, "line")} == {"lru", "p4", "p5", "p6", "p7", "p8"}
    drawn = svg(chart, tmp_path)
    assert [policy for policy in policies if f">{policy}<" in drawn] == ["lru", "p4", "p5", "p6", "p7", "p8"]
    assert "Not drawn: 4 others." in chart.description
    assert '"bind": "legend"' in json.dumps(chart.to_dict())


def test_speeds_are_those_of_the_rows_with_their_intervals(tmp_path: Path) -> None:
    chart = speeds(results(timed(16), timed(32, tok_s=12.5), timed(64, tok_s=None)), ceilings=ceilings_of(all_hit=14))
    found = [(one["bank"], one["lo"], one["y"], one["hi"]) for one in rows_of(chart, "line", "lo")]
    assert found == [("16", 7, 8, 10), ("32", 11.5, 12.5, 14.5)]
    drawn = svg(chart, tmp_path)
    for text in ("Decode speed on a machine", "tokens a second", "all-hit 14.0", "lru"):
        assert f">{text}<" in drawn
    assert "bandwidth limit at 900" in chart.description
    assert "lru reaches 12.5 tok/s at a bank of 32" in chart.description


def test_labels_differ_and_places_stand_apart() -> None:
    shortened = labels(["n" * 40 + "a", "n" * 40 + "b", "short"], 10)
    assert list(shortened.values()) == ["nnnnnnn...", "nnn... (2)", "short"]
    assert spread([5, 5, 5], 2, 0, 10) == [5, 7, 9]
    assert spread([9, 10, 1], 3, 0, 10) == [7, 10, 1]
    assert spread([1, 2, 3], 10, 0, 10) == [0, 5, 10]


@pytest.mark.parametrize(
    ("size", "pixels"), [({}, 16), ({"width": 238, "font_size": 8}, 16 * 8 / 12), ({"height": 400}, 16)]
)
def test_names_at_the_ends_of_lines_do_not_overlap(size: dict[str, int], pixels: float) -> None:
    rows = [
        timed(bank, policy, 8 + 0.01 * place)
        for place, policy in enumerate(("lru", "fifo", "lfu"))
        for bank in (16, 32)
    ]
    chart = styled(speeds(results(*rows), ceilings=ceilings_of(all_hit=8.1)), **size)
    top = chart.to_dict()["layer"][0]["encoding"]["y"]["scale"]["domain"][1]
    places = sorted(one["y"] * chart.height / top for one in rows_of(chart, "ends_at"))
    assert len(places) == 4
    assert np.diff(places) == pytest.approx(pixels)


def ceilings_of(*, all_hit: float, parts: dict[str, float] | None = None) -> SpeedCeilings:
    speed = {"this": 10.0, "all-hit": all_hit, "bandwidth limit": 900.0}
    rows = [Ceiling(name, "", 0.5, 1, 1, tok_s, tok_s, tok_s, 1000 / tok_s) for name, tok_s in speed.items()]
    verdict = SpeedVerdict("read", "", 10, {}, 1, (), ())
    texts = ("a trace", "lru", "atomic", "layer", "32", "none", "a machine", "sync-install")
    return SpeedCeilings(*texts, verdict, tuple(rows), Floor("storage", 900, {}), parts or {}, ())
