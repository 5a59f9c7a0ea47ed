"""A mapped model in less and less RAM, by hand and as a law."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.systems.compare import Compared, at_setting
from flashmoe_sim.systems.cpu import Cpu
from tests.systems.cases import case, workload

KEPT = 0.5  # GiB that the system takes, see `cases.machine`
TOKEN_BYTES = 4 * 2 * 4 * MIB  # of experts: four layers with two of 4 MiB
AROUND_BYTES = 3 * 192 * 1024  # one and a half windows of 128 KiB for each of an expert's three tensors


def found(room_bytes: float, *, read_gb_s: float = 3) -> Compared:
    """Answered with this much RAM for experts, beside the dense weights."""
    on = case("laptop-ddr4", ram_gib=KEPT + (GIB + room_bytes) / GIB)
    storage = on.machine.storage
    slow = replace(storage, read_gb_s=replace(storage.read_gb_s, value=read_gb_s))
    on = replace(on, machine=replace(on.machine, os="", storage=slow))
    return at_setting(workload(on.model), on, Cpu(), interval=False)


@pytest.fixture(autouse=True)
def without_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flashmoe_sim.systems.base.Case.compute_bytes", lambda *_, **__: 0)


def test_dense_weights_stay_while_ram_holds_the_experts_of_a_token() -> None:
    """With less, each token reads all of them, beside its experts and what is around them."""
    experts_bytes = TOKEN_BYTES + 8 * AROUND_BYTES
    none, enough = found(0), found(TOKEN_BYTES + MIB)
    assert none.storage_bytes_per_token == pytest.approx(experts_bytes + GIB, rel=1e-6)
    assert enough.storage_bytes_per_token <= experts_bytes
    assert none.tok_s < enough.tok_s / 5


def test_more_ram_and_faster_drives_are_never_slower() -> None:
    rooms = [0, TOKEN_BYTES - MIB, TOKEN_BYTES, *(share * 256 * MIB for share in (0.2, 0.4, 0.7, 0.9, 1, 1.5))]
    speeds = [found(room).tok_s for room in rooms]
    assert speeds == sorted(speeds)
    for room in rooms:
        drives = [found(room, read_gb_s=rate).tok_s for rate in (0.5, 3, 14)]
        assert drives == sorted(drives)
