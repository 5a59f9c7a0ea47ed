"""The page of published speeds says what the program predicts today, and its scores stay above a floor."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from reports.field import figures, page
from reports.field.__main__ import main
from reports.field.predict import raw_of
from reports.field.report import FOLDER, RESULTS, api_of, arch_of, frame, sections
from reports.field.scores import grouped, ranked, regret, score, tau
from reports.field.tune import load
from tests.field.builders import DEFAULTS, row, write
from tests.field.builders import judged_today as rows

PAGE = (FOLDER / "README.md").read_text()


def test_results_and_page_are_those_of_today() -> None:
    assert_frame_equal(pl.read_csv(RESULTS), frame(rows()), check_dtypes=False, check_exact=False, rel_tol=2e-3)
    today = page.markdown(rows(), load(), sections(rows()))
    assert _wordless(today) == _wordless(PAGE), "run ./dev report"


def test_scores_stay_where_they_are() -> None:
    known = [one for one in rows() if one.in_sample.tok_s is not None]
    of_known_models = [one for one in rows() if "unknown model" not in (one.in_sample.why or "")]
    assert len(known) / len(of_known_models) >= 0.95
    assert len(known) / len(rows()) >= 0.90
    floors = (("in_sample", 0.18, 0.90), ("without_series", 0.21, 0.85), ("without_machine", 0.25, 0.78))
    for name, error, within_2 in floors:
        found = score([getattr(one, name) for one in known])
        assert found.error <= error, (name, found)
        assert found.within_2 >= within_2, (name, found)
        assert found.covered >= 0.85, (name, found)
    for strategy, group in grouped(rows(), lambda row: row.strategy).items():
        if len(group) >= 10:
            ours, naive = score([one.without_machine for one in group]), page.on_paper(group)
            assert ours.error < naive.error, strategy
            assert ours.within_2 > naive.within_2, strategy
    series = ranked(rows())
    assert sorted(one.tau for one in series)[len(series) // 2] >= 0.6


def test_kind_of_gpu_is_what_the_row_says_or_what_the_part_has(tmp_path: Path) -> None:
    halo = {"gpu": "Radeon 8060S", "cpu": "Ryzen AI Max+ 395", "ram_gib": "128", "strategy": "all_gpu"}
    cases = (
        ({}, "cuda"),
        (halo, "rocm"),
        (halo | {"engine_version_or_pr": "b9187 RADV Vulkan"}, "vulkan"),
        ({"gpu": "Apple M3 Max", "cpu": "Apple M3 Max", "strategy": "all_gpu"}, "metal"),
        ({"strategy": "cpu_only"}, ""),
        ({"model": "Nobody-7B"}, ""),
    )
    raws = [raw_of(row(tmp_path, **cells), load().curves) for cells, _ in cases]
    assert [api_of(raw) for raw in raws] == [api for _, api in cases]
    assert [arch_of(raw) for raw in raws] == ["qwen3moe"] * 5 + [""]


def test_figures_of_the_page_are_drawn(tmp_path: Path) -> None:
    figures.draw(rows(), tmp_path)
    shown = set(re.findall(r"\]\((\w+\.png)\)", PAGE))
    assert {path.name for path in tmp_path.iterdir()} == shown == {path.name for path in FOLDER.glob("*.png")}


def test_a_file_gets_predictions_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "rows.csv", DEFAULTS, DEFAULTS | {"id": "two", "model": "Nobody-7B"})
    assert main([str(path), "--json"]) == 0
    one, two = json.loads(capsys.readouterr().out)
    prompt = {"prompt_tok_s", "prompt_lo", "prompt_hi"}
    assert set(one) == set(two) == {"id", "tok_s", "lo", "hi", "why"} | prompt
    assert one["id"] == "one"
    assert one["lo"] < one["tok_s"] < one["hi"]
    assert one["prompt_lo"] < one["prompt_tok_s"] < one["prompt_hi"]
    assert one["why"] is None
    assert {two[name] for name in ("tok_s", "lo", "hi", *prompt)} == {None}
    assert "Nobody-7B" in two["why"]
    assert main([str(path)]) == 0
    text = capsys.readouterr().out
    assert "two: no prediction; unknown model" in text
    assert f", prompts {one['prompt_tok_s']:.3g} (" in text


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "No such file"), ("id,engine\n1,2\n", "no column"), ("\xff", "UTF-8")],
)
def test_a_bad_file_gives_one_line(
    text: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.csv"
    if text is not None:
        path.write_text(text, encoding="latin-1")
    assert main([str(path), "--json"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error


@pytest.mark.parametrize("arguments", [["--nothing"], ["a.csv", "b.csv"], ["--json"], ["a.csv", "--tune"]])
def test_a_wrong_command_says_how(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "usage: python -m reports.field" in capsys.readouterr().err


def test_order_and_regret_by_hand() -> None:
    """Of three pairs two agree and one does not: 1/3. Choosing the 8 where 10 is best loses a fifth."""
    assert tau([1, 2, 3], [1, 3, 2]) == pytest.approx(1 / 3)
    assert tau([1, 1, 1], [1, 2, 3]) == 0
    assert regret([1, 2, 3], [5, 10, 8]) == pytest.approx(0.2)
    assert regret([1, 1], [10, 5]) == pytest.approx(0.25)


def _wordless(text: str) -> str:
    return " ".join(re.sub(r"[0-9.,-]+", "0", text).split())
