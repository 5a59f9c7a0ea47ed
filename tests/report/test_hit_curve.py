"""The picture of a sweep: a PNG for every kind of rows there can be."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from flashmoe_sim.io.sizes import parse_size
from flashmoe_sim.report import hit_curve
from flashmoe_sim.schema import RESULT_COLUMNS

PNG = b"\x89PNG\r\n\x1a\n"


def row(bank: str, policy: str = "lru", **changes: Any) -> dict[str, Any]:
    known = {
        "bank": bank,
        "policy": policy,
        "trace": "a trace",
        "trace_id": "1",
        "contract": "runtime",
        "prefetch": "none",
        "scope": "layer",
    }
    known |= {"hit_rate": 0.5, "best_hit_rate": 0.75, "bytes_read": 4 << 30, "best_bytes_per_token": 1 << 30}
    known |= {"tokens": 2, "misses": 7, "prefetch_issued": 0, "prefetch_bytes": 0}
    known |= {"bank_slots": int(bank)} if bank.isdigit() else {"bank_bytes": parse_size(bank)}
    return dict.fromkeys(column.name for column in RESULT_COLUMNS) | known | changes


def on_machine(bank: str, machine: str, tok_s: float | None, **changes: Any) -> dict[str, Any]:
    lo, hi = (None, None) if tok_s is None else (tok_s - 1, tok_s + 2)
    timed = {"machine": machine, "execution": "parallel-install", "tok_s": tok_s, "tok_s_lo": lo, "tok_s_hi": hi}
    return row(bank, **timed | changes)


def size(path: Path) -> tuple[int, int]:
    content = path.read_bytes()
    assert content.startswith(PNG)
    width, height = struct.unpack(">II", content[16:24])
    return width, height


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were saved."""
    saved: list[Figure] = []
    save = Figure.savefig

    def savefig(figure: Figure, *arguments: Any, **options: Any) -> None:
        saved.append(figure)
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return saved


@pytest.mark.parametrize(
    "rows",
    [
        [row("16"), row("32"), row("16", "fifo"), row("32", "fifo")],
        [row("16")],
        [row("4GiB"), row("8GiB")],
        [row("16", bytes_read=None, prefetch_bytes=None, best_bytes_per_token=None)],
        [row("16", best_hit_rate=None, best_bytes_per_token=None)],
        [row("16", bytes_read=0, best_bytes_per_token=0.0)],
        [row("16", tokens=0)],
        [row("16", f"policy-{n}") for n in range(25)],
        [on_machine("16", "m1-8", None), on_machine("32", "m1-8", None)],
        [row("16", r"hot-profile:profile=$\foo$.json", trace=r"a $\foo$ b", contract="$x^", scope="global")],
    ],
    ids=[
        "two",
        "one",
        "bytes",
        "no model",
        "no ceiling",
        "nothing read",
        "no tokens",
        "many policies",
        "no machine that it fits",
        "dollars",
    ],
)
def test_a_picture_of(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    hit_curve.draw(rows, tmp_path / "a.png")
    assert min(size(tmp_path / "a.png")) > 400


def test_lines_labels_and_units(tmp_path: Path, figures: list[Figure]) -> None:
    rows = [row("16", hit_rate=0.25), row("32"), row("16", "min", contract="atomic"), row("32", "min")]
    hit_curve.draw(rows, tmp_path / "a.png")
    left, right = figures[0].axes
    assert [line.get_label() for line in left.lines] == ["lru", "optimum from an empty bank (min)"]
    assert list(left.lines[0].get_ydata()) == [25, 50]
    assert list(left.lines[1].get_ydata()) == [75, 75]
    assert [label.get_text() for label in left.get_xticklabels()] == ["16", "32"]
    assert (left.get_xlabel(), left.get_ylabel()) == ("bank, slots of each layer", "hit rate, %")
    assert (right.get_title("left"), right.get_ylabel()) == ("contract runtime", "GiB read per token")
    assert list(right.lines[0].get_ydata()) == [2, 2]
    assert list(right.lines[1].get_ydata()) == [1, 1]


@pytest.mark.parametrize("changes", [{}, {"bytes_read": None, "prefetch_bytes": None, "best_bytes_per_token": None}])
def test_min_alone_has_a_line(tmp_path: Path, figures: list[Figure], changes: dict[str, Any]) -> None:
    hit_curve.draw([row("16", "min", hit_rate=0.75, **changes), row("32", "min", **changes)], tmp_path / "a.png")
    assert all(panel.lines[0].get_label() == "min" for panel in figures[0].axes)
    (legend,) = figures[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["min", "optimum from an empty bank (min)"]


def test_a_ceiling_under_another_contract_says_so(tmp_path: Path, figures: list[Figure]) -> None:
    unknown = {"best_hit_rate": None, "best_bytes_per_token": None}
    rows = [row("16", **unknown), row("32", **unknown), row("16", "min", contract="atomic", **unknown)]
    hit_curve.draw(rows, tmp_path / "a.png")
    assert [line.get_label() for line in figures[0].axes[0].lines][:2] == ["lru", "min (atomic)"]
    assert figures[0].axes[1].get_title("left") == "contract runtime"


def test_one_legend_outside_the_panels(tmp_path: Path, figures: list[Figure]) -> None:
    hit_curve.draw([row("16", trace_id=str(n), trace=str(n)) for n in range(3)], tmp_path / "a.png")
    (legend,) = figures[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["lru", "optimum from an empty bank (min)"]
    assert all(panel.get_legend() is None for panel in figures[0].axes)
    edge = max(panel.get_tightbbox().x1 for panel in figures[0].axes)
    assert legend.get_window_extent().x0 >= edge


def test_of_many_lines_the_best_have_colours(tmp_path: Path, figures: list[Figure]) -> None:
    """Of 12 lines: the five with most hits that do not know the future, and lru; six are grey under one label."""
    rows = [row("16", f"policy-{n}", hit_rate=n / 20) for n in range(10)]
    rows += [row("16", "min:forced", hit_rate=0.7), row("16", hit_rate=0.01)]
    hit_curve.draw(rows, tmp_path / "a.png")
    drawn = {line.get_label(): line.get_color() for line in figures[0].axes[0].lines}
    named = ["policy-9", "policy-8", "policy-7", "policy-6", "policy-5", "lru"]
    colours = [drawn[name] for name in named]
    assert len(set(colours)) == 6
    assert hit_curve.GREY not in colours
    assert drawn["6 others"] == hit_curve.GREY
    assert len(figures[0].axes[0].lines) == 13
    shown = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert sorted(shown) == sorted([*named, "6 others", "optimum from an empty bank (min)"])


def test_speeds_of_each_machine_with_their_intervals(tmp_path: Path, figures: list[Figure]) -> None:
    rows = [
        on_machine(bank, machine, speed)
        for bank, machine, speed in (
            ("16", "m1-8", 5.0),
            ("16", "m2-16", 6.0),
            ("32", "m1-8", None),
            ("32", "m2-16", 8.0),
        )
    ]
    hit_curve.draw(rows, tmp_path / "a.png")
    hits, reads, m1, m2 = figures[0].axes
    assert [panel.get_title("left") for panel in (m1, m2)] == ["m1-8, parallel-install", "m2-16, parallel-install"]
    assert (list(m1.lines[0].get_xdata()), list(m1.lines[0].get_ydata())) == ([0], [5])
    assert list(m2.lines[0].get_ydata()) == [6, 8]
    bars = [segment[:, 1].tolist() for segment in m2.collections[0].get_segments()]
    assert bars == [[5, 8], [7, 10]]
    assert [len(panel.lines) for panel in (hits, reads)] == [2, 2]  # lru and the best: once, not for each machine


def test_what_is_read_ahead_is_in_the_reads(tmp_path: Path, figures: list[Figure]) -> None:
    ahead = row("16", prefetch="oracle-1", bytes_read=0, prefetch_bytes=6 << 30, prefetch_issued=9, misses=0)
    hit_curve.draw([row("16"), ahead], tmp_path / "a.png")
    right = figures[0].axes[1]
    assert [list(line.get_ydata()) for line in right.lines[:2]] == [[2], [3]]
    assert right.get_ylabel() == "GiB read per token, reads ahead included"
    unknown = {"bytes_read": None, "prefetch_bytes": None, "best_bytes_per_token": None}
    hit_curve.draw([row("16", **unknown), ahead | unknown], tmp_path / "a.png")
    assert [list(line.get_ydata()) for line in figures[1].axes[1].lines] == [[3.5], [4.5]]


def test_a_dollar_is_a_dollar(tmp_path: Path, figures: list[Figure]) -> None:
    hit_curve.draw([row("16", "$5 and $6", trace="$a$")], tmp_path / "a.png")
    assert not figures[0].axes[0].title.get_parse_math()
    assert not any(text.get_parse_math() for text in figures[0].legends[0].get_texts())


def test_long_names_and_letters_without_a_glyph_leave_the_panels_their_size(
    tmp_path: Path, figures: list[Figure]
) -> None:
    hit_curve.draw([row("16")], tmp_path / "a.png")
    hit_curve.draw([row("16", "x" * 200, trace="\u540d " * 60)], tmp_path / "b.png")
    widths = [figure.axes[0].get_position().width for figure in figures]
    assert widths[1] > 0.8 * widths[0]


def test_banks_ascend_though_a_trace_lacks_the_first(tmp_path: Path, figures: list[Figure]) -> None:
    hit_curve.draw([row("8"), row("16"), row("4", trace_id="2", trace="b")], tmp_path / "a.png")
    panel = figures[0].axes[0]
    assert [label.get_text() for label in panel.get_xticklabels()] == ["4", "8", "16"]
    assert list(panel.lines[0].get_xdata()) == [1, 2]


def test_a_line_for_each_predictor(tmp_path: Path, figures: list[Figure]) -> None:
    hit_curve.draw([row("16"), row("16", prefetch="eam", hit_rate=0.625), row("16", "min")], tmp_path / "a.png")
    left, _ = figures[0].axes
    assert [line.get_label() for line in left.lines][:2] == ["lru", "lru + eam"]
    assert list(left.lines[1].get_ydata()) == [62.5]


def test_traces_of_one_name_have_panels_of_their_own(tmp_path: Path, figures: list[Figure]) -> None:
    hit_curve.draw([row("16"), row("16", trace_id="2", hit_rate=0.125)], tmp_path / "a.png")
    panels = figures[0].axes
    assert [list(panel.lines[0].get_ydata()) for panel in panels[::2]] == [[50], [12.5]]


def test_hundreds_of_traces_and_banks_fit_one_picture(tmp_path: Path, figures: list[Figure]) -> None:
    hit_curve.draw([row("16", trace_id=str(n)) for n in range(120)], tmp_path / "traces.png")
    assert figures[0].get_suptitle() == "the first 8 of 120 traces; results.csv has all"
    assert len(figures[0].axes) == 16
    assert size(tmp_path / "traces.png")[1] <= 3300
    hit_curve.draw([row(str(bank)) for bank in range(1, 257)], tmp_path / "banks.png")
    assert len(figures[1].axes[0].get_xticks()) <= 12
