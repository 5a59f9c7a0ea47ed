"""One PC, one answer: less said of it widens the intervals, and what is known of it lies within them or overlaps."""

from __future__ import annotations

from itertools import permutations

import pytest

from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine

PCS = (  # from what is first said to the whole, with memory that the CPU takes at best or slower
    ("rtx-3060 + 32GiB", "ddr4-3200x2", "ryzen-5600", "nvme-gen3", "pcie4x16"),
    ("rtx-4090 + 96GiB", "ddr5-5200x2", "ryzen-7950x", "nvme-gen4", "pcie4x16"),
    ("rtx-5090 + 64GiB", "ddr5-6000x2", "ryzen-9950x", "nvme-gen5", "pcie5x16"),
    ("rtx-3090 + 512GiB", "ddr4-3200x8", "epyc-7763", "nvme-gen4", "pcie4x16"),
    ("rx-7900-xtx + 64GiB", "ddr5-6000x2", "ryzen-7700x", "nvme-gen4", "pcie4x16"),
    ("rtx-4060-laptop + 32GiB", "ddr5-5600x2", "i7-13700hx", "nvme-gen4", "pcie4x8"),
    ("2x rtx-3090 + 128GiB", "ddr4-3200x2", "ryzen-5950x", "nvme-gen4", "pcie4x8"),
)
RATES = ("memory.bandwidth_gb_s", "storage.read_gb_s", "link.pinned_gb_s", "cpu.weights_gb_s", "gpu.weights_gb_s")


@pytest.mark.parametrize("pc", PCS, ids=[pc[0] for pc in PCS])
def test_a_detail_more_stays_within_what_was_said_before(pc: tuple[str, ...]) -> None:
    whole = dict(load_machine(" + ".join(pc)).quantities())
    for known in range(1, len(pc)):
        less = dict(load_machine(" + ".join(pc[:known])).quantities())
        for path in RATES:
            # a drive that nobody named is taken as one of PCIe 4.0 at most; one of 5.0 overlaps with that
            lo, hi = (whole[path].lo, whole[path].hi) if "storage" in path else (whole[path].value,) * 2
            assert less[path].lo <= 1.02 * hi, (path, pc[:known])
            assert less[path].hi >= 0.98 * lo, (path, pc[:known])


@pytest.mark.parametrize("pc", PCS[:3], ids=[pc[0] for pc in PCS[:3]])
def test_any_order_and_any_mark_is_the_same_machine(pc: tuple[str, ...]) -> None:
    words = [word for part in pc for word in part.split(" + ")]
    marks = (" + ", ", ", " / ", " ; ", " | ", "\n", " and ")
    found: list[Machine] = []
    for at, order in enumerate(permutations(words)):
        if at % 37 == 0:
            found.append(load_machine(marks[at % len(marks)].join(order)))
    assert len(found) > 15
    assert all(one == found[0] for one in found)
