"""Every verdict, on a trace made for it."""

from __future__ import annotations

import re

import pytest

from flashmoe_sim.ceilings.diagnose import Diagnosis, diagnose
from flashmoe_sim.policies.bank import parse_bank
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from tests.residency.builders import Call, geometry_of, one_layer, trace_of
from tests.residency.test_twins import byte_banks, random_workload

CYCLE = one_layer([[expert] for _ in range(20) for expert in range(5)])


def found(
    calls: list[Call], bank: str, policy: str = "lru", contract: str = "atomic", scope: str = "layer"
) -> Diagnosis:
    return diagnose(prepare(trace_of(calls, 8)), Setup(parse_bank(bank), parse_policy(policy), contract, scope=scope))


def test_none() -> None:
    verdict = found(CYCLE, "8", "static").verdict
    assert (verdict.kind, verdict.text) == ("none", "Nothing is missed.")


def test_first_uses() -> None:
    verdict = found(CYCLE, "5").verdict
    assert verdict.kind == "first-uses"
    assert verdict.text.startswith("5 of 5 misses are first uses, which no policy avoids")


def test_policy() -> None:
    # LRU misses all 100; min with four of five misses the fifth of every round, 24 in all.
    verdict = found(CYCLE, "4").verdict
    assert verdict.kind == "policy"
    assert verdict.text.startswith("min in the same bank would avoid 76% of 100 misses, mostly by its choice of vic")
    assert "; a policy that sees only the next step gets half of what better victims gain" in verdict.text


def test_policy_by_admission() -> None:
    # Two slots, and a round of both layers ends with an expert that is not worth keeping. Layer 0, with 0, then 1:
    # LRU misses all 3, min:forced 2, min 1. Layer 1, with 0 and 1 in one call: LRU misses 2, min:forced 2, min 1.
    calls: list[Call] = []
    for n in range(40):
        calls += [(0, [0], 1), (0, [1], 1), (0, [2 + n % 6], 1), (1, [0, 1], 1), (1, [2 + n % 6], 1)]
    verdict = found(calls, "2").verdict
    assert verdict.kind == "policy"
    assert "mostly by declining experts that are used late" in verdict.text


def test_working_set() -> None:
    # min with two of five slots misses 100 - 2 x 19 = 62; LRU all, until the bank holds all five.
    verdict = found(CYCLE, "2").verdict
    assert verdict.kind == "working-set"
    assert verdict.text == (
        "Of 100 misses, 62 remain under the optimum (min): a better policy avoids 38% at most; "
        "--bank 5 halves the misses of lru."
    )


def test_mixed() -> None:
    # Two rounds of five with three slots: 5 first uses, 2 more that min misses, and 3 that only LRU does.
    verdict = found(CYCLE[:10], "3").verdict
    assert verdict.kind == "first-uses"
    verdict = found(CYCLE[:15], "3").verdict
    assert verdict.kind == "mixed"
    assert verdict.text == (
        "Of 15 misses, 5 are first uses, 4 more are missed by min too, and 6 are the policy's; "
        "--bank 5 halves the misses of lru."
    )


def test_no_bank_halves() -> None:
    verdict = found(CYCLE, "2", "demand").verdict
    assert verdict.kind == "working-set"
    assert verdict.text.endswith("no bank halves the misses: 100 remain with every expert in it.")


def test_cliff() -> None:
    # Three layers keep one expert each for a step: in three slots the other layers displace it, in one of its own it
    # hits.
    wide = [(layer, [n % 2, 2 + n // 2 % 2], 1) for n in range(20) for layer in (0, 1, 2)]
    verdict = found(wide, "1", scope="global").verdict
    assert verdict.kind == "cliff"
    assert verdict.text.startswith(
        "One bank of 3 slots for all layers holds less than the 6 of one token, and hits 0.0%: "
    )
    assert "--bank 2 holds them; a bank for each layer hits" in verdict.text
    assert found(wide, "2", scope="global").verdict.kind != "cliff"


def test_aliasing() -> None:
    calls = one_layer([[0, 1], [2, 0], [0, 1], [1, 2], [0, 1]] * 5)
    verdict = found(calls, "2", contract="runtime").verdict
    assert verdict.kind == "aliasing"
    assert re.match(r"Slot aliasing: \d+ requests \(\d+\.\d%\) are computed with the weights of another", verdict.text)
    assert "none are at --bank 3." in verdict.text
    assert "(under protected)" in verdict.text
    few = one_layer([[0, 1]] * 200)
    verdict = found(calls[:5] + few, "2", contract="runtime").verdict
    assert verdict.kind != "aliasing"
    assert verdict.text.endswith("none are at --bank 3.")


def test_unknown() -> None:
    calls = [(layer, [expert], 1) for _ in range(6) for expert in range(3) for layer in (0, 1)]
    workload = prepare(trace_of(calls, 4), geometry_of({0: 10, 1: 30}, 4))
    setup = Setup(parse_bank("50B"), parse_policy("lru"), "atomic", scope="global")
    verdict = diagnose(workload, setup).verdict
    assert verdict.kind == "unknown"
    assert verdict.text.startswith("6 of 36 misses are first uses; the policy's share of the rest is unknown")


@pytest.mark.parametrize("scope", ["layer", "global"])
@pytest.mark.parametrize("policy", ["lru", "fifo", "static", "static:global", "demand", "min"])
def test_a_verdict_for_every_bank(policy: str, scope: str) -> None:
    """Of slots and of bytes, from the smallest: always one of the kinds, in a sentence or a few."""
    kinds = set()
    for seed in range(4):
        workload: Workload = random_workload(seed)
        banks = [parse_bank(str(slots)) for slots in range(1, max(workload.n_experts) + 1)]
        for bank in [*banks, *byte_banks(workload, "layer")]:
            diagnosis = diagnose(workload, Setup(bank, parse_policy(policy), "atomic", scope=scope))
            assert diagnosis.verdict.text.endswith(".")
            assert 1 <= len(re.findall(r"\.(?= |$)", diagnosis.verdict.text)) <= 3
            kinds.add(diagnosis.verdict.kind)
    assert len(kinds) > 1
    assert kinds <= {"none", "cliff", "first-uses", "working-set", "policy", "mixed", "unknown"}
