"""How good victims are: against a plain count of the same choices, and by hand."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path

import numpy as np
import polars
import pytest

import flashmoe_sim.api as sim
from flashmoe_sim.io.errors import Malformed, Unsupported
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.victims import total, victims
from flashmoe_sim.residency.workload import Setup, prepare
from tests.policies.naive import Expert, Next, Twin
from tests.policies.naive.table import EVICTING
from tests.residency import naive
from tests.residency.builders import of_one_layer, random_calls, trace_of


def watched(twin: Twin, choices: list[tuple[int, int]]) -> Twin:
    """The twin, recording for each victim how many other candidates are used later, and how many there are."""
    coming_of = dict[int, Next]()
    used, installed, victim = twin.used, twin.installed, twin.victim

    def recording(hook: Callable[[int, Expert, int, Next], None]) -> Callable[[int, Expert, int, Next], None]:
        def record(slot: int, expert: Expert, now: int, coming: Next) -> None:
            coming_of[slot] = (inf, 0) if coming[0] == inf else coming
            hook(slot, expert, now, coming)

        return record

    def judged(held: list[tuple[int, Expert]]) -> int:
        slot = victim(held)
        choices.append((sum(coming_of[other] > coming_of[slot] for other, _ in held), len(held) - 1))
        return slot

    twin.used, twin.installed, twin.victim = recording(used), recording(installed), judged  # type: ignore[method-assign]
    return twin


CASES = [
    *(("lru", contract) for contract in ("runtime", "protected", "atomic", "sequential")),
    ("min:forced", "atomic"),
    ("second-miss", "atomic"),
]


@pytest.mark.parametrize(("policy", "contract"), CASES)
@pytest.mark.parametrize("slots", [2, 3, 4])
def test_choices_are_those_of_the_twin(policy: str, contract: str, slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = random_calls(np.random.default_rng(slots), n_experts=9, layers=2, steps=40, width=2)
    choices: list[tuple[int, int]] = []
    inner = EVICTING[policy]
    monkeypatch.setitem(EVICTING, policy, lambda capacity: watched(inner(capacity), choices))
    twin = naive.replay(calls, contract=contract, policy=policy, n_experts={0: 9, 1: 9}, slots=slots)
    workload = prepare(trace_of(calls, 9))
    banks = victims(workload, Setup(Bank(slots=slots), parse_policy(policy), contract))
    found = total(banks)
    assert [one.misses for one in banks] == [twin.table[layer]["misses"] for layer in (0, 1)]
    assert (found.chosen, found.optimal) == (len(choices), sum(later == 0 for later, _ in choices))
    ranks = [later / others for later, others in choices if others]
    assert found.choices == len(ranks)
    assert found.ranks == pytest.approx(sum(ranks))
    assert found.chosen > 0
    if policy == "min:forced":
        assert found.optimal == found.chosen


def test_by_hand() -> None:
    """Two slots, one expert a call: 0 1 2 0 3 1, under LRU.

    2 evicts 0, which is used before 1: the others (1) are used later, rank 1. 0 evicts 1, and 2 is never used: rank 1.
    3 evicts 2: neither 2 nor 0 is used again, so it is optimal. 1 evicts 0, and 3 is not used again either: optimal.
    """
    workload = of_one_layer([[0], [1], [2], [0], [3], [1]], 4)
    (found,) = victims(workload, Setup(Bank(slots=2), contract="atomic"))
    assert (found.requests, found.misses, found.chosen, found.optimal, found.choices) == (6, 6, 4, 2, 4)
    assert (found.optimal_share, found.rank) == (0.5, 0.5)


def test_rows_of_policies_and_layers() -> None:
    asked = {"bank": "12.5%", "contract": "atomic"}
    whole = sim.victims("prose-256", policy="lru,min:forced", **asked)
    layers = sim.victims("prose-256", policy="lru,min:forced", by="layer", **asked)
    assert whole["optimal_victims"].to_list()[1] == 1
    for name in ("misses", "misses_over_min", "victims"):
        sums = layers.group_by("policy", maintain_order=True).agg(polars.col(name).sum())
        assert sums[name].to_list() == whole[name].to_list()
    best = sim.replay("prose-256", bank="12.5%", policy="min", contract="atomic")["misses"].item()
    assert whole["misses_over_min"].to_list() == [misses - best for misses in whole["misses"]]


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("static", "policy static chooses no victims"),
        ("demand,static", "policy demand chooses no victims"),
    ],
)
def test_policies_without_victims(policy: str, says: str) -> None:
    with pytest.raises(Unsupported, match=says):
        sim.victims("prose-256", bank=32, policy=policy, contract="atomic")


def test_policies_without_victims_are_left_out_each_with_its_reason() -> None:
    with pytest.warns(UserWarning, match="left out") as warned:
        table = sim.victims("prose-256", bank="1/8", policy="lru,demand,min:forced", contract="atomic")
    assert table["policy"].to_list() == ["lru", "min:forced"]
    assert ["chooses no victims" in str(one.message) for one in warned] == [True]


def test_an_error_of_your_own_policy_names_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a replay does, although another function calls it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "elsewhere.py").write_text(
        "from flashmoe_sim.policies.fifo import Fifo\n\n"
        "def choose_victim(state, slot_key, blocked, mark):\n    return len(slot_key)\n\n"
        "class Wrong(Fifo):\n    name = 'wrong'\n    kernels = {**Fifo.kernels, 'choose_victim': choose_victim}\n"
    )
    with pytest.raises(Malformed, match=r"policy wrong: .*elsewhere.py:3: choose_victim returned \d+ at call "):
        sim.victims("prose-256", bank=32, policy="elsewhere:Wrong", contract="sequential")
