"""Misses of minor experts: exactly as the plain twin counts them, and what they cost in bytes and seconds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import flashmoe_sim.api as sim
from flashmoe_sim.io.errors import BadInput, Incomplete, Unsupported
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import ALL_CONTRACTS
from flashmoe_sim.policies.minor import parse_minor
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.timeline.assemble import work_of
from tests.residency import naive
from tests.residency.builders import geometry_of, of_one_layer, one_layer, random_calls, run, trace_of
from tests.residency.compare import _assert_equal, calls_of
from tests.support import printed_by

RULES = ("drop@1", "substitute@1", "half@1", "drop@0.3", "half@0.3")
EXPERTS, WIDTH = 8, 2


def weighted(seed: int) -> Workload:
    """Two layers of calls of up to three tokens, each with two experts and weights that may be alike."""
    rng = np.random.default_rng(seed)
    calls = random_calls(rng, n_experts=EXPERTS, layers=2, steps=20, most_tokens=3, width=WIDTH)
    trace = trace_of(calls, EXPERTS)
    weight = rng.choice([0.125, 0.25, 0.5, 0.75], trace.refs).astype(np.float32)
    sizes = {layer: 16 * (layer + 1) for layer in trace.layers}
    return prepare(replace(trace, weight=weight), geometry_of(sizes, dict(trace.n_experts)))


def minor_of(workload: Workload, rule: str, *, by_reference: bool) -> list[list[bool]]:
    """Of each call and reference: by the lowest rank, or the largest weight, of the expert in its call."""
    trace, how = workload.trace, parse_minor(rule)
    found = []
    for call, (begin, end) in enumerate(zip(trace.offset[:-1], trace.offset[1:], strict=True)):
        experts, weights = trace.expert[begin:end].tolist(), trace.weight[begin:end].tolist()
        width = len(experts) // max(int(trace.n_tokens[call]), 1)
        ranks = []
        for place in range(len(experts)):
            own = range(place - place % width, place - place % width + width)
            ranks.append(sorted(own, key=lambda one: (-weights[one], one)).index(place))
        if not by_reference:
            ranks = [min(ranks[at] for at, one in enumerate(experts) if one == expert) for expert in experts]
            weights = [max(weights[at] for at, one in enumerate(experts) if one == expert) for expert in experts]
        found.append(
            [rank >= how.limit for rank in ranks] if how.by == "rank" else [one < how.limit for one in weights]
        )
    return found


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("contract", "policy"),
    [(contract, policy) for policy in ("lru", "lfu", "min") for contract in ALL_CONTRACTS]
    + [("atomic", "second-miss"), ("sequential", "second-miss")],
)
def test_equals_its_twin(contract: str, policy: str, rule: str) -> None:
    if contract not in parse_policy(policy).contracts:
        return
    for seed in range(3):
        workload = weighted(seed)
        trace = workload.trace
        minor = naive.Minor(minor_of(workload, rule, by_reference=contract == "sequential"), parse_minor(rule).reads)
        for slots in (6, 7, EXPERTS):
            for scope in ("layer", "global"):
                sizes = dict(zip(trace.layers, workload.expert_bytes, strict=True))
                asked = {"contract": contract, "policy": policy, "n_experts": trace.n_experts, "slots": slots}
                twin = naive.replay(calls_of(trace), **asked, scope=scope, minor=minor, expert_bytes=sizes)
                result = run(workload, Bank(slots=slots), f"{policy}:minor={rule}", contract, scope=scope, record=True)
                _assert_equal(result, twin, trace, contract=contract, pinning=False)


def tokens(*experts: tuple[int, int], weight: tuple[float, float] = (0.75, 0.25)) -> Workload:
    """One layer of 4 experts of 1,000 bytes; each token has two, of which the second weighs less."""
    trace = trace_of(one_layer(experts), 4)
    return prepare(replace(trace, weight=np.tile(np.float32(weight), len(experts))), geometry_of({0: 1000}, {0: 4}))


def test_by_hand() -> None:
    """Expert 1 is dropped twice, comes in when it is the first choice, and is a hit as the second one then."""
    found = run(tokens((0, 1), (0, 1), (1, 2), (0, 1)), Bank(slots=3), "lru:minor=drop@1", "atomic", record=True)
    assert found.hit.tolist() == [0, 2, 1, 2, 0, 2, 1, 1]
    total = found.counts.total()
    assert [total[name] for name in ("requests", "hits", "misses", "minor_misses", "bypassed")] == [8, 3, 5, 3, 3]
    assert (total["bytes_read"], total["read_ops"]) == (2000, 2)
    assert found.counts.by_layer()[0]["bytes_read"] == 2000
    assert found.stream.bytes_read.tolist() == [1000, 0, 1000, 0]


def test_half_the_bytes_are_kept_like_all_of_them() -> None:
    plain, half = (
        run(tokens((0, 1), (2, 3), (0, 1)), Bank(slots=4), f"lru{rule}", "atomic") for rule in ("", ":minor=half@1")
    )
    assert half.counts.total()["hits"] == plain.counts.total()["hits"] == 2
    assert (plain.counts.total()["bytes_read"], half.counts.total()["bytes_read"]) == (4000, 3000)
    assert plain.counts.total()["read_ops"] == half.counts.total()["read_ops"]


def test_dropped_experts_are_not_computed_and_substitutes_are() -> None:
    workload = tokens((0, 1), (2, 3), (0, 1))
    works = {}
    for rule in ("", ":minor=drop@1", ":minor=substitute@1"):
        replayed = run(workload, Bank(slots=4), f"lru{rule}", "atomic", record=True)
        work = work_of(workload, replayed, page_cache_bytes=10_000)
        assert not work.broken_rule
        works[rule] = [work.requests.tolist(), work.refs.tolist(), work.misses.tolist(), work.installs.tolist()]
        assert (work.warm <= work.misses).all()
    assert works[""] == [[2, 2, 2], [2, 2, 2], [2, 2, 0], [2, 2, 0]]
    assert works[":minor=drop@1"] == [[1, 1, 1], [1, 1, 1], [1, 1, 0], [1, 1, 0]]
    assert works[":minor=substitute@1"] == [[2, 2, 2], [2, 2, 2], [1, 1, 0], [1, 1, 0]]


def test_faster_the_more_is_dropped_and_a_substitute_costs_its_computing() -> None:
    asked = {"bank": 16, "contract": "atomic", "machine": "m1-8", "policy": "lru"}
    rows = {rule: sim.replay("requests-64", **asked, minor=rule) for rule in (None, "drop@6", "drop@4", "substitute@4")}
    speed = {rule: row["tok_s"].item() for rule, row in rows.items()}
    read = {rule: row["bytes_read"].item() for rule, row in rows.items()}
    assert speed[None] < speed["drop@6"] < speed["drop@4"]
    assert speed["substitute@4"] < speed["drop@4"]
    assert read["drop@4"] == read["substitute@4"] < read["drop@6"] < read[None]


def test_a_sweep_gives_it_to_each_policy_that_has_none() -> None:
    table = sim.sweep("requests-64", bank=16, policy="lru,lfu:minor=drop@2,static", contract="atomic", minor="drop@4")
    assert table["policy"].to_list() == ["lru:minor=drop@4", "lfu:minor=drop@2", "static"]


def test_it_is_said_that_the_text_changes(capsys: pytest.CaptureFixture[str]) -> None:
    words = "requests-64 --bank 16 --contract atomic --minor drop@4"
    shown = " ".join(printed_by(capsys, "replay", *words.split(), quiet=False).split())
    assert "of minor experts 22,828" in shown
    assert "minor experts that miss: neither read nor computed; what that does to the text is not known" in shown
    shown = " ".join(printed_by(capsys, "sweep", *words.split(), quiet=False).split())
    assert "minor: cheaper misses, and what they do to the text is not known" in shown


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("drop", "expected drop@4, substitute@4 or half@4"),
        ("drop@0", "the router's first choice is not minor"),
        ("skip@4", "expected drop@4"),
        ("drop@1.5", "a gate weight lies between 0 and 1"),
        ("drop@-1", "expected drop@4"),
        ("", "expected drop@4"),
    ],
)
def test_what_is_no_rule(rule: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        sim.sweep("requests-64", bank=16, contract="atomic", minor=rule)


def test_what_needs_weights_a_machine_or_every_miss() -> None:
    with pytest.raises(
        Incomplete, match=r"policy lru:minor=drop@4 needs the rank of each reference, which python-256 does"
    ):
        sim.replay("python-256", bank=16, minor="drop@4")
    with pytest.raises(Unsupported, match="ceilings are of runs that read every miss"):
        sim.ceilings("requests-64", bank=16, policy="lru:minor=drop@4", machine="m1-8")
    assert run(of_one_layer([[0], [1]], 2), Bank(slots=1), "lru", "atomic").counts.total()["minor_misses"] == 0


def test_a_rule_by_which_no_expert_is_minor_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    why = "no expert is minor: the ranks of 8 experts a token end at 7"
    asked = ("requests-64", "--bank", "16")
    replayed = " ".join(printed_by(capsys, "replay", *asked, "--minor", "drop@8", quiet=False).split())
    assert why in replayed
    assert "neither read nor computed" not in replayed
    rules = "lru:minor=drop@8,lru:minor=drop@7"
    swept = " ".join(printed_by(capsys, "sweep", *asked, "--policy", rules, quiet=False).split())
    assert f"drop@8: {why}" in swept
    assert "drop@7:" not in swept
