"""neurall's llama.cpp by hand, on by_hand.TWO_SIZES: what it replays, how its swaps are limited, memory and flags."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import flashmoe_sim.api as sim
from flashmoe_sim.io.errors import BadInput, TooLarge
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.policies.scored_swaps import ScoredSwaps
from flashmoe_sim.residency.workload import prepare
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.neurall import Neurall
from flashmoe_sim.timeline.assemble import Conditions
from flashmoe_sim.timeline.from_rates import predict
from flashmoe_sim.timeline.models.hot_cold import HotCold
from flashmoe_sim.timeline.rates import Rate
from tests.residency.builders import Call, trace_of
from tests.systems.by_hand import TWO_SIZES, on_card

MODEL = replace(TWO_SIZES, arch="qwen4exp")


def case(*, dense_gib: int = 1, link_gb_s: float = 25, **given: Any) -> Case:
    of = on_card(arch="qwen4exp", link_gb_s=link_gb_s, **given)
    return replace(of, model=replace(MODEL, dense_bytes=dense_gib * GIB))


def policy_of(system: Neurall, of: Case) -> ScoredSwaps:
    policy = system.plan(of).setup.policy
    assert isinstance(policy, ScoredSwaps)
    return policy


@pytest.mark.parametrize("link_gb_s", [6, 25])
@pytest.mark.parametrize("slots", [1, 3])
def test_swaps_take_a_quarter_of_a_token_predicted_without_them(link_gb_s: float, slots: int) -> None:
    """An expert has 2 MiB on average; of its layer's four, so many are on the GPU."""
    of = case(dense_gib=16, link_gb_s=link_gb_s)
    machine = Neurall().adapted(of.machine)
    (token,) = predict(
        [Rate("", hit_rate=slots / 4)], of.model, machine, Conditions(HotCold(), checked=True), whose=None
    )
    expected = 0.25 / token.tok_s * link_gb_s * 1e9 / (2 * MIB)
    assert policy_of(Neurall(slots=slots), of).swaps == pytest.approx(expected, rel=0.02, abs=1)
    assert expected > 10
    assert policy_of(Neurall(slots=slots, swaps=5), of).swaps == 5


def test_the_lead_may_follow_the_speeds() -> None:
    """The CPU reads 40 GB/s: an upload at 25 GB/s takes as long as 1.6 experts there, at 4 GB/s as 10."""
    for link_gb_s, lead in ((25, 2), (4, 10), (80, 1)):
        of = case(link_gb_s=link_gb_s)
        of = replace(of, machine=of.machine.varied("cpu.weights_gb_s", 40))
        assert policy_of(Neurall(slots=2, lead=-2), of).lead == lead
        assert policy_of(Neurall(slots=2), of).lead == 0
        assert policy_of(Neurall(slots=2, lead=3, admit=0), of) == ScoredSwaps(
            swaps=policy_of(Neurall(slots=2), of).swaps, lead=3, admit=0
        )


@pytest.mark.parametrize(("gpu_mib", "slots"), [(2048 + 384 + 8, 1), (2048 + 384 + 15, 2), (24 * 1024, 3)])
def test_it_takes_what_the_gpu_has_beside_its_reserve(gpu_mib: int, slots: int) -> None:
    """A slot of both layers takes 4 MiB, and one stays empty; three of four experts are the most."""
    sized = Neurall().sized(case(gpu_mib=gpu_mib))
    assert sized.spec == f"neurall:slots={slots}"
    sized.check(case(gpu_mib=gpu_mib))
    held = {share.what: share.size_bytes for share in sized.memory(case(gpu_mib=gpu_mib))}
    assert held["slots"] == (slots + 1) * 4 * MIB
    assert held["experts"] == MODEL.routed_bytes


def test_every_gpu_has_its_reserve_and_buffers() -> None:
    buffers = case().compute_bytes() // MIB
    for more, slots in ((8, 1), (7, 0)):
        of = case(gpu_mib=1024 + 2 * (buffers + 384) + more, gpus=2)
        if slots:
            Neurall().sized(of).check(of)
            assert Neurall().sized(of).slots == slots
            held = {share.what: share.size_bytes for share in Neurall(slots=1).memory(of)}
            assert held["compute buffers of the other GPUs"] == buffers * MIB
        else:
            with pytest.raises(TooLarge, match="too little"):
                Neurall().sized(of)
            assert Neurall().sizes(of) == []


def test_more_slots_than_experts_are_taken_and_stay_empty() -> None:
    system = Neurall(slots=6)
    system.check(case())
    assert system.plan(case()).setup.bank.slots == 4
    assert policy_of(system, case(dense_gib=16)).swaps == policy_of(Neurall(slots=4), case(dense_gib=16)).swaps


def test_its_flags() -> None:
    line = Neurall(slots=3).launch(case()).line
    assert line.startswith("llama-server -m MODEL.gguf -c 4096 -ngl 99 --cpu-moe -nr ")
    assert line.endswith(" --moe-expert-cache 3")
    line = Neurall(slots=3, swaps=8, lead=-2, admit=0, profile="none").launch(case()).line
    assert line.startswith("LLAMA_MOE_STATE=0 llama-server ")
    assert line.endswith(" --moe-expert-cache 3 --moe swaps-per-step=8,swap-lead=-2,admit=0")


@pytest.mark.parametrize(
    "settings", [{"slots": -1}, {"swaps": -2}, {"lead": -1}, {"lead": -3}, {"admit": -1}, {"profile": "all"}]
)
def test_settings_that_mean_nothing(settings: dict[str, int]) -> None:
    with pytest.raises(BadInput, match=f"^system neurall: {next(iter(settings))}="):
        Neurall(**settings)


def test_it_starts_with_what_it_learnt_or_with_nothing() -> None:
    """Layer 0 uses 0, 1, 2 and 0 again, layer 1 only 0. Half of the tokens teach 0 and 1 of layer 0.

    Then only 2 misses; one use does not let it in. Empty slots miss the first three, and 0 of layer 1 twice.
    """
    calls: list[Call] = [call for expert in (0, 1, 2, 0) for call in ((0, [expert], 1), (1, [0], 1))]
    workload = prepare(trace_of(calls, 4), MODEL)
    for profile, hits in (("half", 7), ("none", 3)):
        system = Neurall(slots=2, profile=profile)
        assert system.replay(workload, system.plan(case()).setup).counts.total()["hits"] == hits


@pytest.mark.parametrize("trace", ["python-256", "prose-256", "cpp-256"])
def test_leads_cost_hits_and_admission_spares_uploads(trace: str) -> None:
    """Measured there with 100 of 288 experts: 65% hits with the lead of a slow link, 71.2% without any."""
    found = {}
    for lead, admit in ((10, 0), (2, 0), (0, 0), (0, 2)):
        result = sim.replay(trace, bank=90, policy=ScoredSwaps(lead=lead, admit=admit), contract="atomic")
        found[lead, admit] = result.row(0, named=True)
    assert found[10, 0]["hit_rate"] < found[2, 0]["hit_rate"] < found[0, 0]["hit_rate"]
    assert found[0, 2]["hit_rate"] == pytest.approx(found[0, 0]["hit_rate"], abs=0.005)
    assert found[0, 2]["prefetch_issued"] < 0.9 * found[0, 0]["prefetch_issued"]
