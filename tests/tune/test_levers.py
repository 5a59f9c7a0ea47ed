"""What each single change of a machine brings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashmoe_sim.io.errors import Unsupported
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.machines.table import PRESETS
from flashmoe_sim.systems.all_gpu import AllGpu
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.compare import at_setting
from flashmoe_sim.systems.slot_bank import SlotBank
from flashmoe_sim.tune.buy import at_least
from flashmoe_sim.tune.change import WhatIf
from flashmoe_sim.tune.levers import changed_machines, levers, named
from tests.systems.cases import machine, model, workload

LARGE = model(layers=range(2, 26), experts=128, top_k=4, arch="gemma4")  # 12 GiB of experts, slots on the GPU


def quick_but_for_storage() -> Machine:
    """Nothing but reads takes time worth mentioning, and no page cache is known of."""
    found = machine().scaled(
        {
            "gpu.weights_gb_s": 1e6,
            "gpu.layer_us": 1e-6,
            "link.pinned_gb_s": 1e6,
            "link.pageable_gb_s": 1e6,
            "link.request_us": 1e-6,
            "host.call_us": 1e-6,
            "host.install_us": 1e-6,
            "storage.read_gb_s": 0.1,
        },
    )
    return replace(found, memory=None)


def test_only_the_storage_helps_where_only_reads_take_time() -> None:
    case = Case(LARGE, quick_but_for_storage())
    found = levers(WhatIf(workload(LARGE), case, [SlotBank(slots=4)]))
    first, *others = found
    assert first.change.startswith("storage twice as fast")
    assert first.gain == pytest.approx(1, rel=0.01)  # twice the bytes a second, half the time of each request
    assert all(abs(one.gain) < 0.01 for one in others)


def test_a_larger_gpu_that_holds_every_expert() -> None:
    case = Case(LARGE, machine("rtx-3060", gpu_gib=11.2))
    found = {one.change: one for one in levers(WhatIf(workload(LARGE), case, [AllGpu(), SlotBank()]))}
    assert next(iter(found)) == "16 GiB of GPU memory instead of 12"
    one = found["16 GiB of GPU memory instead of 12"]
    assert (one.before.system.name, one.after.system.name) == ("slot-bank", "all-gpu")
    assert one.after.storage_bytes_per_token == 0
    larger = changed_machines(case.machine)[one.change]
    assert one.after.tok_s == at_setting(workload(LARGE), Case(LARGE, larger), AllGpu()).tok_s
    assert one.as_row()["gain"] == one.after.tok_s / one.before.tok_s - 1  # type: ignore[operator]


@pytest.mark.parametrize("name", ["rtx-3060", "m4-32", "laptop-ddr4"])
def test_no_better_machine_is_slower(name: str) -> None:
    case = Case(LARGE, load_machine(name))
    found = levers(WhatIf(workload(LARGE), case, [SlotBank()]))
    assert [one.gain for one in found] == sorted((one.gain for one in found), reverse=True)
    assert found[-1].gain > -1e-9


def test_only_changes_that_an_answer_names_have_their_interval_computed_at_once() -> None:
    """The others replay again when they are asked, with the same result."""
    case = Case(LARGE, load_machine("rtx-3060"))
    what_if = WhatIf(workload(LARGE), case, [SlotBank()])
    found = levers(what_if)
    assert [one.after.sure for one in found] == [one in named(found) for one in found]
    assert 0 < len(named(found)) < len(found)
    machines = changed_machines(case.machine)
    for one in found:
        again = what_if.sure(one.after, machines[one.change])
        assert (one.sure.tok_s, one.sure.tok_s_lo, one.sure.tok_s_hi) == (again.tok_s, again.tok_s_lo, again.tok_s_hi)
        assert one.after.tok_s == again.tok_s


@pytest.mark.parametrize("name", PRESETS)
def test_each_change_makes_one_thing_better(name: str) -> None:
    now = load_machine(name)
    changed = changed_machines(now)
    better = at_least([*changed.values(), now])
    assert better[:-1, -1].all()
    assert not better[-1, :-1].any()
    apart = better[:-1, :-1] & ~better[:-1, :-1].T
    smaller = [(a, b) for a in range(len(changed)) for b in range(len(changed)) if apart[a, b]]
    for a, b in smaller:  # only a size is more of the same change
        words = list(changed)[a].split()[1:], list(changed)[b].split()[1:]
        assert words[0] == words[1]


def test_a_larger_size_that_is_no_faster_is_left_out() -> None:
    """With 32 GiB all of the model is in RAM: 48 and 64 GiB are alike."""
    now = machine("rtx-3060", gpu_gib=11.2, ram_gib=32)
    found = levers(WhatIf(workload(LARGE), Case(LARGE, now), [SlotBank(slots=8)]))
    first, _ = (one for one in changed_machines(now) if "GiB of RAM" in one)
    sizes = [one.change for one in found if "GiB of RAM" in one.change]
    assert sizes == [first]


def test_sizes_are_the_next_usual_ones() -> None:
    assert [one for one in changed_machines(load_machine("laptop-ddr4")) if "GiB" in one] == [
        "32 GiB of RAM instead of 14.8"
    ]
    assert [one for one in changed_machines(machine("rtx-3060", gpu_gib=11.2, ram_gib=32)) if "GiB" in one] == [
        "48 GiB of RAM instead of 32",
        "64 GiB of RAM instead of 32",
        "16 GiB of GPU memory instead of 12",
        "24 GiB of GPU memory instead of 12",
    ]


def test_more_memory_that_a_gpu_shares_is_the_gpus_too() -> None:
    now = load_machine("m4-32")
    more = changed_machines(now)["64 GiB of RAM instead of 32, another computer"]
    assert more.gpu.memory_gib.value == 2 * now.gpu.memory_gib.value
    assert not [one for one in changed_machines(now) if "the GPU" in one]


def test_several_gpus_keep_their_size() -> None:
    two = load_machine("2x rtx-3060 + ryzen-5600 + 32GiB")
    assert [one for one in changed_machines(two) if "GiB" in one] == [
        "48 GiB of RAM instead of 32",
        "64 GiB of RAM instead of 32",
    ]


def test_what_does_not_run_has_no_levers() -> None:
    with pytest.raises(Unsupported, match="rtx-3060: all-gpu does not run there: takes 14"):
        levers(WhatIf(workload(LARGE), Case(LARGE, machine("rtx-3060", gpu_gib=11.2)), [AllGpu()]))
