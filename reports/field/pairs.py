"""Rows of one machine and model with and without an expert cache: what the cache gains, measured and predicted."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flashmoe_sim.field.engines import depth_of, engine_of
from flashmoe_sim.field.rows import FieldRow

CACHED = ("vram_lru", "vram_static_profile", "slot_bank_ssd", "ssd_stream")
PLAIN = ("n_cpu_moe", "cpu_only", "ot_regex", "all_gpu")
PLAIN_ENGINES = ("llama.cpp", "ik_llama.cpp")


class Speed(NamedTuple):
    """A predicted speed, its interval, and the system that it is of; None of an engine without one."""

    tok_s: float
    lo: float
    hi: float
    system: str | None = None


@dataclass(frozen=True)
class Pair:
    """A row with a cache and a row without, and their predictions."""

    cached: FieldRow
    plain: FieldRow
    with_cache: Speed
    without: Speed

    @property
    def name(self) -> str:
        """The two ids."""
        return f"{self.cached.id} / {self.plain.id}"

    @property
    def measured(self) -> float:
        """How many times as fast the run with the cache was."""
        return (self.cached.decode_tok_s or 0.0) / (self.plain.decode_tok_s or math.nan)

    @property
    def predicted(self) -> float:
        """How many times as fast it is predicted to be."""
        return self.with_cache.tok_s / self.without.tok_s

    @property
    def interval(self) -> tuple[float, float]:
        """The predicted gain's interval, as if the errors of both predictions had nothing to do with each other."""
        below = math.hypot(
            math.log(self.with_cache.tok_s / self.with_cache.lo), math.log(self.without.hi / self.without.tok_s)
        )
        above = math.hypot(
            math.log(self.with_cache.hi / self.with_cache.tok_s), math.log(self.without.tok_s / self.without.lo)
        )
        return self.predicted * math.exp(-below), self.predicted * math.exp(above)

    @property
    def ordered(self) -> bool:
        """Whether the faster of the two is predicted to be the faster."""
        return (self.measured > 1) == (self.predicted > 1)

    @property
    def overlap(self) -> bool:
        """Whether the intervals of the two speeds overlap."""
        return self.with_cache.lo <= self.without.hi and self.without.lo <= self.with_cache.hi

    @property
    def holds(self) -> bool:
        """Whether the order is right, or not claimed."""
        return self.ordered or self.overlap


def pairs(rows: Sequence[FieldRow], speeds: Mapping[str, Speed]) -> list[Pair]:
    """Every pair of predicted rows of one machine, model, quantization and depth with and without a cache.

    speeds: by the row's id; a row without one is in no pair. Without a cache means: plain llama.cpp or ik_llama.cpp, or
    the program of the cached row in the same series. Rows that one system answers alike differ in something else.
    """
    groups: dict[tuple[object, ...], list[FieldRow]] = defaultdict(list)
    for row in rows:
        if row.id in speeds and row.machine_id:
            groups[row.machine_id, row.model.lower(), row.quant.lower(), depth_of(row)].append(row)
    return [
        Pair(cached, plain, speeds[cached.id], speeds[plain.id])
        for group in groups.values()
        for cached in group
        for plain in group
        if cached.strategy in CACHED and plain.strategy in PLAIN and _comparable(cached, plain)
        if speeds[cached.id].system is None or speeds[cached.id] != speeds[plain.id]
    ]


def _comparable(cached: FieldRow, plain: FieldRow) -> bool:
    """Whether two rows of a group ran on the same GPU, and differ in the cache rather than in the program."""
    if cached.gpu and plain.gpu and cached.gpu != plain.gpu:
        return False
    if engine_of(plain) in PLAIN_ENGINES:
        return True
    return engine_of(plain) == engine_of(cached) and bool(plain.series) and plain.series == cached.series
