"""How long a read takes between measured points."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashmoe_sim.machines.reads import MeasuredRead, ReadTable

KIB = 1024
Points = dict[tuple[int, int], float]

points = st.dictionaries(
    st.tuples(st.sampled_from([4, 16, 128, 1024, 4096]), st.sampled_from([1, 2, 3, 8, 32])),
    st.floats(0.01, 50),
    min_size=1,
    max_size=12,
)


def table(measured: Points) -> ReadTable:
    return ReadTable([MeasuredRead(size, lanes, gb_s, "test") for (size, lanes), gb_s in measured.items()])


def time(size_kib: float, lanes: int, gb_s: float) -> float:
    """Of one of `lanes` reads that reach gb_s together."""
    return size_kib * KIB * lanes / (gb_s * 1e9)


CROSS = {(64, 4): 1.0, (256, 4): 2.0, (1024, 1): 1.5, (1024, 4): 3.0, (1024, 16): 3.6}
AT_1, AT_4, AT_16 = time(1024, 1, 1.5), time(1024, 4, 3.0), time(1024, 16, 3.6)


@pytest.mark.parametrize(
    ("size_kib", "lanes", "seconds"),
    [
        (1024, 1, AT_1),
        (1024, 2, AT_1 + (AT_4 - AT_1) / 3),  # a third of the way from 1 to 4
        (1024, 10, (AT_4 + AT_16) / 2),
        (1024, 64, time(1024, 64, 3.6)),  # beyond the deepest: its bandwidth
        (256, 4, time(256, 4, 2.0)),
        (256, 1, time(256, 4, 2.0) * AT_1 / AT_4),  # one point: the shape of 1024 KiB
        (256, 16, time(256, 4, 2.0) * AT_16 / AT_4),
        (640, 4, (time(256, 4, 2.0) + AT_4) / 2),  # halfway between 256 and 1024 KiB
        (640, 1, (time(256, 4, 2.0) * AT_1 / AT_4 + AT_1) / 2),
        (16, 4, time(16, 4, 1.0)),  # below the smallest: its bandwidth
        (8192, 4, time(8192, 4, 3.0)),
    ],
)
def test_a_sweep_of_sizes_and_one_of_lanes(size_kib: int, lanes: int, seconds: float) -> None:
    assert table(CROSS).read_s(size_kib * KIB, lanes) == pytest.approx(seconds)


def test_a_size_with_its_own_curve_goes_on_like_the_longest() -> None:
    """128 KiB was measured at 2 and 4 lanes; at 1 and 16 it follows 1024 KiB, scaled to meet it at 2 and 4."""
    of = table({**CROSS, (128, 2): 1.0, (128, 4): 1.8})
    at_2, at_4 = time(128, 2, 1.0), time(128, 4, 1.8)
    assert of.read_s(128 * KIB, 1) == pytest.approx(at_2 * AT_1 / (AT_1 + (AT_4 - AT_1) / 3))
    assert of.read_s(128 * KIB, 3) == pytest.approx((at_2 + at_4) / 2)
    assert of.read_s(128 * KIB, 16) == pytest.approx(at_4 * AT_16 / AT_4)


def test_latency_and_bytes() -> None:
    """Two sizes with 50 us a request and 2 GB/s: any size between them has the same."""
    small, large = 50e-6 + 4 * KIB / 2e9, 50e-6 + 4096 * KIB / 2e9
    of = table({(4, 1): 4 * KIB / small / 1e9, (4096, 1): 4096 * KIB / large / 1e9})
    for size_kib in (4, 5, 64, 1000, 4096):
        assert of.read_s(size_kib * KIB, 1) == pytest.approx(50e-6 + size_kib * KIB / 2e9)


def test_one_point_is_the_bandwidth_everywhere() -> None:
    of = table({(128, 4): 2.5})
    for size_kib in (1, 128, 9999):
        for lanes in (1, 4, 64):
            assert of.read_s(size_kib * KIB, lanes) == pytest.approx(time(size_kib, lanes, 2.5))


@given(points)
def test_measured_points_are_met_in_any_order(measured: Points) -> None:
    of, turned = table(measured), table(dict(reversed(measured.items())))
    for (size, lanes), gb_s in measured.items():
        assert of.read_s(size * KIB, lanes) == pytest.approx(time(size, lanes, gb_s))
        assert turned.read_s(size * KIB, lanes) == of.read_s(size * KIB, lanes)


@given(points, st.floats(1, 1e8), st.floats(1, 100))
def test_a_device_twice_as_fast_is_so_everywhere(measured: Points, size_bytes: float, lanes: float) -> None:
    slow, fast = table(measured), table({point: 2 * gb_s for point, gb_s in measured.items()})
    assert fast.read_s(size_bytes, lanes) == pytest.approx(slow.read_s(size_bytes, lanes) / 2)


@given(
    st.lists(st.floats(1e-6, 1e-2), min_size=4, max_size=4).map(sorted),
    st.lists(st.tuples(st.floats(1, 1e8), st.floats(1, 100)), min_size=2, max_size=2),
)
def test_larger_and_deeper_take_no_less(seconds: list[float], reads: list[tuple[float, float]]) -> None:
    """Where they do at the measured points."""
    first, second, third, fourth = seconds
    grid = {(16, 1): first, (16, 8): second, (1024, 1): third, (1024, 8): fourth}
    of = table({(size, lanes): size * KIB * lanes / s / 1e9 for (size, lanes), s in grid.items()})
    (size_a, lanes_a), (size_b, lanes_b) = reads
    least = of.read_s(min(size_a, size_b), min(lanes_a, lanes_b))
    assert of.read_s(max(size_a, size_b), max(lanes_a, lanes_b)) >= least * (1 - 1e-9)
