"""The committed reports say what the program counts today."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import flashmoe_sim.api as sim
from flashmoe_sim.geometry.named import named_models
from flashmoe_sim.machines.machine import APIS
from flashmoe_sim.systems.table import SYSTEMS
from reports import checked
from reports.class_lru import measure as class_lru
from reports.class_lru import page as class_lru_page
from reports.performance import figures as performance_figures
from reports.performance import measure as performance
from reports.performance import page as performance_page
from reports.policy_study import figures, held_out, page, seconds, seconds_page
from reports.policy_study.measure import FOLDER, TRACES, load, measure
from reports.sampling import measure as sampling
from reports.sampling import page as sampling_page
from tests.benchmarks import bench_sweep

PAGE = (FOLDER / "README.md").read_text()


def test_page_is_made_of_the_committed_counts() -> None:
    assert page.markdown(load(), seconds.load(), *held_out.load()) == PAGE, "run ./dev report"


def test_what_is_held_out_is_as_today() -> None:
    """One policy's differences with their intervals, and one parameter fitted on the other traces."""
    judged, fitted = held_out.load()
    names = ["trace", "more_hits", "more_hits_lo", "more_hits_hi", "ahead"]
    fresh = sim.judge_policies(list(TRACES), policy="fifo", **held_out.ASKED)
    assert_frame_equal(judged.filter(policy="fifo").select(names), fresh.select(names), rel_tol=1e-5)
    fresh = sim.fit_policy(list(TRACES), policy="window", values=held_out.FITS["window"], **held_out.ASKED)
    names = ["trace", "policy", "best_policy", "hit_rate", "more_hits", "hindsight_hit_rate"]
    kept = fitted.filter(pl.col("policy").str.starts_with("window")).select(names)
    assert_frame_equal(kept, fresh.select(names), rel_tol=1e-5)


def test_seconds_are_those_of_today() -> None:
    """Of the traces with switches, for each kind of machine."""
    stored = seconds.load().filter(pl.col("question") == "switches")
    fresh = pl.DataFrame([row for kind in seconds.KINDS for row in seconds.of_switches(kind)])
    assert_frame_equal(stored, fresh, rel_tol=1e-4)


def test_gains_are_over_lru_and_certain_if_nothing_differs() -> None:
    rows = seconds.load().filter((pl.col("policy") == "lru") & (pl.col("prefetch") == "none"))
    assert (rows["gain"] == 1).all()
    assert (rows["gain_lo"] == 1).all()
    same = np.linspace(1, 2, 100)
    assert seconds.interval([(same, same)]) == (1, 1)
    assert seconds.interval([(same, 2 * same)]) == pytest.approx((2, 2))


def test_the_order_of_measured_policies_comes_out() -> None:
    """Five rules of one engine with the same routing: by speed, here as there."""
    results = seconds.load().filter((pl.col("question") == "policies") & (pl.col("kind") == "cpu"))
    for share in seconds.SHARES:
        of = results.filter(pl.col("share") == share).group_by("policy").agg(pl.col("gain").log().mean())
        gains = dict(of.iter_rows())
        order = [policy for _, _, policy in seconds_page.MEASURED]
        assert sorted(order, key=lambda policy: gains[policy]) == order


@pytest.mark.parametrize("trace", ["prose-256", "gemma-4-26b-phone"])
def test_counts_are_those_of_today(trace: str) -> None:
    stored, fresh = load().filter(pl.col("trace") == trace), measure(trace)
    assert_frame_equal(stored, fresh, check_exact=True)


def test_what_is_compared_with_class_lru_is_as_today() -> None:
    """The page is made of its table, and one policy's differences are those of today."""
    judged = class_lru.load()
    assert class_lru_page.markdown(judged) == (class_lru.FOLDER / "README.md").read_text(), "run ./dev report"
    assert set(judged["policy"]) == set(class_lru.JUDGES)
    names = ["share", "trace", "hit_rate", "more_hits", "more_hits_lo", "more_hits_hi", "ahead"]
    assert_frame_equal(
        judged.filter(policy="fifo").select(names), class_lru.judge(("fifo",)).select(names), rel_tol=1e-5
    )


def test_every_trace_is_there() -> None:
    names = load()["trace"].unique(maintain_order=True).to_list()
    assert names == list(TRACES), "run ./dev report"


def test_figures_of_the_page_are_drawn(tmp_path: Path) -> None:
    figures.draw(load(), tmp_path)
    shown = set(re.findall(r"\]\((\w+\.png)\)", PAGE))
    assert {path.name for path in tmp_path.iterdir()} == shown == {path.name for path in FOLDER.glob("*.png")}


def test_performance_page_is_made_of_the_committed_timings(tmp_path: Path) -> None:
    timings, written = performance.load(), (performance.FOLDER / "README.md").read_text()
    assert performance_page.markdown(timings) == written, "run python -m reports.performance"
    performance_figures.draw(timings, tmp_path)
    shown = set(re.findall(r"\]\((\w+\.png)\)", written))
    assert {path.name for path in tmp_path.iterdir()} == shown


def test_what_was_checked_is_of_the_committed_results() -> None:
    assert checked.FILE.read_text() == checked.text(), "run ./dev report"


def test_what_was_checked_is_of_systems() -> None:
    """A renamed system would lose its check without a word."""
    groups = tomllib.loads(checked.FILE.read_text())
    names = {name for group in groups.values() for name in group} - {"all"}
    assert len(names) > 15
    assert names <= set(SYSTEMS)
    assert set(checked.FITTED) <= names


def test_every_checked_row_is_of_one_architecture_and_kind_of_gpu() -> None:
    archs = {model.arch for model in named_models().values()}
    for name, one in tomllib.loads(checked.FILE.read_text())["published"].items():
        if name == "all":
            continue
        assert sum(of["rows"] for of in one["of"]) == one["rows"], name
        kinds = [(of["arch"], of["api"]) for of in one["of"]]
        assert len(kinds) == len(set(kinds)), name
        assert {arch for arch, _ in kinds} <= archs, name
        assert {api for _, api in kinds} <= {"", *APIS}, name


def test_the_page_of_samples_is_made_of_the_committed_errors() -> None:
    committed = pl.read_csv(sampling.RESULTS), pl.read_csv(sampling.OTHER_WAYS)
    assert sampling_page.markdown(*committed) == (sampling.FOLDER / "README.md").read_text(), "run ./dev report"


def test_errors_of_samples_are_those_of_today() -> None:
    stored = pl.read_csv(sampling.RESULTS).filter(pl.col("trace") == "qwen3-30b-mlx")
    assert_frame_equal(stored, sampling.measure("qwen3-30b-mlx"), abs_tol=2e-4)


def test_what_the_performance_page_measures_still_runs() -> None:
    """Benchmarks are run by hand; that of a sweep counts on how many traces there are."""
    for place in Path(bench_sweep.__file__).parent.glob("bench_*.py"):
        importlib.import_module(f"tests.benchmarks.{place.stem}")
    rows, _, _ = bench_sweep.configurations([sim.load_trace(name) for name in sim.catalog()], "protected")
    assert 500 < rows < bench_sweep.TASKS
