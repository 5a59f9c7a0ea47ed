"""Bandwidth between measured points."""

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


CROSS = {(64, 4): 1.0, (256, 4): 2.0, (1024, 1): 1.5, (1024, 4): 3.0, (1024, 16): 3.6}


@pytest.mark.parametrize(
    ("size_kib", "lanes", "gb_s"),
    [
        (1024, 1, 1.5),
        (1024, 2, 2.25),  # halfway between 1 and 4 in log2
        (1024, 8, 3.3),
        (1024, 64, 3.6),  # beyond the deepest
        (256, 4, 2.0),
        (256, 1, 2.0 * 1.5 / 3.0),  # one point: the shape of 1024 KiB
        (256, 16, 2.0 * 3.6 / 3.0),
        (512, 4, 2.5),  # halfway between 256 and 1024 KiB
        (512, 1, (1.0 + 1.5) / 2),
        (4, 4, 1.0),  # below the smallest
        (8192, 4, 3.0),
    ],
)
def test_a_sweep_of_sizes_and_one_of_lanes(size_kib: int, lanes: int, gb_s: float) -> None:
    assert table(CROSS).gb_s(size_kib * KIB, lanes) == pytest.approx(gb_s)


def test_a_size_with_its_own_curve_goes_on_like_the_longest() -> None:
    """128 KiB was measured at 2 and 4 lanes; at 1 and 16 it follows 1024 KiB, scaled to meet it at 2 and 4."""
    of = table({**CROSS, (128, 2): 1.0, (128, 4): 1.8})
    assert of.gb_s(128 * KIB, 1) == pytest.approx(1.0 * 1.5 / 2.25)
    assert of.gb_s(128 * KIB, 3) == pytest.approx(1.0 + 0.8 * 0.5849625)
    assert of.gb_s(128 * KIB, 16) == pytest.approx(1.8 * 3.6 / 3.0)


def test_one_point_is_the_bandwidth_everywhere() -> None:
    of = table({(128, 4): 2.5})
    assert {of.gb_s(size * KIB, lanes) for size in (1, 128, 9999) for lanes in (1, 4, 64)} == {2.5}


@given(points)
def test_measured_points_are_met_in_any_order(measured: Points) -> None:
    of, turned = table(measured), table(dict(reversed(measured.items())))
    for (size, lanes), gb_s in measured.items():
        assert of.gb_s(size * KIB, lanes) == pytest.approx(gb_s)
        assert turned.gb_s(size * KIB, lanes) == of.gb_s(size * KIB, lanes)


@given(points, st.floats(1, 1e8), st.floats(1, 100))
def test_a_device_k_times_as_fast_is_so_everywhere(measured: Points, size_bytes: float, lanes: float) -> None:
    slow, fast = table(measured), table({point: 8 * gb_s for point, gb_s in measured.items()})
    assert fast.gb_s(size_bytes, lanes) == pytest.approx(8 * slow.gb_s(size_bytes, lanes))


@given(st.lists(st.floats(0.01, 50), min_size=4, max_size=4), st.floats(1, 1e8), st.floats(1, 100))
def test_a_full_grid_is_never_left(gb_s: list[float], size_bytes: float, lanes: float) -> None:
    of = table(dict(zip([(16, 1), (16, 8), (1024, 1), (1024, 8)], gb_s, strict=True)))
    assert min(gb_s) * (1 - 1e-9) <= of.gb_s(size_bytes, lanes) <= max(gb_s) * (1 + 1e-9)
