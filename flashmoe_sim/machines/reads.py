"""The time of a read, by its size and the reads in flight, interpolated between measured points."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class MeasuredRead:
    """One point of a sweep: reads of `size_kib` with `lanes` of them in flight reached `gb_s` together."""

    size_kib: float
    lanes: int
    gb_s: float
    source: str


class ReadTable:
    """Measured points, completed and interpolated.

    Of `lanes` reads in flight, each takes as long as all of them together. That time is linear in the reads in flight
    between two measured numbers of them, and linear in the size between two measured sizes: the cost of a request, then
    its bytes. (Bandwidth linear in the logarithms, the other usual rule, can make a larger read faster if points are
    far apart.) Outside the measured range, the bandwidth at the edge holds. A size that was measured with fewer numbers
    of lanes than another continues like the size with the most (among these, the largest), scaled to match.
    """

    def __init__(self, measured: Sequence[MeasuredRead]) -> None:
        by_size: dict[float, list[tuple[float, float]]] = {}
        for point in sorted(measured, key=lambda point: (point.size_kib, point.lanes)):
            size_bytes = point.size_kib * 1024
            by_size.setdefault(size_bytes, []).append((point.lanes, size_bytes * point.lanes / (point.gb_s * 1e9)))
        self._by_size = list(by_size.items())
        _, _, self._longest = max((len(curve), size_bytes, curve) for size_bytes, curve in self._by_size)

    def read_s(self, size_bytes: float, lanes: float) -> float:
        """Seconds of one read while `lanes` reads of this size, itself included, are in flight."""
        return _between([(size, self._at(curve, lanes)) for size, curve in self._by_size], size_bytes)

    def _at(self, curve: list[tuple[float, float]], lanes: float) -> float:
        edge = min(max(lanes, curve[0][0]), curve[-1][0])
        return _between(curve, edge) * (_between(self._longest, lanes) / _between(self._longest, edge))


def _between(points: Sequence[tuple[float, float]], x: float) -> float:
    """The piecewise linear curve through points sorted by x; outside, the ray from the origin through the nearest."""
    after = bisect_left(points, (x,))
    if after in (0, len(points)):
        x_edge, y_edge = points[0 if after == 0 else -1]
        return y_edge * (x / x_edge)
    (x0, y0), (x1, y1) = points[after - 1], points[after]
    return y0 + (y1 - y0) * ((x - x0) / (x1 - x0))
