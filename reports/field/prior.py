"""How often a cache hits that holds a share of the experts, if no one says: one curve for each way to fill it.

The odds of a hit are the odds of being resident to a power, times a constant: logit(hit) = level + slope logit(share).
The curve is fitted on bundled traces and published hit rates, each model as much as any other.
"""

from __future__ import annotations

import csv
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flashmoe_sim.geometry.named import name_in
from flashmoe_sim.io.errors import BadInput

ROOT = Path(__file__).parents[2]
HIT_CURVES = ROOT / "data" / "published" / "hit_curves.csv"
KINDS = ("lru", "hindsight", "held-out")
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SHRINK = 3  # a model's mean of n points counts n / (n + 3)
LEAST_HIT, MOST_HIT = 0.01, 0.995
# Traces of one model count as one; a phone's trace is short, so that most of its misses are first uses.
TRACES = {
    "python-256": "small 256",
    "prose-256": "small 256",
    "cpp-256": "small 256",
    "deepseek-v2-lite": "DeepSeek-V2-Lite",
    "gpt-oss-120b": "gpt-oss-120b",
    "qwen3-30b-mlx": "Qwen3-30B-A3B",
}
_SHAPE = re.compile(r"\((\d+) x (\d+), top-(\d+)\)")


@dataclass(frozen=True)
class HitCurve:
    """A curve of hits against the share of experts that are resident.

    sd: of the logit, between models; known_sd: of one model's. offsets: of the level, by model, where points are known.
    """

    level: float
    slope: float
    sd: float
    known_sd: float = 0.0
    offsets: Mapping[str, float] = field(default_factory=dict)

    def hit_rate(self, share: float, *, model: str = "", deviations: float = 0.0) -> float:
        """The share of requests that hit; deviations: how many standard deviations above the middle."""
        if share <= 0:
            return 0.0
        if share >= 1:
            return 1.0
        level = self.level + self.offsets.get(model, 0.0)
        sd = self.known_sd if model in self.offsets else self.sd
        return _logistic(level + self.slope * logit(share) + deviations * sd)


class Point(NamedTuple):
    """A measured or replayed hit rate of a cache that holds a share of the experts."""

    kind: str
    model: str
    share: float
    hit_rate: float


def fitted(points: Iterable[Point], kind: str) -> HitCurve:
    """The curve of one kind, with the same weight for each model."""
    of_kind = [point for point in points if point.kind == kind and LEAST_HIT <= point.hit_rate <= MOST_HIT]
    models = [point.model for point in of_kind]
    weight = np.array([models.count(model) ** -0.5 for model in models])
    x = np.array([logit(point.share) for point in of_kind])
    y = np.array([logit(point.hit_rate) for point in of_kind])
    slope, level = np.polyfit(x, y, 1, w=weight)
    residual = y - level - slope * x
    offsets, left = dict[str, float](), residual.copy()
    for model in sorted(set(models)):
        of_model = np.array([other == model for other in models])
        n = int(of_model.sum())
        offset = float(residual[of_model].mean()) * n / (n + SHRINK)
        left[of_model] -= offset
        if (name := _name(model)) is not None:
            offsets[name] = offset
    sd, known_sd = (math.sqrt(float(np.average(rest**2, weights=weight**2))) for rest in (residual, left))
    return HitCurve(float(level), float(slope), sd, known_sd, offsets)


def all_points() -> list[Point]:
    """Points of the bundled traces and of the published tables."""
    return [*traced_points(), *published_points()]


def traced_points() -> list[Point]:
    """LRU and the best fixed list of the bundled traces, at SHARES."""
    from flashmoe_sim.api import curve, load_trace

    points = []
    for trace, model in TRACES.items():
        layers = load_trace(trace).layer_geometry
        assert layers is not None
        most = max(layer.n_experts for layer in layers)
        for policy, kind in (("lru", "lru"), ("static", "hindsight")):
            table = curve(trace, policy=policy)
            first = table["cold_installs"] if kind == "lru" else 0
            hits = dict(zip(table["bank_slots"], 1 - (table["misses"] - first) / table["requests"], strict=True))
            for share in SHARES:
                if (slots := round(share * most)) in hits:
                    points.append(Point(kind, model, slots / most, hits[slots]))
    return points


def published_points(path: Path = HIT_CURVES) -> list[Point]:
    """Hit rates of LRU caches and fixed lists whose share of the experts the table says."""
    found: dict[tuple[str, str, float], list[float]] = defaultdict(list)
    with path.open(encoding="utf-8", newline="") as file:
        for cells in csv.DictReader(file):
            kind, share = _kind(cells["policy"]), _share(cells)
            if kind and share is not None:
                model = cells["model"].partition(" (")[0].removesuffix(" NVFP4").removesuffix("-0731")
                found[kind, model, share].append(float(cells["hit_pct"]) / 100)
    return [Point(*key, float(np.median(hits))) for key, hits in found.items()]


def _name(model: str) -> str | None:
    """The named model; None for one that has no name there."""
    try:
        return name_in(model)
    except BadInput:
        return None


def _kind(policy: str) -> str | None:
    policy = policy.lower()
    if policy.startswith(("lru", "per-layer cache", "engine cache", "lfru")):
        return "lru"
    if "hindsight" in policy or "oracle" in policy:
        return "hindsight"
    if policy.startswith("static") and ("another workload" in policy or "cross-validated" in policy or "60%" in policy):
        return None if "uniform" in policy or "ring" in policy else "held-out"
    return None


def _share(cells: dict[str, str]) -> float | None:
    x, unit, shape = float(cells["x"]), cells["x_unit"], _SHAPE.search(cells["model"])
    if unit == "pct_of_experts":
        return x / 100
    if unit == "fraction_of_experts":
        return x
    if shape is None or not unit.startswith(("slots_per_layer", "expert_slots_per_layer")):
        return None
    share = x / int(shape[1])
    return share if x >= int(shape[3]) and share < 1 else None


def logit(share: float) -> float:
    """The logarithm of the odds; a share near 0 or 1 counts as one in ten thousand from it."""
    share = min(max(share, 1e-4), 1 - 1e-4)
    return math.log(share / (1 - share))


def _logistic(value: float) -> float:
    return 1 / (1 + math.exp(-value))
