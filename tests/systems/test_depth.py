"""Speeds with tokens in the context: deeper is never faster, in every verb that gives seconds."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

import flashmoe_sim.api as sim
from flashmoe_sim.cli.main import main
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.options import MemoryOptions
from flashmoe_sim.report import figures
from flashmoe_sim.schema import BY_DEPTH, frame
from flashmoe_sim.systems.borrow import by_depth
from flashmoe_sim.systems.resolve import resolve
from flashmoe_sim.tune.recommend import recommend
from flashmoe_sim.verbs.compare import Compare
from flashmoe_sim.verbs.given import workload_of

TRACE = "gpt-oss-120b"
RUN_THERE = {"rtx-4090": "placed,hot-cache,nvmoe,cpu", "m5-max-128": "all-gpu,cpu,big-moe-on-edge"}


@pytest.mark.parametrize("machine", RUN_THERE)
def test_deeper_is_never_faster(machine: str) -> None:
    memory = MemoryOptions(context=65_536)
    on = resolve(
        workload=workload_of(TRACE),
        model=None,
        machine=load_machine(machine),
        systems=RUN_THERE[machine],
        memory=memory,
    )
    assert on.workload is not None
    sized = [system.sized(on.case) for system in on.systems]
    rows = by_depth(on.workload, on.case, sized)
    assert [row["depth"] for row in rows[:7]] == [0, 4096, 8192, 16384, 32768, 49152, 65536]
    for before, after in pairwise(rows):
        if before["setting"] == after["setting"]:
            assert after["tok_s"] < before["tok_s"]
            assert after["tok_s_lo"] <= before["tok_s_lo"]
    assert {row["setting"] for row in rows} == {system.spec for system in sized}
    described = figures.speeds_by_depth(frame(rows, BY_DEPTH)).description
    assert f"{sized[0].spec}: " in described
    assert "at 65,536" in described
    assert by_depth(on.workload, replace(on.case, context=0), sized) == []


def compared(**asked: Any) -> Any:
    return Compare(TRACE, machine="rtx-4090", systems="placed", **asked).run()


def test_both_ends_of_the_context_are_quoted() -> None:
    empty, deep = compared(context=32_768), compared(context=32_768, depth=32_768)
    row, at_end = empty.rows[0], deep.rows[0]
    assert row.filled.tok_s == pytest.approx(at_end.tok_s)
    assert row.as_row()["filled_tok_s_hi"] == pytest.approx(at_end.tok_s_hi)
    assert row.tok_s > 1.02 * at_end.tok_s
    assert at_end.filled is None
    assert empty.notes[-1] == "room for a context of 32,768 tokens, 1.15 GiB; speeds are at an empty one"
    assert deep.notes[-1] == "room for a context of 32,768 tokens, 1.15 GiB; speeds are with 32,768 tokens in it"
    assert compared().rows[0].filled is None


def test_a_context_has_room_for_its_depth() -> None:
    assert compared(depth=20_000).case.context == 20_000
    assert compared(depth=2_000).case.context == 4_096


def test_every_verb_with_seconds_takes_a_depth() -> None:
    for give in (
        lambda depth: sim.sweep(TRACE, bank=32, machine="m3-max-48", contract="atomic", depth=depth)["tok_s"][0],
        lambda depth: sim.predict(hit_rate=0.8, model="gpt-oss-120b", machine="m5-max-128", depth=depth)["tok_s"][0],
        lambda depth: sim.compare(TRACE, machine="m5-max-128", systems="all-gpu", depth=depth)["tok_s"][0],
    ):
        assert give(0) == give(None) > give(30_000)
    asked = {"hit_rate": 0.8, "model": "gpt-oss-120b", "machine": "m5-max-128", "depth": 9_000}
    assert (sim.predict(**asked, kv_type="q8_0")["tok_s"] < sim.predict(**asked)["tok_s"])[0]  # Metal unpacks slowly


def test_a_recommendation_is_for_its_depth() -> None:
    on = resolve(
        workload=workload_of(TRACE),
        model=None,
        machine=load_machine("rtx-3090"),
        systems="placed",
        memory=MemoryOptions(context=16_384),
    )
    assert on.workload is not None
    found = recommend(on.workload, on.case, on.systems)
    deep = recommend(on.workload, replace(on.case, depth=16_384), on.systems)
    assert found.filled.tok_s == pytest.approx(deep.best.best.tok_s)
    assert deep.filled is None


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*arguments: str) -> str:
        assert main([*arguments]) == 0
        return capsys.readouterr().out

    asked = ("compare", TRACE, "--machine", "rtx-4090", "--system", "placed", "--context", "32768")
    table = shown(*asked)
    assert " full " in next(line for line in table.splitlines() if line.startswith("system"))
    assert "full: tok/s with all 32,768 tokens in the context" in " ".join(table.split())
    row = json.loads(shown(*asked, "--json"))["rows"][0]
    assert row["tok_s"] > row["filled_tok_s"] > row["filled_tok_s_lo"]
    output = " ".join(
        shown("recommend", TRACE, "--machine", "rtx-4090", "--system", "placed", "--depth", "8192", "--why").split()
    )
    assert "All speeds are with 8,192 tokens in the context; more tokens in it are slower." in output


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"depth": 8192, "context": 4096}, "--depth 8192: beyond --context 4096; give a context of at least 8192"),
        ({"depth": -1}, "--depth -1; expected a number of tokens from 0"),
        ({"depth": 8, "model": "inkling-small"}, "--depth 8: what attention of inkling-small.* is not known"),
    ],
)
def test_what_cannot_be_a_depth(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Compare(**({"model": "gpt-oss-120b", "machine": "m5-max-128", "hit_rate": 0.5} | asked)).run()
