"""Policies against another one: the sums of steps are the counts of replays, and what is skipped, left out or alone."""

from __future__ import annotations

import math
import runpy
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flashmoe_sim import api
from flashmoe_sim.io.errors import Conflict, OutOfRange
from flashmoe_sim.schema import JUDGED

TRACES = ["python-256", "prose-256"]
GUIDE = Path(__file__).parents[1] / "guide"


def judged(*traces: str, **asked: object) -> pl.DataFrame:
    given = {"bank": 32, "policy": ["lfu-decay", "fifo"], "contract": "atomic"} | asked
    return api.judge_policies(list(traces) or TRACES, **given)


def test_rates_are_those_of_replays() -> None:
    table = judged()
    assert table.columns == [column.name for column in JUDGED]
    for row in table.drop_nulls("trace").iter_rows(named=True):
        own, other = (
            api.replay(row["trace"], bank=32, policy=policy, contract="atomic")["hit_rate"].item()
            for policy in (row["policy"], row["against"])
        )
        assert row["hit_rate"] == pytest.approx(own)
        assert row["more_hits"] == pytest.approx(own - other)
        assert row["ahead"] == (own > other)
        assert row["more_hits_lo"] < row["more_hits"] < row["more_hits_hi"]


def test_speeds_are_those_of_replays() -> None:
    table = judged("gpt-oss-120b", bank=22, policy="second-miss", machine="rtx-3090", execution="hot-cold")
    row = table.row(0, named=True)
    own, other = (
        api.replay("gpt-oss-120b", bank=22, policy=policy, contract="atomic", machine="rtx-3090", execution="hot-cold")[
            "tok_s"
        ].item()
        for policy in ("second-miss", "lru")
    )
    assert row["tok_s"] == pytest.approx(own)
    assert row["gain"] == pytest.approx(own / other)
    assert row["gain_lo"] < row["gain"] < row["gain_hi"]
    assert row["faster"] == 1
    assert row["ahead"] == 0


def test_several_machines_are_each_as_one_alone() -> None:
    """But for the chance, which counts the comparisons on all of them."""
    asked = {"bank": 22, "policy": ["second-miss", "fifo"], "execution": "hot-cold"}
    traces, machines = ("gpt-oss-120b", "gpt-oss-120b"), ("rtx-3090", "rtx-4090")
    together = judged(*traces, **asked, machine=",".join(machines))
    assert together["machine"].unique(maintain_order=True).to_list() == list(machines)
    for machine in machines:
        alone = judged(*traces, **asked, machine=machine)
        assert together.filter(pl.col("machine") == machine).drop("p").equals(alone.drop("p"))
        assert (together.filter(pl.col("machine") == machine)["p"] >= alone["p"]).all()


def test_a_bank_is_left_out_only_where_it_does_not_fit() -> None:
    asked = {"bank": [16, 22], "policy": "fifo", "execution": "hot-cold", "machine": ["rtx-3060 + 32GiB", "rtx-3090"]}
    with pytest.warns(UserWarning, match="do not fit rtx-3060"):
        table = judged("gpt-oss-120b", **asked)
    assert table.select("bank", "machine").rows() == [
        ("16", "rtx-3060 + 32GiB"),
        ("16", "rtx-3090"),
        ("22", "rtx-3090"),
    ]


def test_means_are_of_the_traces() -> None:
    table = judged()
    for policy in ("lfu-decay", "fifo"):
        of = table.filter(pl.col("policy") == policy)
        each, mean = of.drop_nulls("trace"), of.filter(pl.col("trace").is_null()).row(0, named=True)
        assert mean["more_hits"] == pytest.approx(each["more_hits"].mean())
        assert mean["ahead"] == each["ahead"].sum()
        assert mean["traces"] == len(TRACES)
    assert judged("python-256")["trace"].to_list() == ["python-256"] * 2


def test_a_policy_against_itself_differs_nowhere() -> None:
    """Least-stale is LRU where a step is one token."""
    row = judged("python-256", policy="least-stale").row(0, named=True)
    assert (row["more_hits"], row["more_hits_lo"], row["more_hits_hi"], row["p"]) == (0, 0, 0, 1)
    with pytest.raises(Conflict, match="is the policy to judge against"):
        judged("python-256", policy="lru")


def test_skipped_steps_do_not_count() -> None:
    """The first steps fill the bank: without them a replay hits more, and all of them cannot be skipped."""
    rates = [judged("python-256", skip_steps=skipped)["hit_rate"][0] for skipped in (0, 50, 200)]
    assert all(after > before for before, after in pairwise(rates))
    with pytest.raises(OutOfRange, match="two or more must be left"):
        judged("python-256", skip_steps=10_000)
    timed = judged("python-256", skip_steps=200, machine="rtx-3090").row(0, named=True)
    assert timed["gain"] > 0


def test_a_prompt_takes_no_block_from_decoded_steps() -> None:
    """Decoded steps have blocks of their own: as many as hits have, whatever comes before them."""
    workload = api.load_trace("qwen3-30b-phone")
    table = judged("qwen3-30b-phone", policy="fifo", machine="rtx-3090", skip_steps=0)
    short = judged(
        "qwen3-30b-phone", policy="fifo", machine="rtx-3090", skip_steps=int(workload.trace.steps.max()) - 20
    )
    for row in (table.row(0, named=True), short.row(0, named=True)):
        assert row["gain_lo"] < row["gain"] < row["gain_hi"]


def test_chances_are_corrected_for_how_many_are_judged() -> None:
    alone, among = judged("python-256", policy="lfu-decay"), judged("python-256", policy="lfu-decay,fifo,sieve,clock")
    assert among.filter(pl.col("policy") == "lfu-decay")["p"].item() >= alone["p"].item()


def test_a_wider_interval_is_surer() -> None:
    ends = [judged("python-256", confidence=level).row(0, named=True) for level in (0.5, 0.9, 0.99)]
    widths = [row["more_hits_hi"] - row["more_hits_lo"] for row in ends]
    assert widths == sorted(widths)
    assert math.isclose(ends[0]["more_hits"], ends[2]["more_hits"])


def test_banks_that_do_not_fit_are_left_out() -> None:
    with pytest.warns(UserWarning, match="left out of gemma-4-26b-phone"):
        table = judged("python-256", "gemma-4-26b-phone", policy="fifo", contract="protected", bank=[8, 16])
    assert set(table.drop_nulls("trace")["trace"]) == {"python-256"}
    with pytest.raises(OutOfRange):
        judged("gemma-4-26b-phone", policy="fifo", contract="protected", bank=8)


def test_predictors_are_judged_like_policies() -> None:
    """Against the policy without one; a user's own, and beside a policy that sees weights."""
    guess: Any = runpy.run_path(str(GUIDE / "guess.py"))["Twice"]
    table = judged("python-256", policy=["lru", "lfu-decay"], prefetch=["none", "markov", guess()], bank=16)
    rows = {(row["policy"], row["prefetch"]): row for row in table.iter_rows(named=True)}
    assert set(rows) == {("lfu-decay", "none")} | {
        (policy, one) for policy in ("lru", "lfu-decay") for one in ("markov", "twice")
    }
    for (policy, predictor), row in rows.items():
        given = guess() if predictor == "twice" else predictor
        own, other = (
            api.replay("python-256", bank=16, contract="atomic", policy=one, prefetch=ahead)["hit_rate"].item()
            for one, ahead in ((policy, given), ("lru", "none"))
        )
        assert row["more_hits"] == pytest.approx(own - other)
        assert row["more_hits_lo"] < row["more_hits"] < row["more_hits_hi"]
    weighs: Any = runpy.run_path(str(GUIDE / "mine.py"))["LeastWeight"]
    (row,) = judged("requests-64", policy=weighs(), against=weighs(), prefetch="markov").to_dicts()
    assert (row["policy"], row["prefetch"]) == ("least-weight", "markov")
    with pytest.raises(Conflict, match="give another one, or --prefetch"):
        judged("python-256", policy="lru")
