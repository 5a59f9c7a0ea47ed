"""Several machines that a network joins: their memory together, the speed of one, and a hop for each further one."""

from __future__ import annotations

import pytest

from flashmoe_sim.geometry.named import named_model
from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, Malformed, OutOfRange, UnknownName
from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.machines.load import load_machine, parse_machine
from flashmoe_sim.machines.network import Several, joined, several_in
from flashmoe_sim.machines.write import toml
from flashmoe_sim.systems.all_gpu import AllGpu
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.cpu import Cpu
from flashmoe_sim.timeline.assemble import Conditions, price, weigh
from tests.support import refused

PAIR = "2x strix-halo-128 over 10gbe"


def test_memory_is_the_sum_and_rates_are_those_of_one() -> None:
    one, both = dict(load_machine("strix-halo-128").quantities()), dict(load_machine(PAIR).quantities())
    summed = {"memory.ram_gib", "memory.reserve_gib", "gpu.memory_gib"}
    assert {path for path in one if both[path] != one[path]} == summed
    assert all(both[path].value == 2 * one[path].value for path in summed)
    assert both.keys() - one.keys() == {"network.rate_gb_s", "network.hop_us"}
    assert (load_machine(PAIR).gpus, load_machine(PAIR).machines) == (2, 2)


@pytest.mark.parametrize("text", [PAIR, "2 x strix-halo-128 over 10 GbE", " 2X Strix-Halo-128  over  10gbe "])
def test_one_pair_in_several_spellings(text: str) -> None:
    assert several_in(text) is not None
    assert load_machine(text).quantities() == load_machine(PAIR).quantities()


def test_parts_are_joined_too() -> None:
    """Two computers with two cards each are four GPUs."""
    machine = load_machine("2x 2x rtx-3090 + ryzen-5950x + 64GiB over 1gbe")
    assert (machine.gpus, machine.machines) == (4, 2)
    unlike = load_machine("3x rtx-3090 + rtx-3060 + ryzen-5950x + 64GiB over 1gbe")
    assert [card.name for card in unlike.cards] == ["rtx-3090", "rtx-3060"] * 3
    with refused(Conflict, "machines within machines"):
        joined(load_machine(PAIR), Several(2, PAIR, "10gbe"))


@pytest.mark.parametrize(
    ("text", "why", "kind"),
    [
        ("2x gb10-128", "several machines need the network between them; write 2x gb10-128 over 10gbe", Conflict),
        ("2x gb10-128 over wifi", "unknown network 'wifi'; known: 1gbe, 2.5gbe, 5gbe", UnknownName),
        ("1x gb10-128 over 10gbe", "expected 2 to 16 machines", OutOfRange),
        ("9x 2x rtx-3090 + 64GiB over 10gbe", "expected 2 to 8 machines, since 16 GPUs are the most", OutOfRange),
        ("2x ryzen-5600 + 64GiB over 10gbe", "several machines are known with GPUs only", Incomplete),
        ("2x nothing over 10gbe", "unknown machine 'nothing'", UnknownName),
    ],
)
def test_machines_that_cannot_be_joined(text: str, why: str, kind: type[BadInput]) -> None:
    with refused(kind, why):
        load_machine(text)


def test_a_file_has_them() -> None:
    text = toml(load_machine(PAIR))
    assert parse_machine(text, where="pair.toml") == load_machine(PAIR)
    with refused(Malformed, "pair.toml: machines is 1; two or more need [network]"):
        parse_machine(text.replace("machines = 2", "machines = 1"), where="pair.toml")


@pytest.mark.parametrize("number", [2, 3])
def test_each_machine_after_the_first_adds_a_hop(number: int) -> None:
    """With 2,880 numbers of 4 bytes there and back at 90% of 1.25 GB/s."""
    model, conditions = named_model("gpt-oss-120b"), Conditions()
    weights = weigh(model, tuple(model.layers.values()), conditions)
    costs = price(weights, load_machine(f"{number}x strix-halo-128 over 10gbe"), conditions, io_split=1)
    sent_s = 2 * 4 * 2880 / (0.9 * 1.25e9)
    hop_s = 1e-6 * estimate("network.hop_us").value
    assert costs.step_s == pytest.approx((number - 1) * (hop_s + sent_s))
    assert price(weights, load_machine("strix-halo-128"), conditions, io_split=1).step_s == 0


def test_only_the_whole_model_on_gpus_runs_on_them() -> None:
    case = Case(named_model("gpt-oss-120b"), load_machine(PAIR))
    assert AllGpu().why_not(case) == ""
    assert Cpu().why_not(case) == "is known for one machine only; these are 2"
    words = AllGpu().launch(case).words
    assert words[words.index("--rpc") + 1] == "RPC_HOSTS"
    assert "--rpc" not in AllGpu().launch(Case(case.model, load_machine("strix-halo-128"))).words
