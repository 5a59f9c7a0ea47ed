"""Settings of all systems: what is left out is chosen, 0 is none, and no number means "choose for me"."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import fields, replace
from inspect import getdoc

import pytest

from flashmoe_sim.io.errors import BadInput, OutOfRange
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import at_setting
from flashmoe_sim.systems.ktransformers import KTransformers
from flashmoe_sim.systems.table import SYSTEMS, parse_system
from tests.support import refused
from tests.systems.cases import served_by, workload
from tests.systems.models import big_model

# Defaults of 0 that are none: the program's own.
NONE = {("neurall", "lead"), ("hot-cache", "update_rate"), ("cached", "cpu_share"), ("colibri", "pin_gb")}
MACHINES = ("rtx-4090", "m3-max-48", "strix-halo-128")
CHOOSES = re.compile(r"(?<!\d)(0|-1): (as (much|many)|all|the|what|half|1 with|from|all (layers|experts))")


def numbers(system: System) -> list[str]:
    return [item.name for item in fields(system) if str(item.type).startswith(("int", "float"))]


def cases(system: System) -> list[Case]:
    """Where the system sizes itself."""
    found = []
    for name in MACHINES:
        case = Case(served_by(system, big_model()), load_machine(name), GIB // 16)
        with suppress(BadInput):
            if not system.why_not(case) and system.sized(case):
                found.append(case)
    return found


@pytest.mark.parametrize("name", SYSTEMS)
def test_no_number_means_choose_for_me(name: str) -> None:
    system = SYSTEMS[name]()
    for item in fields(system):
        if item.name in numbers(system):
            assert item.default is None or item.default > 0 or (name, item.name) in NONE, item.name
        assert item.default != -1, item.name
    assert not CHOOSES.search(" ".join((getdoc(type(system)) or "").split()))
    for setting in numbers(system):
        with pytest.raises(OutOfRange):
            parse_system(f"{name}:{setting}=-1")


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_is_left_out_is_chosen_and_0_is_none(name: str) -> None:
    """A 0 that cannot be is refused, and the line says to leave it out."""
    system = SYSTEMS[name]()
    if not system.size or getattr(system, system.size) is not None:  # a number that is the program's own default
        assert not system.size or system.sized(cases(system)[0]) == system
        return
    for case in cases(system):
        sized = system.sized(case)
        assert type(getattr(sized, system.size)) is int or sized.cpu_layers is not None  # type: ignore[attr-defined]
        assert sized.unsized == system or name == "qvac"
    assert parse_system(name).spec == name
    try:
        none = parse_system(f"{name}:{system.size}=0")
    except OutOfRange as error:
        assert "leave it out to have it chosen" in str(error)  # noqa: PT017
    else:
        assert none.size_given
        assert none.spec == f"{name}:{system.size}=0"
        assert all(getattr(none.sized(case), system.size) == 0 for case in cases(system))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("moe-cache:cache_mib=0", "cache_mib=0 is not in 1..2147483647; leave it out to have it chosen"),
        ("cached:cpu_layers=-1", "cpu_layers=-1 is not in 1..2147483647; leave it out to have it chosen"),
        ("crow:tier_gib=-1", "tier_gib=-1 is not in 0..2147483647; leave it out to have it chosen"),
        ("strata:pcie_share=-1", "pcie_share=-1.0 is not in 0..1; leave it out to have it chosen"),
        ("big-moe-on-edge:top_k=0", "top_k=0 is not in 1..2147483647; leave it out to have it chosen"),
        ("imp:percent=0", "percent=0 is not in 1..90"),
        ("moe-cache:cache_mib=none", "cache_mib is 'none', expected int"),
    ],
)
def test_bad_settings_are_one_line(text: str, words: str) -> None:
    with refused(BadInput, words):
        parse_system(text)


def test_no_expert_of_ktransformers_on_the_gpu() -> None:
    """The CPU then computes every expert, a little slower than beside one on the GPU, and far from what fits."""
    none, one = KTransformers(experts=0), KTransformers(experts=1)
    case = Case(served_by(none, big_model()), load_machine("rtx-4090 + 512GiB"), GIB // 16)
    of = workload(case.model)
    found = [at_setting(of, case, each, interval=False) for each in (none, one, none.unsized.sized(case))]
    speeds = [each.tok_s or 0.0 for each in found]
    assert found[0].hit_rate == 0
    assert 0 < speeds[0] <= speeds[1] < speeds[2]
    assert all(share.size_bytes == 0 for share in none.memory(case) if share.what == "experts")
    assert "--kt-num-gpu-experts 0" in none.launch(case).line
    assert replace(none, strategy="frequency").plan(case).setup.policy.name == "demand"
