"""A faster part, and more RAM, is never slower."""

from __future__ import annotations

from itertools import pairwise

import pytest

from flashmoe_sim import api
from flashmoe_sim.machines.load import load_machine
from tests.timeline.faster import check, main

DRAWN = 400


def test_a_faster_part_and_more_ram_are_never_slower(capsys: pytest.CaptureFixture[str]) -> None:
    found = [made for number in range(DRAWN) if (made := check(number)) is not None]
    assert len(found) > DRAWN // 3
    assert [made.label for made in found if not made.holds] == []
    assert main(3) == 0
    assert "3 checks of " in capsys.readouterr().out


@pytest.mark.parametrize("machine", ["m5-max-128", "rtx-4090"])
def test_more_ram_for_an_engine_without_a_bank(machine: str) -> None:
    """Reads and copies at once would be faster than copies alone, which is what more RAM leads to."""
    asked = {"bank": 16, "policy": "demand", "contract": "atomic", "execution": "page-cache"}
    on, trace = load_machine(machine), api.load_trace("gpt-oss-120b")
    speeds = [
        api.replay(trace, machine=on.varied("memory.ram_gib", ram), **asked)["tok_s"][0] for ram in (32, 40, 48, 64, 96)
    ]
    assert all(after >= before * (1 - 1e-12) for before, after in pairwise(speeds))
    assert speeds[-1] > speeds[0]


def test_a_drive_that_is_faster_than_copies_gains_nothing() -> None:
    """What is read through the page cache is copied out of it as well."""
    asked = {"bank": 16, "policy": "lru", "contract": "atomic"}
    on, trace = load_machine("rtx-4090").varied("storage.read_gb_s", 40), api.load_trace("gpt-oss-120b")
    little, much = (api.replay(trace, machine=on.varied("memory.ram_gib", ram), **asked) for ram in (24, 96))
    assert much["tok_s"][0] == little["tok_s"][0]
    assert api.replay(trace, machine=on, direct_io=True, **asked)["tok_s"][0] > much["tok_s"][0]
