"""From what a probe found to a machine's file."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from flashmoe_sim.api import compare
from flashmoe_sim.machines.here.by_system import MacFacts
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.machines.table import PRESETS
from flashmoe_sim.machines.write import write_machine
from native_bridge.probe.as_machine import UNMEASURED, as_machine
from native_bridge.probe.estimate import Estimate
from native_bridge.probe.gpu_copies import Gpu, LinkFound
from native_bridge.probe.memory import MemoryFound
from native_bridge.probe.probe import Facts, Probed
from native_bridge.probe.storage import Point, StorageFound

GIB, MIB, KIB = 2**30, 2**20, 2**10


def about(value: float) -> Estimate:
    return Estimate(value, 0.9 * value, 1.2 * value, 5)


def points(*rates: tuple[int, int, float]) -> tuple[Point, ...]:
    return tuple(Point(size, depth, about(rate)) for size, depth, rate in rates)


STORAGE = StorageFound(
    points((64 * KIB, 1, 0.5), (64 * KIB, 4, 1.0), (4 * MIB, 1, 2.0), (4 * MIB, 4, 3.0)),
    how="fio 3.33, psync",
    access="direct",
    cached_share=0.0,
    request_us=about(100),
    notes=(),
)
FOUND = Probed(
    facts=Facts("A CPU", 8, 32 * GIB, False, 28 * GIB, "Linux 6.1", "ext4", "/dev/nvme0n1 (A disk)"),
    storage=STORAGE,
    faults_gb_s=about(0.6),
    memory=MemoryFound(8, GIB, GIB, about(10), about(25), about(12), about(3)),
    gpu=None,
    link=None,
    mac=None,
    seconds=60,
    written_bytes=8 * GIB,
    write_gb_s=1.5,
    notes=(),
)
CARD = Gpu("A card", 24 * GIB, 23 * GIB, False, "cupy 14.2.0", lambda size_bytes, pinned: lambda: None)
LINK = LinkFound(about(24), about(16), about(10))


def made(found: Probed, tmp_path: Path) -> Machine:
    """The machine, as it is after it went through its file."""
    machine = as_machine(found, name="mine", today=date(2026, 8, 1))
    write_machine(machine, tmp_path / "mine.toml", force=True)
    assert load_machine(tmp_path / "mine.toml") == machine
    return machine


def test_a_desktop_without_a_gpu(tmp_path: Path) -> None:
    machine = made(FOUND, tmp_path)
    assert machine.title == ("A CPU, 8 cores, 32 GiB, Linux 6.1, ext4 on /dev/nvme0n1 (A disk); computing not measured")
    assert (machine.unified, machine.gpu, machine.link) == (False, None, None)
    read = machine.storage.read_gb_s
    assert (read.value, read.lo, read.hi, read.estimated) == (3.0, 2.7, 3.6, False)
    assert read.source == "measured by sim machine probe, 2026-08-01, fio 3.33, psync"
    assert read.condition == ("reads of 4.00 MiB, 4 in flight, direct, ext4 on /dev/nvme0n1 (A disk), 5 rounds")
    assert machine.storage.request_us.value == 100
    assert machine.memory is not None
    known = {path.partition(".")[2]: (one.value, one.lo, one.hi) for path, one in machine.quantities()[:4]}
    assert known == {
        "ram_gib": (32, 32, 32),
        "bandwidth_gb_s": (50, 45, 60),
        "copy_gb_s": (12, 10.8, 14.4),
        "reserve_gib": pytest.approx((4, 3.6, 4.4)),
    }


def test_page_faults_read_more_than_the_pieces_wanted(tmp_path: Path) -> None:
    """0.6 GB/s of the pieces wanted, each read with a window of 256 KiB, or with the disk's own.

    Direct reads have about 3 GB/s, so that faster faults were of the page cache.
    """
    piece_bytes = max(point.size_bytes for point in STORAGE.points if point.size_bytes != 4 << 20)
    assert piece_bytes == 64 * KIB
    for read_ahead_kib, read_kib in ((0, 256), (128, 256), (512, 1024)):
        storage = made(replace(FOUND, facts=replace(FOUND.facts, read_ahead_kib=read_ahead_kib)), tmp_path).storage
        more = read_kib * KIB / piece_bytes
        rate = storage.faults_gb_s
        assert rate is not None
        assert (rate.value, rate.lo, rate.hi) == pytest.approx((0.6 * more, 0.54 * more, 0.72 * more), rel=1e-3)
        assert (storage.fault_kib is None) == (read_ahead_kib == 0)
    assert made(replace(FOUND, faults_gb_s=about(9)), tmp_path).storage.faults_gb_s is None
    assert made(replace(FOUND, faults_gb_s=None), tmp_path).storage.faults_gb_s is None


def test_reads_take_what_was_measured(tmp_path: Path) -> None:
    storage = made(FOUND, tmp_path).storage
    for point in STORAGE.points:
        seconds = storage.chunk_s(point.size_bytes, point.depth)
        assert point.size_bytes * point.depth / seconds / 1e9 == pytest.approx(point.gb_s.value)
    assert storage.measured[0].source == (
        "measured by sim machine probe, 2026-08-01, fio 3.33, psync, 64.0 KiB, 1 in flight, direct: "
        "0.45 to 0.6 in 5 rounds"
    )


def test_where_4_mib_was_not_reached_the_largest_stands_for_it(tmp_path: Path) -> None:
    less = replace(FOUND, storage=replace(STORAGE, points=points((64 * KIB, 1, 0.5), (64 * KIB, 4, 1.0))))
    storage = made(less, tmp_path).storage
    assert storage.read_gb_s.value == 1.0
    assert storage.read_gb_s.condition.startswith("reads of 64.0 KiB, 4 in flight")
    assert 64 * KIB * 4 / storage.chunk_s(64 * KIB, 4) / 1e9 == pytest.approx(1.0)


def test_what_only_runs_tell_is_marked(tmp_path: Path) -> None:
    machine = made(FOUND, tmp_path)
    for quantity in (machine.cpu.layer_us, machine.host.call_us, machine.host.install_us):
        assert (quantity.estimated, quantity.source) == (True, UNMEASURED)
        assert 0 < quantity.lo < quantity.value < quantity.hi
        assert quantity.condition == f"median of {len(PRESETS)} presets, and what the least and the most have"
    assert machine.cpu.layer_us.hi == 1700  # vm-2core's
    assert machine.cpu.knee_tokens.estimated


def test_computing_is_never_free_but_an_estimate_with_a_wide_interval(tmp_path: Path) -> None:
    machine = made(FOUND, tmp_path)
    rate = machine.cpu.weights_gb_s
    assert (rate.estimated, rate.source) == (True, UNMEASURED)
    # of 50 GB/s (45 to 60): of the presets, m1-ultra-128's CPU has the least of its memory's bandwidth, 120 of 800 GB/s
    assert rate.lo == pytest.approx(45 * 120 / 800)
    assert rate.hi > 2 * rate.lo
    assert rate.lo < rate.value < 50
    assert ": cpu.weights_gb_s, the speed of computing, is only an estimate: " in machine.notes[0]


def test_a_gpu_of_its_own_memory_computes_at_rates_that_presets_have(tmp_path: Path) -> None:
    machine = made(replace(FOUND, gpu=CARD, link=LINK), tmp_path)
    rate = machine.gpu.weights_gb_s
    assert (rate.lo, rate.hi) == (240, 1600)  # rtx-3060's least, rtx-5090's most
    assert machine.notes


def test_new_memory(tmp_path: Path) -> None:
    first_touch = made(FOUND, tmp_path).host.first_touch_gb_s
    assert (first_touch.value, first_touch.estimated) == (3, False)
    assert (
        first_touch.condition == "a byte to each page of 8.00 MiB of new memory, each of 4 threads, Linux 6.1, 5 rounds"
    )


def test_what_is_evidently_memory_is_marked(tmp_path: Path) -> None:
    storage = made(replace(FOUND, storage=replace(STORAGE, cached_share=0.8)), tmp_path).storage
    assert storage.read_gb_s.estimated
    assert "evidently the page cache or memory, not a device" in storage.read_gb_s.condition
    assert "evidently the page cache" in storage.measured[0].source


def test_a_graphics_card(tmp_path: Path) -> None:
    machine = made(replace(FOUND, gpu=CARD, link=LINK), tmp_path)
    assert not machine.unified
    assert machine.cpu is not None  # which computes experts beside the card
    assert (machine.gpu.memory_gib.value, machine.gpu.memory_gib.condition) == (23, "free on A card")
    assert (machine.link.pinned_gb_s.value, machine.link.pageable_gb_s.value) == (24, 16)
    assert machine.link.request_us.source == "measured by sim machine probe, 2026-08-01, cupy 14.2.0"
    assert machine.link.pageable_gb_s.condition == "copies of 4 and 64 MiB to A card, pageable, 5 rounds"
    assert " with A card, 32 GiB" in machine.title
    assert machine.host.first_touch_gb_s is None  # the bank is in its own memory


def test_a_card_and_a_processor_that_the_catalogue_has(tmp_path: Path) -> None:
    card = replace(CARD, name="NVIDIA GeForce RTX 4060 Ti", memory_bytes=16 * GIB, free_bytes=15 * GIB)
    facts = replace(FOUND.facts, processor="AMD Ryzen 9 5950X 16-Core Processor", cores=32, physical_cores=16)
    machine, parts = (
        made(replace(FOUND, gpu=card, facts=facts), tmp_path),
        load_machine("rtx-4060-ti-16gb + 5950x + 32GiB"),
    )
    assert machine.gpu.weights_gb_s == parts.gpu.weights_gb_s
    assert machine.gpu.memory_gib.value == 15  # measured
    assert (machine.gpu_compute, machine.cpu_features) == (parts.gpu_compute, parts.cpu_features)
    assert machine.cpu_cores == 16
    assert machine.link == parts.link  # not measured
    assert machine.memory.bandwidth_gb_s.value == 50  # measured
    answer = compare(model="gpt-oss-20b", machine=machine, systems="placed:cpu_layers=8", hit_rate=0.5)
    assert answer["tok_s"][0] > 10


def test_a_gpu_that_shares_the_memory_has_no_link(tmp_path: Path) -> None:
    machine = made(replace(FOUND, gpu=replace(CARD, integrated=True)), tmp_path)
    assert (machine.unified, machine.link) == (True, None)
    assert machine.gpu.memory_gib is None
    assert machine.memory.bandwidth_gb_s.estimated
    assert machine.memory.bandwidth_gb_s.condition.endswith("by the CPU alone, 5 rounds")
    assert machine.host.first_touch_gb_s is not None


def test_a_mac(tmp_path: Path) -> None:
    mac = MacFacts("Apple M5 Pro", "Mac17,9", 20, 24576)
    machine = made(replace(FOUND, mac=mac), tmp_path)
    preset = load_machine("m5-pro-48")
    assert machine.unified
    assert machine.title.startswith("Apple M5 Pro (20-core GPU), 32 GiB, ")
    assert (machine.gpu.memory_gib.value, machine.gpu.memory_gib.source) == (24, "sysctl iogpu.wired_limit_mb")
    more = made(replace(FOUND, mac=replace(mac, wired_limit_mib=40960)), tmp_path).gpu
    assert more.memory_gib.value == 32  # no more than there is
    assert machine.memory.bandwidth_gb_s.value == preset.memory.bandwidth_gb_s.value
    assert machine.memory.bandwidth_gb_s.source.startswith("preset m5-pro-48: ")
    assert machine.memory.ram_gib.condition == "Mac17,9, Linux 6.1"
    unknown = as_machine(replace(FOUND, mac=replace(mac, gpu_cores=7)), name="mine", today=date(2026, 8, 1)).memory
    assert (unknown.bandwidth_gb_s.value, unknown.bandwidth_gb_s.estimated) == (50, True)


def test_memory_that_was_not_measured_is_left_out(tmp_path: Path) -> None:
    less = made(replace(FOUND, memory=replace(FOUND.memory, from_cache=None, first_touch=None)), tmp_path)
    assert less.memory is None
    assert less.host.first_touch_gb_s is None
