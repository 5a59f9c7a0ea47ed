"""Read times worked by hand, and machines with one number changed."""

from __future__ import annotations

from dataclasses import replace
from math import hypot

import pytest

from flashmoe_sim.io.errors import Incomplete, OutOfRange, UnknownName
from flashmoe_sim.machines.load import load_machine, parse_machine
from flashmoe_sim.machines.machine import Quantity, Storage
from flashmoe_sim.machines.reads import MeasuredRead
from flashmoe_sim.machines.table import PRESETS
from tests.machines.builders import FULL

MIB = 2**20


def exactly(value: float) -> Quantity:
    return Quantity(value, value, value, "test", "test")


def storage(*points: tuple[float, int, float], read_gb_s: float = 2, lanes: int = 4) -> Storage:
    measured = tuple(MeasuredRead(*point, "test") for point in points)
    return Storage(exactly(read_gb_s), exactly(100), exactly(lanes), exactly(0.5), measured)


def test_without_a_table() -> None:
    """100 us and the bytes of all reads in flight at 2 GB/s; at 1 GB/s when hot."""
    assert storage().chunk_s(1_000_000, 1) == pytest.approx(100e-6 + 0.5e-3)
    assert storage().chunk_s(1_000_000, 3) == pytest.approx(100e-6 + 1.5e-3)
    assert storage().chunk_s(1_000_000, 3, hot=True) == pytest.approx(100e-6 + 3e-3)


def test_with_a_table() -> None:
    """The table has 1.5 GB/s at 4 MiB and 4 in flight, where read_gb_s says 3: all of it counts double."""
    of = storage((4096, 1, 1.0), (4096, 4, 1.5), (1024, 4, 0.75), read_gb_s=3)
    assert of.chunk_s(4 * MIB, 4) == pytest.approx(4 * 4 * MIB / 3e9)
    assert of.chunk_s(4 * MIB, 1) == pytest.approx(4 * MIB / 2e9)
    assert of.chunk_s(1 * MIB, 4) == pytest.approx(4 * MIB / 1.5e9)
    assert of.chunk_s(4 * MIB, 4, hot=True) == pytest.approx(2 * of.chunk_s(4 * MIB, 4))


def faults(*, read_gb_s: float = 4, window_kib: float = 256, at_once: float = 2) -> Storage:
    of = storage(read_gb_s=read_gb_s)
    return replace(
        of, fault_kib=exactly(window_kib), faults_in_flight=exactly(at_once), around_windows=2, by_faults=True
    )


def test_page_faults_read_windows() -> None:
    """A window takes 100 us and 119 us at 2.2 GB/s, 0.55 of the drive; of a piece of 1 MiB two are read at once, and
    one of 64 KiB is in one. The drive reads 4 GB/s beside that: what both would take adds up like sides of a square.
    A piece of a quarter of a window is read with one, of half of one with two, and a larger one has two around it.
    """
    window, alone_s = 256 * 1024, 100e-6 + 256 * 1024 / (0.55 * 4e9)
    quarter = window // 4
    read = {MIB: MIB + 2 * window, 384 * 1024: 384 * 1024 + 2 * window, 2 * quarter: 2 * window, quarter: window}
    for piece, at_once in ((MIB, 2), (384 * 1024, 1.5), (2 * quarter, 1), (quarter, 1)):
        assert piece + faults().around_bytes(piece) == read[piece]
        rate = 1 / hypot(alone_s / (at_once * window), 1 / 4e9)
        for depth in (1, 3):
            assert faults().chunk_s(piece, depth) == pytest.approx(depth * read[piece] / rate)
    assert storage().around_bytes(MIB) == replace(faults(), by_faults=False).around_bytes(MIB) == 0


def test_page_faults_of_larger_pieces_read_no_less() -> None:
    sizes = [4096 * number for number in range(1, 600)]
    for window_kib in (32, 68, 128, 256, 1024):
        read = [size + faults(window_kib=window_kib).around_bytes(size) for size in sizes]
        assert read == sorted(read)


def test_page_faults_of_a_faster_drive_and_more_at_once_are_no_slower() -> None:
    for piece in (16 * 1024, 300_000, MIB, 5 * MIB):
        drives = [faults(read_gb_s=rate).chunk_s(piece, 1) for rate in (0.1, 0.5, 2, 7, 14)]
        at_once = [faults(at_once=number).chunk_s(piece, 1) for number in (1, 1.5, 2, 8, 64)]
        assert drives == sorted(drives, reverse=True)
        assert at_once == sorted(at_once, reverse=True)


def test_wrong_reads() -> None:
    for size_bytes, depth in ((0, 1), (1, 0), (-5, 1)):
        with pytest.raises(OutOfRange, match=f"a read of {size_bytes} bytes with {depth} in flight"):
            storage().chunk_s(size_bytes, depth)
    cool = Storage(exactly(1), exactly(1), exactly(1))
    with pytest.raises(Incomplete, match=r"storage\.hot_share is not known for this machine"):
        cool.chunk_s(1, 1, hot=True)


@pytest.mark.parametrize("name", PRESETS)
def test_more_in_flight_and_larger_reads_take_longer(name: str) -> None:
    """From 16 KiB on: one published sweep has reads of 4 KiB 3% slower than those of 16 KiB, 32 in flight."""
    of = load_machine(name).storage
    depths, sizes = range(1, 41), [round(2 ** (power / 4)) for power in range(56, 100)]
    for size in sizes:
        times = [of.chunk_s(size, depth) for depth in depths]
        assert times == sorted(times)
    for depth in (1, 3, 8, 32):
        times = [of.chunk_s(size, depth) for size in sizes]
        assert times == sorted(times)


@pytest.mark.parametrize("name", PRESETS)
def test_read_gb_s_is_the_bandwidth_at_4_mib_and_lanes(name: str) -> None:
    """Exactly with a table; without one the cost of a request comes on top."""
    of = load_machine(name).storage
    lanes = int(of.lanes.value)
    wanted = lanes * 4 * MIB / (of.read_gb_s.value * 1e9) + (0 if of.measured else of.request_us.value * 1e-6)
    assert of.chunk_s(4 * MIB, lanes) == pytest.approx(wanted)
    faster = load_machine(name).varied("storage.read_gb_s", 2 * of.read_gb_s.value).storage
    shared = 0 if of.measured else of.request_us.value * 1e-6
    assert faster.chunk_s(MIB, 3) - shared == pytest.approx((of.chunk_s(MIB, 3) - shared) / 2)


def test_varied_changes_one_value() -> None:
    machine = parse_machine(FULL, where="")
    for path, quantity in machine.quantities():
        changed = machine.varied(path, quantity.value * 3)
        differing = [
            (before, after)
            for (_, before), (_, after) in zip(machine.quantities(), changed.quantities(), strict=True)
            if before is not after
        ]
        assert [before for before, _ in differing] == [quantity]
        assert differing[0][1].value == quantity.value * 3
        assert (differing[0][1].lo, differing[0][1].source) == (quantity.lo, quantity.source)
        assert changed.varied(path, quantity.value) == machine


def test_varied_needs_a_quantity_that_is_there() -> None:
    machine = parse_machine(FULL, where="")
    for path in ("storage", "storage.read", "cpu.weights_gb_s", "storage.measured", "name"):
        with pytest.raises(UnknownName, match=f"unknown quantity of full '{path}'; "):
            machine.varied(path, 1)
