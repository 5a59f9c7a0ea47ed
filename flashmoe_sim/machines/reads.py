"""Bandwidth by read size and reads in flight, between the points that were measured."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import log2


@dataclass(frozen=True)
class MeasuredRead:
    """One point of a sweep: reads of `size_kib` with `lanes` of them in flight reached `gb_s` together."""

    size_kib: float
    lanes: int
    gb_s: float
    source: str


class ReadTable:
    """Measured points, completed and interpolated.

    A size has a curve of its own over the lanes it was measured with: bandwidth linear in log2(lanes). Beyond them, and
    where there is one point only, it goes on like the curve with most points (of those, of the largest size), scaled to
    meet it. A size between two measured ones lies on the line between their curves in log2(size). Outside all sizes and
    all lanes that were measured the bandwidth is that at the edge.
    """

    def __init__(self, measured: Sequence[MeasuredRead]) -> None:
        by_size: dict[float, list[tuple[float, float]]] = {}
        for point in sorted(measured, key=lambda point: (point.size_kib, point.lanes)):
            by_size.setdefault(point.size_kib, []).append((log2(point.lanes), point.gb_s))
        self._curves = [(log2(size_kib * 1024), curve) for size_kib, curve in by_size.items()]
        _, _, self._shape = max((len(curve), size, curve) for size, curve in self._curves)

    def gb_s(self, size_bytes: float, lanes: float) -> float:
        """GB/s of all reads of this size together when `lanes` of them are in flight."""
        depth = log2(lanes)
        return _between([(size, self._at(curve, depth)) for size, curve in self._curves], log2(size_bytes))

    def _at(self, curve: list[tuple[float, float]], depth: float) -> float:
        edge = min(max(depth, curve[0][0]), curve[-1][0])
        return _between(curve, edge) * _between(self._shape, depth) / _between(self._shape, edge)


def _between(points: Sequence[tuple[float, float]], x: float) -> float:
    """The broken line through points sorted by x, and constant outside them."""
    after = bisect_left(points, (x,))
    if after == 0:
        return points[0][1]
    if after == len(points):
        return points[-1][1]
    (x0, y0), (x1, y1) = points[after - 1], points[after]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
