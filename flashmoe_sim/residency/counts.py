"""The counts of a replay: exact, per layer, and additive."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flashmoe_sim.residency import tally


@dataclass(frozen=True, eq=False)
class Counts:
    """Counts of one replay; `+` merges counts of the same configuration over different traces.

    layers: layer numbers. table: i64 [layers, tally.N_COLUMNS].
    unions: i64, how many calls requested 0, 1, 2, … distinct experts.
    tokens: tokens of the workload. slots: slots that a call's experts compete for; 0 for a bank in bytes.
    expert_bytes, reads_per_install: of each layer; None if no geometry is known.
    resident_bytes: memory of the banks; None if no geometry is known.
    minor_share: the share of its bytes that a miss of a minor expert reads.
    """

    layers: tuple[int, ...]
    table: NDArray[np.int64]
    unions: NDArray[np.int64]
    tokens: int
    slots: int
    expert_bytes: tuple[int, ...] | None = None
    reads_per_install: tuple[int, ...] | None = None
    resident_bytes: int | None = None
    minor_share: float = 1.0

    def __add__(self, other: Counts) -> Counts:
        same = ("layers", "slots", "expert_bytes", "reads_per_install", "resident_bytes", "minor_share")
        for name in same:
            if getattr(self, name) != getattr(other, name):
                raise ValueError(
                    f"counts of different configurations: {name} {getattr(self, name)} and {getattr(other, name)}"
                )
        return replace(
            self,
            table=self.table + other.table,
            unions=added(self.unions, other.unions),
            tokens=self.tokens + other.tokens,
        )

    def since(self, earlier: Counts) -> Counts:
        """The counts of the calls since `earlier`, which is the same replay after fewer calls."""
        return replace(
            self,
            table=self.table - earlier.table,
            unions=added(self.unions, -earlier.unions),
            tokens=self.tokens - earlier.tokens,
        )

    def joined(self, other: Counts) -> Counts:
        """The counts of one replay, from the counts of two parts of its layers; each part has zeros for the other."""
        resident_bytes = None
        if self.resident_bytes is not None and other.resident_bytes is not None:
            resident_bytes = self.resident_bytes + other.resident_bytes
        return replace(
            self,
            table=self.table + other.table,
            unions=added(self.unions, other.unions),
            slots=max(self.slots, other.slots),
            resident_bytes=resident_bytes,
        )

    def total(self) -> dict[str, Any]:
        """The columns of schema.COUNTS that a replay can fill, over all layers."""
        row = _columns(self.table.sum(axis=0), self.tokens)
        row |= {
            "bytes_read": _sum(self._bytes_read()),
            "bytes_per_token": None,
            "read_ops": _sum(self._read_ops()),
            "prefetch_bytes": self._weighted(tally.PREFETCH_ISSUED, self.expert_bytes),
            "prefetch_read_ops": self._weighted(tally.PREFETCH_ISSUED, self.reads_per_install),
            "prefetch_wasted_bytes": self._weighted(tally.PREFETCH_WASTED, self.expert_bytes),
            "union_over_slots_p50": self._union_quantile(0.50),
            "union_over_slots_p99": self._union_quantile(0.99),
            "resident_bytes": self.resident_bytes,
        }
        if row["bytes_read"] is not None and self.tokens:
            row["bytes_per_token"] = row["bytes_read"] / self.tokens
        return row

    def by_layer(self) -> list[dict[str, Any]]:
        """One row per layer: its number and the columns of `total` that are defined for one layer."""
        rows, read_bytes, read_ops = [], self._bytes_read(), self._read_ops()
        for i, layer in enumerate(self.layers):
            row = {"layer": layer, **_columns(self.table[i], self.tokens)}
            size = self.expert_bytes[i] if self.expert_bytes else None
            reads = self.reads_per_install[i] if self.reads_per_install else None
            for name, of_layers in (("bytes_read", read_bytes), ("read_ops", read_ops)):
                row[name] = None if of_layers is None else int(of_layers[i])
            for name, column, each in (
                ("prefetch_bytes", tally.PREFETCH_ISSUED, size),
                ("prefetch_read_ops", tally.PREFETCH_ISSUED, reads),
                ("prefetch_wasted_bytes", tally.PREFETCH_WASTED, size),
            ):
                row[name] = None if each is None else int(self.table[i, column]) * each
            rows.append(row)
        return rows

    def _bytes_read(self) -> NDArray[np.int64] | None:
        """What the misses of each layer read."""
        if self.expert_bytes is None:
            return None
        return bytes_read(self.table[:, tally.MISSES], self.table[:, tally.MINOR], self.expert_bytes, self.minor_share)

    def _read_ops(self) -> NDArray[np.int64] | None:
        unread = 0 if self.minor_share else self.table[:, tally.MINOR]
        each = self.reads_per_install
        return None if each is None else (self.table[:, tally.MISSES] - unread) * np.array(each, np.int64)

    def _weighted(self, column: int, each: tuple[int, ...] | None) -> int | None:
        return None if each is None else sum(int(n) * one for n, one in zip(self.table[:, column], each, strict=True))

    def _union_quantile(self, share: float) -> float | None:
        asking = self.unions[1:]
        calls = int(asking.sum())
        if not self.slots or not calls:
            return None
        rank = max(int(np.ceil(share * calls)), 1)
        return float(1 + np.searchsorted(np.cumsum(asking), rank)) / self.slots


def bytes_read(
    misses: NDArray[Any], minor: NDArray[Any], expert_bytes: ArrayLike, minor_share: float
) -> NDArray[np.int64]:
    """What misses read, of which `minor` are of minor experts; the arguments have one entry per layer or call."""
    size = np.asarray(expert_bytes, np.int64)
    read: NDArray[np.int64] = (misses - minor) * size + minor * (minor_share * size).astype(np.int64)
    return read


def _sum(numbers: NDArray[np.int64] | None) -> int | None:
    return None if numbers is None else int(numbers.sum())


def added(some: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum of two histograms, as long as the longer one."""
    total = np.zeros(max(len(some), len(others)), np.int64)
    total[: len(some)] += some
    total[: len(others)] += others
    return total


def _columns(counted: NDArray[np.int64], tokens: int) -> dict[str, Any]:
    names = {
        "calls": tally.CALLS,
        "refs": tally.REFS,
        "requests": tally.REQUESTS,
        "hits": tally.HITS,
        "misses": tally.MISSES,
        "cold_installs": tally.COLD,
        "evictions": tally.EVICTIONS,
        "bypassed": tally.BYPASSED,
        "minor_misses": tally.MINOR,
        "aliased_refs": tally.ALIASED,
        "full_hit_calls": tally.FULL_HIT_CALLS,
        "prefetch_calls": tally.PREFETCH_CALLS,
        "prefetch_requests": tally.PREFETCH_REQUESTS,
        "prefetch_issued": tally.PREFETCH_ISSUED,
        "prefetch_useful": tally.PREFETCH_USEFUL,
        "prefetch_late": tally.PREFETCH_LATE,
    }
    row: dict[str, Any] = {"tokens": tokens} | {name: int(counted[column]) for name, column in names.items()}
    calls, requests = row["calls"], row["requests"]
    predicted, right = int(counted[tally.PREDICTED]), int(counted[tally.PREDICTED_RIGHT])
    row["prefetch_precision"] = right / predicted if predicted else None
    row["prefetch_recall"] = right / requests if predicted and requests else None
    row["hit_rate"] = row["hits"] / requests if requests else None
    row["full_hit_rate"] = row["full_hit_calls"] / calls if calls else None
    row["misses_per_call"] = row["misses"] / calls if calls else None
    row["misses_per_token"] = row["misses"] / tokens if tokens else None
    return row
