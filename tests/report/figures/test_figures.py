"""The other figures: their data are what the program counts, their labels are in the file."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import polars
import pytest

from flashmoe_sim.io.errors import Incomplete, Malformed, Missing
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.report import figures
from flashmoe_sim.report.figures.save import has_font
from flashmoe_sim.report.figures.style import PALETTES
from flashmoe_sim.residency.curve import hit_curve
from flashmoe_sim.residency.workload import prepare
from flashmoe_sim.schema import COMPARED, LAYER_COLUMNS, frame
from flashmoe_sim.trace.statistics import inspect
from tests.report.figures.made import Row, results, row, rows_of, svg
from tests.report.figures.test_lines import ceilings_of
from tests.trace.strategies import trace_of

TRACE = trace_of(*((layer, [step % 3, 3 + step % 2]) for step in range(12) for layer in range(2)), name="a trace")


def test_a_waterfall_adds_up(tmp_path: Path) -> None:
    parts = {"dense": 30.0, "host": 0.0, "read": 60.0, "upload": 10.0}
    chart = figures.waterfall(ceilings_of(all_hit=25, parts=parts))
    found = [(one["part"], one["start"], one["end"]) for one in rows_of(chart, "part")]
    assert found == [
        ("dense part of the layers", 0, 30),
        ("waiting for reads", 30, 90),
        ("waiting for uploads or copies", 90, 100),
        ("if every request hit", 0, 40),
    ]
    drawn = svg(chart, tmp_path)
    for text in (
        "Where a token's time goes",
        "ms of a token",
        "waiting for reads",
        "60.0 ms (60%)",
        "40.0 ms",
        "waiting",
    ):
        assert f">{text}<" in drawn
    assert "100 ms; 60% of it: waiting for reads. If every request hit, it would take 40.0 ms." in chart.description
    with pytest.raises(Incomplete, match="a token takes no time"):
        figures.waterfall(ceilings_of(all_hit=25))


def test_the_host_has_a_colour_of_its_own_in_a_waterfall(tmp_path: Path) -> None:
    """Its lookups are a part of the time with all hits, its installs are not."""
    chart = figures.waterfall(ceilings_of(all_hit=25, parts={"dense": 30.0, "host": 10.0, "read": 60.0}))
    kinds = [one["kind"] for one in rows_of(chart, "part")]
    assert kinds == ["computing", "the host's own work", "waiting", "all hits"]
    drawn = svg(chart, tmp_path)
    assert all(f">{kind}<" in drawn for kind in kinds)
    assert len({colour for colour in PALETTES["light"].lines if f'fill="{colour}"' in drawn}) == len(kinds)


def layers(banks: int) -> polars.DataFrame:
    rows = [
        row(bank, layer=layer, requests=100, misses=60 - bank + layer, misses_per_token=0.5)
        for bank in range(1, banks + 1)
        for layer in range(3)
    ]
    return frame(rows, LAYER_COLUMNS)


@pytest.mark.parametrize("banks", [1, 3, 60])
def test_misses_by_layer_are_those_of_the_rows(tmp_path: Path, banks: int) -> None:
    table = layers(banks)
    chart = figures.misses_by_layer(table)
    shown = {one["bank"] for one in rows_of(chart, "missed")}
    assert len(shown) == min(banks, 24)
    asked = table.filter(polars.col("bank").is_in(shown))
    assert [one["missed"] for one in rows_of(chart, "missed")] == asked["misses"].to_list()
    drawn = svg(chart, tmp_path)
    for text in ("Misses by layer", "layer", "misses, % of a layer's requests"):
        assert f">{text}<" in drawn
    assert "At a bank of 1, layer 2 misses most: 61.0%" in chart.description


def test_popularity_has_the_share_of_the_statistics(tmp_path: Path) -> None:
    chart = figures.popularity(TRACE)
    tenth = next(one for one in rows_of(chart, "experts") if "layer" not in one and 0 < one["experts"] < 100)
    assert tenth["requests"] == pytest.approx(100 * inspect(TRACE).top_decile_share)
    assert len({one["layer"] for one in rows_of(chart, "layer")}) == 2
    assert f"takes {inspect(TRACE).top_decile_share:.1%} of the requests" in chart.description
    assert ">share of the requests, %<" in svg(chart, tmp_path)


def test_drift_leaves_out_the_first_part(tmp_path: Path) -> None:
    chart = figures.drift(prepare(TRACE, None), windows=4)
    assert [one["step"] for one in rows_of(chart, "what")] == [4, 7, 10] * 2
    drawn = svg(chart, tmp_path)
    assert ">share of the hot set, %<" in drawn
    assert ">that was hot in the first part<" in drawn


def test_reuse_distances_add_up_to_the_hit_curve(tmp_path: Path) -> None:
    counted = hit_curve(prepare(TRACE, None), Lru())
    chart = figures.reuse_distances(TRACE)
    line = {one["slots"]: one["share"] for one in rows_of(chart, "slots", "share") if "from" not in one}
    exact = {slots: line[slots] for slots in line if slots in counted}
    assert exact == pytest.approx({slots: 100 * counted[slots].total()["hit_rate"] for slots in exact})
    assert len(exact) > 1
    bars = [one["share"] for one in rows_of(chart, "from")]
    assert sum(bars) == pytest.approx(max(line.values()))
    assert ">slots of each layer that a request needs to hit<" in svg(chart, tmp_path)


def compared(name: str, tok_s: float | None = None, **changes: object) -> Row:
    ends = {} if tok_s is None else {"tok_s_lo": tok_s / 2, "tok_s_hi": tok_s * 2}
    return {"system": name, "setting": name, "tok_s": tok_s, "read_ms": 0.0, "cpu_ms": 0.0} | ends | changes


def test_systems_are_sorted_and_refusals_listed(tmp_path: Path) -> None:
    table = frame(
        [compared("slow", 2.0, read_ms=9.0), compared("no", why_not="needs a GPU"), compared("fast", 5.0)], COMPARED
    )
    chart = figures.systems(table)
    found = [(one["system"], one["lo"], one["tok_s"], one["hi"], one["waits"]) for one in rows_of(chart, "tok_s")]
    assert found == [("fast", 2.5, 5, 10, "nothing"), ("slow", 1, 2, 4, "reads")]
    drawn = svg(chart, tmp_path)
    for text in ("5.00 tok/s (2.50 to 10.0)", "no: does not run", "needs a GPU", "misses wait for", "reads"):
        assert f">{text}<" in drawn
    assert "fast is predicted to be the fastest: 5.00 tok/s (2.50 to 10.0). 1 of 3 do not run." in chart.description
    assert "None of them runs there." in figures.systems(table.filter(polars.col("tok_s").is_null())).description


def test_predictions_beside_measurements(tmp_path: Path) -> None:
    table = polars.DataFrame(
        {
            "measured_tok_s": [10.0, 10.0, None, 4.0],
            "tok_s": [20.0, 30.0, 5.0, 0.0],
            "tok_s_lo": [15.0, None, 1.0, 0.0],
            "tok_s_hi": [25.0, None, 9.0, 0.0],
            "group": ["ssd", "cpu", "ssd", "cpu"],
        }
    )
    chart = figures.predicted_measured(table)
    found = [(one["group"], one["measured"], one["lo"], one["predicted"], one["hi"]) for one in rows_of(chart, "group")]
    assert found == [("ssd", 10, 15, 20, 25), ("cpu", 10, 30, 30, 30)]
    drawn = svg(chart, tmp_path)
    for text in ("measured, tokens a second", "predicted, tokens a second", "ssd", "cpu"):
        assert f">{text}<" in drawn
    assert "1 of 2 predictions are within a factor of 2" in chart.description
    assert "off by a factor of 2.50" in chart.description


def test_files_themes_and_widths(tmp_path: Path) -> None:
    chart = figures.hit_curves(results(row(16), row(32)))
    png = figures.save(chart, tmp_path / "a.png").read_bytes()
    assert struct.unpack(">II", png[16:24])[0] == 2 * 640
    assert figures.save(chart, tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(Malformed, match=r"saved as \.png, \.svg, \.pdf or \.csv"):
        figures.save(chart, tmp_path / "a.html")
    dark = figures.styled(chart, theme="dark", width="container").to_dict()
    assert dark["width"] == "container"
    assert dark["config"]["title"]["color"] == PALETTES["dark"].text
    assert chart.to_dict()["config"] | {"view": {}} == figures.config("light") | {"view": {}}
    assert f'fill="{PALETTES["light"].text}"' in svg(chart, tmp_path)


def test_the_size_and_letters_of_a_paper(tmp_path: Path) -> None:
    """In points: 3.3 inches are 238, in a PDF and in an SVG, and all letters shrink alike."""
    chart = figures.hit_curves(results(row(16), row(32)))
    small = figures.styled(chart, width=238, height=120, title=False, font="Some Serif, serif", font_size=8)
    drawn = figures.save(small, tmp_path / "a.svg", in_points=True).read_text()
    size = re.match(r'<svg [^>]*?width="([\d.]+)pt" height="[\d.]+pt" viewBox="0 0 ([\d.]+) ', drawn)
    assert size
    assert size[1] == size[2]
    assert b"/MediaBox [0 0 238 " in figures.save(small, tmp_path / "a.pdf").read_bytes()
    assert "Some Serif" in drawn
    assert "hit rate, %" in drawn
    title = chart.to_dict()["title"]["text"]
    assert " ".join(title if isinstance(title, list) else [title]) in svg(chart, tmp_path)
    assert "title" not in small.to_dict()
    before, after = figures.config("light"), small.to_dict()["config"]
    assert after["axis"]["labelFontSize"] == pytest.approx(before["axis"]["labelFontSize"] * 8 / 12)
    assert after["title"]["fontSize"] == pytest.approx(before["title"]["fontSize"] * 8 / 12)
    assert not has_font("Some Serif That Nobody Has")


def test_what_is_drawn_as_csv(tmp_path: Path) -> None:
    """The points of the line, and of several traces the panel that each is in."""
    drawn = polars.read_csv(figures.save(figures.hit_curves(results(row(16), row(32))), tmp_path / "a.csv"))
    points = drawn.filter((polars.col("mark") == "point") & polars.col("bank").is_not_null())
    assert points["bank"].to_list() == [16, 32]
    both = figures.hit_curves(results(*(row(bank, trace=name) for name in "ab" for bank in (16, 32))))
    assert set(polars.read_csv(figures.save(both, tmp_path / "b.csv"))["panel"]) == {"a", "b"}


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "altair", None)
    with pytest.raises(Missing, match=r"need the package altair: pip install '\.\[report\]'"):
        figures.hit_curves(results(row(16)))


def test_a_picture_without_its_font_is_refused(tmp_path: Path) -> None:
    """A converter leaves out a text in a font that is not there, in silence."""
    chart = figures.hit_curves(results(row(16), row(32)))
    absent = figures.styled(chart, font="No Such Font")
    for kind in ("png", "pdf"):
        with pytest.raises(Missing, match="font 'No Such Font': is not installed"):
            figures.save(absent, tmp_path / f"a.{kind}")
        assert not (tmp_path / f"a.{kind}").exists()
        figures.save(figures.styled(chart, font="No Such Font, sans-serif"), tmp_path / f"b.{kind}")
    figures.save(absent, tmp_path / "a.svg")
