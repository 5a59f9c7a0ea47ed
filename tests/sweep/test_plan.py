"""From what was requested to setups and workloads: names, and what `all` leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.geometry import named_model
from flashmoe_sim.io.errors import BadInput, Incomplete, Unsupported
from flashmoe_sim.question import SweepOptions
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.sweep.left_out import LeftOut, reasons
from flashmoe_sim.sweep.plan import plan, plan_setups, plan_sweep
from flashmoe_sim.sweep.workloads import plan_workloads
from flashmoe_sim.verbs.replay import Replay
from tests.residency.builders import trace_of


def named(name: str) -> Workload:
    return prepare(trace_of([(0, [0, 1], 1), (0, [1, 2], 1)], 4).with_(name=name))


def names(sources: list[object], given: list[str], **options: str) -> list[str]:
    return [one.trace.name for one in plan_workloads([named(name) for name in given], sources, **options)]


@pytest.mark.parametrize(
    ("sources", "given", "expected"),
    [
        (["/r/a/x.jsonl", "/r/b/y.jsonl"], ["x", "y"], ["x", "y"]),
        (["/r/a/x.jsonl", "/r/b/x.jsonl"], ["x", "x"], ["a/x", "b/x"]),
        (["/r/a/trace.gz", "/s/a/trace.gz"], ["a", "a"], ["r/a", "s/a"]),
        (["/r/a/x.jsonl", "/s/a/x.jsonl", "/s/b/x.jsonl"], ["x"] * 3, ["r/a/x", "s/a/x", "b/x"]),
        (["/x.jsonl", "/a/x.jsonl"], ["x", "x"], ["x", "a/x"]),
        (["/r/a/x.jsonl", "/r/a/x.jsonl"], ["x", "x"], ["x", "x (2)"]),
        ([None, None, "/r/a/x.jsonl"], ["x", "x", "x"], ["x", "x (2)", "a/x"]),
        ([None, None, None], ["x", "x (2)", "x"], ["x", "x (2)", "x (3)"]),
        ([Path("/r/a/x.parquet"), "/r/b/copy.parquet"], ["x", "x"], ["x", "copy"]),
    ],
)
def test_two_traces_never_share_a_name(sources: list[object], given: list[str], expected: list[str]) -> None:
    assert names(sources, given) == expected


def test_nor_do_their_cuts() -> None:
    assert names(["/r/a/x.jsonl", "/r/b/x.jsonl"], ["x", "x"], top_ks="1,2") == [
        "a/x, top-1",
        "a/x, top-2",
        "b/x, top-1",
        "b/x, top-2",
    ]
    assert names(["/a/x.jsonl", "/b/y.jsonl"], ["x", "x, top-1"], top_ks="1") == ["x, top-1", "x, top-1, top-1"]


def test_a_trace_with_a_name_of_its_own_is_not_touched() -> None:
    """What was worked out for a workload is kept with it."""
    loaded = [named("x"), named("y")]
    assert all(one is other for one, other in zip(plan_workloads(loaded, [None, None]), loaded, strict=True))


def test_what_all_leaves_out_is_given_once_for_all_banks() -> None:
    left_out: list[LeftOut] = []
    setups = plan_setups("8,16", policy="all", contract="runtime", prefetch="eam", left_out=left_out)
    assert {one.policy for one in left_out}.isdisjoint(setup.policy.spec for setup in setups)
    assert len({one.policy for one in left_out}) == len(left_out)
    assert {(one.trace, one.bank, one.contract, one.prefetch) for one in left_out} == {(None, None, "runtime", "eam")}


def test_none_of_all_is_an_error() -> None:
    with pytest.raises(Unsupported, match="policy hot-profile is undefined under the contract runtime"):
        plan_setups("8,16", policy="hot-profile", contract="runtime", prefetch="all", scope="global")


def test_reasons_are_given_once_for_each_kind() -> None:
    undefined = "policy {} is undefined under the contract runtime"
    never = "predictor {} cannot work: policy demand never installs a miss"
    ahead = ("eam", "hot", "markov", "temporal")
    combinations = [LeftOut(None, None, name, "runtime", "none", undefined.format(name)) for name in ("a", "b")]
    combinations += [LeftOut(None, None, "demand", "runtime", name, never.format(name)) for name in ahead]
    banks = [LeftOut("t", bank, policy, "runtime", "none", f"bank {bank}: no") for bank in "46" for policy in "ab"]
    banks += [LeftOut("u", "4", "a", "runtime", "none", "bank 4: never")]
    assert reasons([*combinations, *banks]) == [
        "left out: a, b: policy a is undefined under the contract runtime",
        "left out: demand with 4 predictors: predictor eam cannot work: policy demand never installs a miss",
        "left out of t: bank 4, 6 with a, b: bank 4: no",
        "left out of u: bank 4 with a: bank 4: never",
    ]


def test_a_context_is_what_the_model_tells() -> None:
    """12 of 24 layers of gpt-oss-20b keep every token in 2,048 bytes, 12 keep 768 cells; --kv says it outright."""
    model = named_model("gpt-oss-20b")
    asked = {"bank": "8,16", "machine": "rtx-3090", "context": 8192}
    setups, conditions = plan_sweep(SweepOptions(**asked))
    assert [conditions(setup, model).kv_bytes for setup in setups] == [12 * 2048 * (8192 + 768)] * 2
    _, conditions_of = plan(Replay("t", **asked | {"bank": 8}))
    assert conditions_of(model).kv_bytes == 12 * 2048 * (8192 + 768)
    _, conditions_of = plan(Replay("t", **asked | {"bank": 8, "kv_type": "q8_0"}))
    assert conditions_of(model).kv_bytes == 12 * 1088 * (8192 + 768)
    _, conditions_of = plan(Replay("t", **asked | {"bank": 8, "kv": "1MiB"}))
    assert conditions_of(model).kv_bytes == 1 << 20


def test_a_context_of_a_model_that_does_not_tell() -> None:
    _, conditions_of = plan(Replay("t", bank=8, machine="rtx-3090", context=8192))
    with pytest.raises(Incomplete, match="--context 8192"):
        conditions_of(None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"context": -1}, "--context -1; expected a number of tokens from 0"),
        ({"kv_type": "f8"}, "unknown --kv-type 'f8'; known: bf16, f16, f32"),
        ({"kv": "much"}, "--kv 'much': expected a size with its unit"),
        ({"machine": None, "context": 5}, "--context: how a model runs on a machine; give --machine too"),
    ],
)
def test_words_of_a_context_are_checked_before_any_trace_is_read(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        plan_sweep(SweepOptions(**{"bank": 8, "machine": "rtx-3090"} | given))
