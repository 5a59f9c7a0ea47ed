"""The picture of a sweep: a PNG for every kind of rows there can be."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

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
    }
    known |= {"hit_rate": 0.5, "best_hit_rate": 0.75, "bytes_per_token": 2e9, "best_bytes_per_token": 1e9}
    return dict.fromkeys(column.name for column in RESULT_COLUMNS) | known | {"misses_per_token": 3.5} | changes


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
        [row("16", bytes_per_token=None, best_bytes_per_token=None)],
        [row("16", best_hit_rate=None, best_bytes_per_token=None)],
        [row("16", bytes_per_token=0.0, best_bytes_per_token=0.0)],
        [row("16", f"policy-{n}") for n in range(25)],
    ],
    ids=["two", "one", "bytes", "no model", "no ceiling", "nothing read", "many policies"],
)
def test_a_picture_of(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    hit_curve.draw(rows, tmp_path / "a.png")
    assert min(size(tmp_path / "a.png")) > 400


def test_lines_labels_and_units(tmp_path: Path, figures: list[Figure]) -> None:
    rows = [row("16", hit_rate=0.25), row("32"), row("16", "min", contract="atomic"), row("32", "min")]
    hit_curve.draw(rows, tmp_path / "a.png")
    left, right = figures[0].axes
    assert [line.get_label() for line in left.lines] == ["lru", "min", "optimum from an empty bank (min)"]
    assert list(left.lines[0].get_ydata()) == [25, 50]
    assert list(left.lines[2].get_ydata()) == [75, 75]
    assert [label.get_text() for label in left.get_xticklabels()] == ["16", "32"]
    assert (left.get_xlabel(), left.get_ylabel()) == ("bank, slots per layer", "hit rate, %")
    assert (right.get_title(), right.get_ylabel()) == ("replay contract: runtime, atomic", "GiB read per token")


def test_a_line_for_each_predictor(tmp_path: Path, figures: list[Figure]) -> None:
    hit_curve.draw([row("16"), row("16", prefetch="eam", hit_rate=0.625), row("16", "min")], tmp_path / "a.png")
    left, right = figures[0].axes
    assert [line.get_label() for line in left.lines][:3] == ["lru", "lru + eam", "min"]
    assert list(left.lines[1].get_ydata()) == [62.5]
    assert right.get_ylabel() == "GiB read on demand per token"


def test_traces_of_one_name_have_panels_of_their_own(tmp_path: Path, figures: list[Figure]) -> None:
    hit_curve.draw([row("16"), row("16", trace_id="2", hit_rate=0.125)], tmp_path / "a.png")
    panels = figures[0].axes
    assert [list(panel.lines[0].get_ydata()) for panel in panels[::2]] == [[50], [12.5]]


def test_hundreds_of_traces_and_banks_fit_one_picture(tmp_path: Path, figures: list[Figure]) -> None:
    hit_curve.draw([row("16", trace_id=str(n)) for n in range(120)], tmp_path / "traces.png")
    assert figures[0].get_suptitle() == "the first 20 of 120 traces"
    assert len(figures[0].axes) == 40
    hit_curve.draw([row(str(bank)) for bank in range(1, 257)], tmp_path / "banks.png")
    assert len(figures[1].axes[0].get_xticks()) <= 12
