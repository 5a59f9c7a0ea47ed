"""What is said of the answers' accuracy is the accuracy of the answers."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.field.asked import Traces, asked_of
from flashmoe_sim.field.engines import attended
from flashmoe_sim.field.machine import built_of
from flashmoe_sim.field.model import model_of
from flashmoe_sim.machines.belief import errors
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.tune.evidence import LEAST_PEOPLE
from flashmoe_sim.tune.proof import checked
from flashmoe_sim.verbs.compare import Compare
from reports import checked as report
from reports.field import figures, page, residuals
from reports.field.asked import answered
from reports.field.errors import MOST, Errors, left_out
from reports.field.gains import pairs_of
from reports.field.report import FOLDER, WINS, sections
from tests.field.builders import published, row
from tests.field.builders import residuals as lines

PAGE = (FOLDER / "README.md").read_text()
SYSTEMS = residuals.known(residuals.on_parts(lines()))


def test_the_table_has_what_the_commands_print() -> None:
    """A row of each of some systems, through the function behind `sim compare`."""
    rows = published()
    shallow = [name for name in SYSTEMS["id"] if not attended(rows[name])]
    some = SYSTEMS.filter(pl.col("id").is_in(shallow) & pl.col("system").is_in(["all-gpu", "placed", "placed-ik"]))
    for one in some.unique("system", keep="last", maintain_order=True).iter_rows(named=True):
        row = rows[one["id"]]
        asked = asked_of(row, Traces())
        compared = Compare(model=model_of(row), machine=built_of(row).machine, systems=[asked.system], context=0)
        (found,) = compared.run().rows
        assert found.tok_s == pytest.approx(one["tok_s"], rel=1e-3)
        assert (found.tok_s_lo, found.tok_s_hi) == pytest.approx((one["lo"], one["hi"]), rel=1e-2)


@pytest.mark.parametrize("prefix", ["", "without_machine_", "without_source_", "without_engine_"])
def test_nine_of_ten_intervals_hold(prefix: str) -> None:
    plain = residuals.on_parts(lines()).filter(pl.col("system").is_null())
    assert 0.88 <= residuals.score(SYSTEMS, prefix).inside <= 0.96
    assert 0.85 <= residuals.score(plain, prefix).inside <= 0.95
    assert ((lines()[f"{prefix}hi"] / lines()[f"{prefix}lo"]).log() < 2 * MOST * 1.645 * 2).all()


def test_an_engine_that_is_left_out_is_one_that_nobody_measured(tmp_path: Path) -> None:
    """Its systems are as fast, and as far off, as any other; plain engines as the other ones of their way."""
    engines = {"llama.cpp": "n_cpu_moe", "ik_llama.cpp": "n_cpu_moe", "vLLM 0.9": "all_gpu", "SGLang": "all_gpu"}
    asked = [
        row(tmp_path, id=name, engine=name, machine_id=name, source=name, strategy=strategy)
        for name, strategy in engines.items()
    ]
    known = errors()
    found = Errors(known["times"], known["sd"], known["shares"])
    ran = answered(asked)
    without = left_out(ran, found, "engine")
    assert set(without) == {"llama.cpp", "ik_llama.cpp", "vLLM", "SGLang"}
    assert "any engine, gpu" in without["vLLM"].times
    of = without["llama.cpp"]
    for numbers in (of.times, of.sd):
        assert {"placed", "placed-ik"} & set(numbers) == {"placed-ik"}
    (line,) = residuals.on_parts(residuals.table(ran, found)).filter(system="placed").to_dicts()
    as_any = line["tok_s"] * of.times["all"] / known["times"]["placed"]
    assert line["without_engine_tok_s"] == pytest.approx(as_any, rel=1e-3)
    assert line["without_engine_lo"] < as_any < line["without_engine_hi"]


def test_scores_stay_where_they_are() -> None:
    assert len(SYSTEMS) / len(residuals.on_parts(lines())) >= 0.6
    for prefix, error, apart in (
        ("", 0.18, 3.7),
        ("without_machine_", 0.19, 3.7),
        ("without_source_", 0.19, 3.7),
        ("without_engine_", 0.2, 4.3),
    ):
        of = residuals.score(SYSTEMS, prefix)
        assert of.error <= error
        assert of.within_2 >= 0.92
        assert of.apart <= apart
    unmeasured = [residuals.score(one, "without_engine_").inside for _, one in SYSTEMS.group_by("system")]
    assert statistics.fmean(unmeasured) >= 0.88


def test_what_an_answer_says_of_its_accuracy_is_the_accuracy_of_the_answers() -> None:
    """Counted here from the table of answers, read from the sentences that `sim recommend` prints."""
    said = checked()["published"]
    assert set(said) == {"all", *SYSTEMS["system"].unique()}
    for name, of in said.items():
        rows = SYSTEMS if name == "all" else SYSTEMS.filter(system=name)
        ratio = (rows["without_source_tok_s"] / rows["measured_tok_s"]).to_numpy()
        held = rows["measured_tok_s"].is_between(rows["without_source_lo"], rows["without_source_hi"])
        assert of["rows"] == len(rows)
        assert of["people"] == rows["source"].n_unique()
        assert of["median_error"] == pytest.approx(float(np.median(np.abs(ratio - 1))), abs=5e-4)
        assert of["within_2"] == pytest.approx(float(np.mean((ratio <= 2) & (ratio >= 0.5))), abs=5e-4)
        assert of["inside_without_source"] == pytest.approx(held.mean(), abs=5e-4)


def test_recommend_prints_these_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "gpt-oss-120b", "--machine", "rtx-4090", "--system", "placed", "--why"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    of = SYSTEMS.filter(system="placed")
    ratio = (of["without_source_tok_s"] / of["measured_tok_s"]).to_list()
    off, near = statistics.median(abs(one - 1) for one in ratio), statistics.fmean(0.5 <= one <= 2 for one in ratio)
    assert f"of {len(of)} published speeds of this engine, by {of['source'].n_unique()} people" in text
    assert f"without who measured them, the median error was {off:.0%}, {near:.0%} were within a factor of two" in text


def test_files_that_the_commands_read_are_those_of_the_table() -> None:
    assert report.FILE.read_text() == report.text(), "run python -m reports.checked"
    of = errors()["checked"]
    for name, value in residuals.checked(residuals.known(lines())).items():
        assert of[name] == pytest.approx(value, abs=6e-4)


def test_an_engine_that_few_people_measured_is_told_so() -> None:
    few = [name for name, of in checked()["published"].items() if of["people"] < LEAST_PEOPLE]
    assert "hot-cache" in few


def test_what_wins_nine_of_ten_draws_is_faster_nine_times_of_ten() -> None:
    sure = pl.read_csv(WINS).filter(pl.col("share") >= 0.9)
    assert len(sure) >= 50
    assert sure["held"].mean() >= 0.85  # type: ignore[operator]


def test_quantiles_of_measured_speeds_are_even() -> None:
    place = page.quantiles(SYSTEMS)
    assert 0.4 < np.median(place) < 0.6
    counts, _ = np.histogram(place, page.TENTHS)
    assert max(counts) / len(place) < 0.17
    assert min(counts) / len(place) > 0.04


def test_the_page_is_that_of_the_tables() -> None:
    pairs = pairs_of(list(published().values()), lines())
    assert page.markdown(lines(), sections(lines()), pairs) == PAGE, "run ./dev report"


def test_figures_of_the_page_are_drawn() -> None:
    shown = set(re.findall(r"\]\((\w+\.png)\)", PAGE))
    assert shown == {path.name for path in FOLDER.glob("*.png")}
    assert figures.predicted(lines()).axes
    assert figures.engines(lines()).axes


def test_machines_of_presets_are_told() -> None:
    names = set(lines()["machine"]) - {"parts"}
    assert names
    assert all(load_machine(name).name == name for name in names)


def test_score_by_hand() -> None:
    """Predicted 10, 20 and 50, measured 8, 20 and 21: 25, 0 and 138% off."""
    speeds = {"tok_s": [10.0, 20.0, 50.0], "measured_tok_s": [8.0, 20.0, 21.0], "lo": [5.0] * 3, "hi": [20.0] * 3}
    of = residuals.score(pl.DataFrame(speeds))
    assert (of.rows, of.error, of.ratio) == (3, 0.25, 1.25)
    assert (of.within_2, of.inside, of.apart) == (pytest.approx(2 / 3), pytest.approx(2 / 3), 4.0)
