"""The growing columns of a trace that is being read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.notes import DROPPED, GAP, Note
from flashmoe_sim.trace._json_kernels import (
    COUNTS,
    KEYS,
    LAYER,
    LINE,
    N_EXPERT_USED,
    N_TOKENS,
    PHASE,
    SEQ,
    SEQUENCE,
    SLOTS,
    STEP,
    WEIGHTS,
)
from flashmoe_sim.trace.calls import ID_MAX
from flashmoe_sim.trace.chunk import Chunk
from flashmoe_sim.trace.routing import offsets


class _Column:
    """An array that grows by a quarter at a time; the system moves large ones without a second copy."""

    def __init__(self, dtype: type[np.generic]) -> None:
        self._values: NDArray[Any] = np.empty(0, dtype)
        self._used = 0

    def extend(self, values: NDArray[Any]) -> None:
        size = self._used + len(values)
        if size > len(self._values):
            self._values.resize(size + size // 4, refcheck=False)
        self._values[self._used : size] = values
        self._used = size

    def clear(self) -> None:
        self._values = np.empty(0, self._values.dtype)
        self._used = 0

    def take(self) -> NDArray[Any]:
        """Hand over the values so far."""
        self._values.resize(self._used, refcheck=False)
        values = self._values
        self.clear()
        return values


class _Optional:
    """A column that is kept only if every call has it."""

    def __init__(self, name: str, key: int, dtype: type[np.generic]) -> None:
        self.name = name
        self.calls = 0
        self._key = key
        self._column = _Column(dtype)

    def extend(self, keys: NDArray[np.int64], values: NDArray[Any] | None, *, calls_before: int) -> None:
        """Add the values of the calls whose keys are given, unless a call so far lacked them."""
        having = int(np.count_nonzero(keys >> self._key & 1))
        if values is not None and self.calls == calls_before and having == len(keys):
            self._column.extend(values)
        else:
            self._column.clear()
        self.calls += having

    def take(self, calls: int) -> NDArray[Any] | None:
        """Hand over the values so far; None unless each of the `calls` so far had its own."""
        values = self._column.take()
        return values if self.calls == calls else None


class Columns:
    """Collects the output of the kernels."""

    def __init__(self) -> None:
        self.calls = 0
        self.refs = 0
        self._layer = _Column(np.int16)
        self._n_tokens = _Column(np.int32)
        self._refs_of_call = _Column(np.int32)
        self._expert = _Column(np.int16)
        self._phase = _Column(np.uint8)
        self._phases = 0
        self._layers = np.zeros(ID_MAX + 1, np.bool_)
        self._largest = 0
        self._optional = {
            "slot": _Optional("slots", SLOTS, np.int16),
            "weight": _Optional("weights", WEIGHTS, np.float32),
            "sequence": _Optional("sequence", SEQUENCE, np.int32),
            "step": _Optional("step", STEP, np.int32),
        }
        self._bare = 0
        self._seqs = 0
        self._next_seq = 0
        self._seq_note = ""
        self._least_used, self._most_used = 2**31, 0

    def add(
        self,
        table: NDArray[np.int64],
        *,
        expert: NDArray[np.int16],
        slot: NDArray[np.int16],
        weight: NDArray[np.float32] | None,
    ) -> None:
        """Copy a table of calls (i64 [calls, COLUMNS]) and its references."""
        if not len(table):
            return
        keys = table[:, KEYS]
        used = table[:, N_EXPERT_USED]
        self._bare += int(np.count_nonzero(keys & COUNTS == 0))
        self._follow_seq(table)
        self._layer.extend(table[:, LAYER])
        self._layers[table[:, LAYER]] = True
        self._largest = max(self._largest, int(expert.max(initial=0)))
        self._n_tokens.extend(table[:, N_TOKENS])
        self._refs_of_call.extend(used * table[:, N_TOKENS])
        self._expert.extend(expert)
        has_phase = keys >> PHASE & 1
        self._phase.extend(np.where(has_phase, table[:, PHASE], 0))
        self._phases += int(has_phase.sum())
        given = {"slot": slot, "weight": weight, "sequence": table[:, SEQUENCE], "step": table[:, STEP]}
        for name, column in self._optional.items():
            column.extend(keys, given[name], calls_before=self.calls)
        self._least_used = min(self._least_used, int(used.min()))
        self._most_used = max(self._most_used, int(used.max()))
        self.calls += len(table)
        self.refs += len(expert)

    def _follow_seq(self, table: NDArray[np.int64]) -> None:
        """Remember the first place where `seq` does not go up by one, among the lines that have it."""
        having = table[table[:, KEYS] >> SEQ & 1 == 1]
        if not len(having) or self._seq_note:
            self._seqs += len(having)
            return
        seq = having[:, SEQ]
        before = np.empty_like(seq)
        before[0] = self._next_seq - 1
        before[1:] = seq[:-1]
        gaps = np.flatnonzero(seq - 1 != before)
        if len(gaps):
            at = int(gaps[0])
            expected = int(before[at]) + 1
            found = f"line {having[at, LINE]} has seq {seq[at]} where {expected} was expected"
            self._seq_note = Note(GAP, f"seq has gaps: {found}")
        self._seqs += len(having)
        self._next_seq = int(seq[-1]) + 1

    def forget(self) -> None:
        """Drop the calls so far."""
        self._take()

    def take(self, head: Chunk) -> Chunk:
        """Hand over the calls since the last time, of a trace whose head was read before."""
        arrays = self._take()
        return replace(head, **{name: values for name, values in arrays.items() if getattr(head, name) is not None})

    def finish(self, *, format: str, name: str, notes: tuple[str, ...]) -> Chunk:
        """The calls not taken yet, as a chunk whose other fields hold for all calls so far."""
        partial = [column for column in self._optional.values() if 0 < column.calls < self.calls]
        notes += tuple(
            Note(DROPPED, f"{item.name} left out: only {item.calls} of {self.calls} calls have it") for item in partial
        )
        if self._bare:
            bare = "all" if self._bare == self.calls else f"{self._bare:,} of {self.calls:,}"
            notes += (f"{bare} lines lack n_tokens and n_expert_used: each is read as one token",)
        if self._seq_note:
            notes += (self._seq_note,)
        layers = np.flatnonzero(self._layers).tolist()
        return Chunk(
            **self._take(),
            n_experts=dict.fromkeys(layers, 1 << self._largest.bit_length()),
            top_k=self._most_used if self._least_used == self._most_used else 0,
            format=format,
            name=name,
            notes=notes,
            all_layers=tuple(layers),
        )

    def _take(self) -> dict[str, Any]:
        phase = self._phase.take()
        return {
            "layer": self._layer.take(),
            "n_tokens": self._n_tokens.take(),
            "offset": offsets(self._refs_of_call.take()),
            "expert": self._expert.take(),
            "phase": phase if self._phases else None,
            **{name: column.take(self.calls) for name, column in self._optional.items()},
        }
